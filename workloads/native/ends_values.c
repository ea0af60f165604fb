// SPDX-License-Identifier: Apache-2.0
/* Converts a request's elements to lanes and back. */
#include <string.h>

#include "endpoint.h"
#include "ends.h"

static float from_bits(uint32_t bits)
{
	float value;

	memcpy(&value, &bits, sizeof(value));
	return value;
}

/* Exact: binary32 has each value of binary16. */
static float of_binary16(uint16_t half)
{
	uint32_t sign = (uint32_t)(half & 0x8000) << 16, rest = (uint32_t)(half & 0x7fff) << 13;
	uint32_t bits;
	float value;

	if ((half & 0x7c00) == 0x7c00)
		return from_bits(sign | 0x7f800000 | rest);
	value = (float)((double)(half & 0x3ff) * 0x1p-24); /* where the exponent is 0 */
	if (half & 0x7c00)
		value = from_bits(rest + ((127 - 15) << 23));
	memcpy(&bits, &value, sizeof(bits));
	return from_bits(bits | sign);
}

/* The elements as binary32: in place, or converted in `scratch`. */
static const float *widen(const void *values, uint32_t format, uint64_t from, uint64_t count, float *scratch)
{
	const uint16_t *narrow = (const uint16_t *)values + from;

	if (format == FORMAT_BINARY32)
		return (const float *)values + from;
	if (format == FORMAT_BFLOAT16)
		for (uint64_t i = 0; i < count; i++)
			scratch[i] = from_bits((uint32_t)narrow[i] << 16);
	else
		for (uint64_t i = 0; i < count; i++)
			scratch[i] = of_binary16(narrow[i]);
	return scratch;
}

uint32_t values_exponent(const void *values, uint32_t format, uint64_t from, uint64_t count, float *scratch)
{
	return lanes_exponent(widen(values, format, from, count, scratch), count);
}

/*
 * Writes a request's lanes. Returns how many values were rounded to zero. The rest of a last lane of bytes is
 * zero.
 */
uint32_t values_give(struct end *e, const struct end_request *r, uint64_t from, uint32_t count,
		     uint32_t *lanes)
{
	const uint8_t *buffer = buffer_of(e, r);

	if (r->format == FORMAT_BYTES) {
		uint64_t bytes = ends_least(4 * (uint64_t)count, r->elements - 4 * from);

		memcpy(lanes, buffer + 4 * from, bytes);
		memset((uint8_t *)lanes + bytes, 0, 4 * (uint64_t)count - bytes);
		return 0;
	}
	return lanes_encode(widen(buffer, r->format, from, count, e->values), lanes, count, r->scale,
			    e->bias);
}

void values_take(struct end *e, const struct end_request *r, uint64_t from, uint32_t count,
		 const uint32_t *lanes)
{
	uint8_t *buffer = buffer_of(e, r);

	if (r->format == FORMAT_BYTES)
		memcpy(buffer + 4 * from, lanes, ends_least(4 * (uint64_t)count, r->elements - 4 * from));
	else
		lanes_decode(lanes, (float *)buffer + from, count, r->factor, e->s.workers * e->bias);
}
