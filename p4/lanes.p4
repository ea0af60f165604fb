// SPDX-License-Identifier: Apache-2.0
// Generated from testbed/wire/spec.py by `make contract`: do not edit.
// 360 lanes, 64 to a register.
#ifndef LANES_P4
#define LANES_P4

#define WIRE_LANES 360

const bit<2> LANES_LEAVE = 0;
const bit<2> LANES_KEEP = 1;   // the packet's into the slot
const bit<2> LANES_ADD = 2;    // to those in the slot; the packet then has the sum
const bit<2> LANES_RECALL = 3; // the slot's into the packet

header lanes_h {
    bit<2048> l0;
    bit<2048> l1;
    bit<2048> l2;
    bit<2048> l3;
    bit<2048> l4;
    bit<1280> l5;
}

@name(".lanes_0") register<bit<2048>>(CELLS) lanes_0;
@name(".lanes_1") register<bit<2048>>(CELLS) lanes_1;
@name(".lanes_2") register<bit<2048>>(CELLS) lanes_2;
@name(".lanes_3") register<bit<2048>>(CELLS) lanes_3;
@name(".lanes_4") register<bit<2048>>(CELLS) lanes_4;
@name(".lanes_5") register<bit<1280>>(CELLS) lanes_5;

// `held` is room to work in.
control Lanes(inout lanes_h lanes, inout lanes_h held, in bit<32> slot, in bit<2> what) {
    action keep() {
        lanes_0.write(slot, lanes.l0);
        lanes_1.write(slot, lanes.l1);
        lanes_2.write(slot, lanes.l2);
        lanes_3.write(slot, lanes.l3);
        lanes_4.write(slot, lanes.l4);
        lanes_5.write(slot, lanes.l5);
    }
    action add() {
        lanes_0.read(held.l0, slot);
        lanes.l0 = lanes.l0 + held.l0;
        lanes_0.write(slot, lanes.l0);
        lanes_1.read(held.l1, slot);
        lanes.l1 = lanes.l1 + held.l1;
        lanes_1.write(slot, lanes.l1);
        lanes_2.read(held.l2, slot);
        lanes.l2 = lanes.l2 + held.l2;
        lanes_2.write(slot, lanes.l2);
        lanes_3.read(held.l3, slot);
        lanes.l3 = lanes.l3 + held.l3;
        lanes_3.write(slot, lanes.l3);
        lanes_4.read(held.l4, slot);
        lanes.l4 = lanes.l4 + held.l4;
        lanes_4.write(slot, lanes.l4);
        lanes_5.read(held.l5, slot);
        lanes.l5 = lanes.l5 + held.l5;
        lanes_5.write(slot, lanes.l5);
    }
    action recall() {
        lanes_0.read(lanes.l0, slot);
        lanes_1.read(lanes.l1, slot);
        lanes_2.read(lanes.l2, slot);
        lanes_3.read(lanes.l3, slot);
        lanes_4.read(lanes.l4, slot);
        lanes_5.read(lanes.l5, slot);
    }

    apply {
        if (what == LANES_KEEP) {
            keep();
        } else if (what == LANES_ADD) {
            add();
        } else if (what == LANES_RECALL) {
            recall();
        }
    }
}

#endif
