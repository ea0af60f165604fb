/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Converts floats to lanes and back. workloads/quantiser.py does the same in NumPy, and tests compare them
 * bit by bit.
 */
#include <math.h>

#include "endpoint.h"

/* Returns how many values are not zero but were rounded to zero. */
uint32_t lanes_encode(const float *restrict values, uint32_t *restrict lanes, size_t count, int scale,
		      uint32_t bias)
{
	float factor = ldexpf(1.0f, scale);
	uint32_t zeroed = 0;

	for (size_t i = 0; i < count; i++) {
		int32_t value = (int32_t)rintf(values[i] * factor);

		zeroed += (value == 0) & (values[i] != 0);
		lanes[i] = __builtin_bswap32((uint32_t)value + bias);
	}
	return zeroed;
}

/*
 * Computes what rounding leaves out of each value. The result is exact, since a value has no more bits than
 * its integer.
 */
void lanes_lost(const float *restrict values, float *restrict lost, size_t count, int scale)
{
	float factor = ldexpf(1.0f, scale), unit = ldexpf(1.0f, -scale);

	for (size_t i = 0; i < count; i++)
		lost[i] = values[i] - rintf(values[i] * factor) * unit;
}

void lanes_decode(const uint32_t *restrict lanes, float *restrict values, size_t count, double factor,
		  uint32_t offset)
{
	for (size_t i = 0; i < count; i++)
		values[i] = (float)((double)(int32_t)(__builtin_bswap32(lanes[i]) - offset) * factor);
}

void lanes_swap(const uint32_t *restrict from, uint32_t *restrict to, size_t count)
{
	for (size_t i = 0; i < count; i++)
		to[i] = __builtin_bswap32(from[i]);
}

uint32_t lanes_exponent(const float *values, size_t count)
{
	const uint32_t *bits = (const uint32_t *)values;
	uint32_t largest = 0;

	for (size_t i = 0; i < count; i++) {
		uint32_t magnitude = bits[i] & 0x7fffffff;

		largest = magnitude > largest ? magnitude : largest;
	}
	return largest >> 23;
}

/* ---- for tests ---- */

uint32_t endpoint_encode(const float *values, uint32_t *lanes, uint64_t count, int32_t scale, uint32_t bias)
{
	return lanes_encode(values, lanes, count, scale, bias);
}

void endpoint_decode(const uint32_t *lanes, float *values, uint64_t count, double factor, uint32_t offset)
{
	lanes_decode(lanes, values, count, factor, offset);
}
