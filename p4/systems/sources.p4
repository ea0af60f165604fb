// SPDX-License-Identifier: Apache-2.0
// Writes something out for each of a place's contributors, eight at a time: a switch of stages has no turns.
#ifndef SOURCES_P4
#define SOURCES_P4

#define SOURCES_8(each, from) \
    each((from)) each((from + 1)) each((from + 2)) each((from + 3)) \
    each((from + 4)) each((from + 5)) each((from + 6)) each((from + 7))

#endif
