/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Linked into an endpoint for tests with --wrap: what a test plants happens while the endpoint reads a
 * result, between its first half and its second.
 */
#include <stddef.h>
#include <stdint.h>

void (*planted)(void);

static void plant(void)
{
	if (planted)
		planted();
}

void __real_lanes_decode(const uint32_t *lanes, float *values, size_t count, double factor, uint32_t offset);
void __real_lanes_swap(const uint32_t *from, uint32_t *to, size_t count);
void *__real_memcpy(void *to, const void *from, size_t bytes);

void __wrap_lanes_decode(const uint32_t *lanes, float *values, size_t count, double factor, uint32_t offset)
{
	size_t half = count / 2;

	__real_lanes_decode(lanes, values, half, factor, offset);
	plant();
	__real_lanes_decode(lanes + half, values + half, count - half, factor, offset);
}

void __wrap_lanes_swap(const uint32_t *from, uint32_t *to, size_t count)
{
	size_t half = count / 2;

	__real_lanes_swap(from, to, half);
	plant();
	__real_lanes_swap(from + half, to + half, count - half);
}

void *__wrap_memcpy(void *to, const void *from, size_t bytes)
{
	size_t half = bytes / 2;

	__real_memcpy(to, from, half);
	plant();
	__real_memcpy((char *)to + half, (const char *)from + half, bytes - half);
	return to;
}
