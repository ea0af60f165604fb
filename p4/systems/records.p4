// SPDX-License-Identifier: Apache-2.0
// Generated from testbed/systems/luwu/contract.py by `make wire`: do not edit.
#ifndef RECORDS_P4
#define RECORDS_P4

#define OWNED_TREES 64 // records of owned trees
#define OWNED_MEMBERS 64 // of a record: 2 ** 6

#endif
