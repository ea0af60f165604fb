"""The settings of ends, from what a job's processes are told."""

from __future__ import annotations

import socket

import pytest

from testbed.wire.node_settings import OwnerTree
from workloads.luwu.contract import Role
from workloads.luwu.errors import LuwuError
from workloads.luwu.job import connector
from workloads.luwu.sockets import (
    LEAST_BEAT_US,
    LEAST_DETECT_US,
    MOST_DEPTH,
    beat_us_for,
    depth_for,
    detect_us_for,
    end_of,
    udp_at,
)

TREE = OwnerTree(
    job=7,
    generation=3,
    workers=4,
    lanes=360,
    slots=512,
    port=47001,
    group="239.192.0.7",
    rate_mbps=10.0,
)


@pytest.mark.parametrize(
    ("lanes", "slots", "granted_bytes", "depth"),
    [
        (360, 1024, 1 << 20, MOST_DEPTH),
        (360, 16, 1 << 20, 16),
        (360, 1024, 425_984, MOST_DEPTH),
        (2238, 1024, 425_984, 32),  # frames of 9,000 bytes
        (2238, 1024, 1000, 1),
    ],
)
def test_an_end_has_no_more_room_than_its_socket(
    lanes: int, slots: int, granted_bytes: int, depth: int
) -> None:
    assert depth_for(lanes, slots, granted_bytes) == depth


def test_an_end_waits_for_its_window_to_pass_its_link() -> None:
    window_us = 64 * 8 * 1514 / 10
    assert 2 * window_us <= detect_us_for(360, 64, 10) < 2.1 * window_us
    assert detect_us_for(360, 64, 10_000) == LEAST_DETECT_US
    assert detect_us_for(360, 64, None) == LEAST_DETECT_US


def test_an_end_acknowledges_by_quarters_of_a_window_and_before_the_other_goes_back() -> None:
    window_us = 64 * 8 * 1514 / 50
    assert beat_us_for(360, 64, 50, 40_000) == round(window_us / 4)
    assert beat_us_for(360, 64, 50, 5_000) == 2_500
    assert beat_us_for(360, 64, 10_000, 20_000) == beat_us_for(360, 64, None, 20_000) == LEAST_BEAT_US


def test_an_end_is_of_the_job_and_of_its_worker() -> None:
    with udp_at("127.0.0.1", 0) as udp:
        granted_bytes = udp.getsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF)
        owner = end_of(TREE, udp, "239.192.0.7")
        worker = end_of(TREE, udp, "10.0.1.254", 2, 128, 5000)
    assert (owner.role, owner.address, owner.rate_mbps) == (Role.OWNER, "239.192.0.7", 10.0)
    assert owner.depth == depth_for(360, 512, granted_bytes)
    assert owner.detect_us == detect_us_for(360, owner.depth, 10.0)
    assert owner.beat_us == beat_us_for(360, owner.depth, 10.0, owner.detect_us)
    assert (worker.role, worker.worker, worker.slot_base, worker.detect_us) == (Role.WORKER, 2, 128, 5000)


def test_a_nic_is_a_process_or_a_thread() -> None:
    with pytest.raises(LuwuError, match=r"^nic 'card': accepted are process and host$"):
        connector("card", None)


def test_a_process_of_no_job_has_no_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TESTBED_JOB", raising=False)
    assert connector("process", None) is None
