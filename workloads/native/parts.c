/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Vectors of which a worker has a part. Of a gathered vector, it pushes its part, and zeros for the rest,
 * which are not sent if the place accepts empty pushes. Of a scattered sum, it writes only its part.
 */
#include <string.h>

#include "endpoint.h"

/*
 * Finds the bytes of `count` lanes from `start` on that are in the worker's part. Returns whether there are
 * any.
 */
static int overlap(const struct op *op, uint64_t start, uint64_t count, uint64_t *from, uint64_t *until)
{
	*from = op->from > 4 * start ? op->from : 4 * start;
	*until = lesser(op->until, 4 * (start + count));
	return *from < *until;
}

int parts_has(const struct op *op, uint64_t start, uint64_t count)
{
	uint64_t from, until;

	return overlap(op, start, count, &from, &until);
}

void parts_write(const struct op *op, uint32_t *lanes, uint64_t start, uint64_t count)
{
	uint64_t from, until;

	memset(lanes, 0, 4 * count);
	if (!overlap(op, start, count, &from, &until))
		return;
	memcpy((char *)lanes + (from - 4 * start), (const char *)op->data + from, until - from);
	for (uint64_t i = 0; i < count; i++)
		lanes[i] = __builtin_bswap32(lanes[i]);
}
