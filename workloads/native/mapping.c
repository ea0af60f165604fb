/* SPDX-License-Identifier: Apache-2.0 */
/* Assigns fragments to trees: the pattern of testbed/wire/mapping.py, repeated. Every worker has the same. */
#include <stdlib.h>

#include "endpoint.h"

/*
 * Makes the tables of over_all and given. Returns whether there was enough memory; endpoint_close frees it.
 */
int mapping_open(struct endpoint *e)
{
	for (uint32_t number = 0; number < e->s.trees; number++) {
		struct tree *t = &e->trees[number];

		t->at = calloc(e->s.parts, sizeof(*t->at));
		t->before = calloc(e->s.parts, sizeof(*t->before));
		if (!t->at || !t->before)
			return 0;
		for (uint32_t i = 0; i < e->s.parts; i++) {
			t->before[i] = t->count;
			if (e->s.pattern[i] == number)
				t->at[t->count++] = i;
		}
	}
	return 1;
}
