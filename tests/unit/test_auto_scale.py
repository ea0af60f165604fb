"""The scale that a machine's cores keep up with: the choice, and who may leave it to the machine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed.errors import RequestError
from testbed.topology.auto_scale import (
    FRAMES_SHARE,
    auto_scale,
    cores_needed,
    in_words,
    two_digits_up,
    with_scale,
)
from testbed.topology.catalogue import READY, find, ready
from testbed.topology.dataplanes import DATA_PLANES
from testbed.topology.load import AtUp, load, parse
from testbed.topology.model import Topology
from testbed.topology.values import AUTO_SCALE
from testbed.topology.yaml_form import words

FRAME_US, CORES = 4.0, 2.0
UNIT = {"kind": "gpu", "hosts": 4}


def topology(units: Any = (UNIT,), **keys: Any) -> Topology:
    return parse({"units": list(units), "scale": "auto", **keys}, "test", at_up=AtUp())


def scale_of(*arguments: Any, frame_us: float = FRAME_US, cores: float = CORES, **keys: Any) -> int:
    return auto_scale(topology(*arguments, **keys), frame_us, cores).scale


def test_the_frames_of_all_hosts_take_their_share_of_the_cores() -> None:
    rack = topology()
    frames_per_s = 4 * 40e9 / (8 * 1514)
    assert cores_needed(rack, FRAME_US) == pytest.approx(frames_per_s * FRAME_US / 1e6)
    choice = auto_scale(rack, FRAME_US, CORES)
    assert choice.scale == two_digits_up(frames_per_s * FRAME_US / 1e6 / (FRAMES_SHARE * CORES)) == 720
    assert choice.frames_per_s == pytest.approx(frames_per_s / 720)
    assert in_words(choice, CORES, "measured now") == (
        "scale 720: 2 cores keep up with 18,347 frames a second, all hosts together (measured now)"
    )


@given(st.floats(0, 1e9))
def test_two_digits_are_rounded_up(value: float) -> None:
    rounded = two_digits_up(value)
    assert max(1.0, value * (1 - 1e-6)) <= rounded <= max(1.0, value * 1.1 + 1)
    assert rounded < 100 or rounded % 10 ** (len(str(rounded)) - 2) == 0


@given(st.integers(1000, 400_000), st.floats(1, 8), st.floats(0.1, 64), st.integers(1, 8))
def test_it_is_monotone_in_rates_cost_cores_and_hosts(
    rate_mbps: int, times: float, cores: float, hosts: int
) -> None:
    unit = {"kind": "gpu", "hosts": hosts}
    least = scale_of([unit], host_rate_mbps=rate_mbps, cores=cores)
    assert scale_of([unit], host_rate_mbps=rate_mbps * times, cores=cores) >= least
    assert scale_of([unit], host_rate_mbps=rate_mbps, cores=cores, frame_us=FRAME_US * times) >= least
    assert scale_of([unit], host_rate_mbps=rate_mbps, cores=cores * times) <= least
    assert scale_of([{**unit, "hosts": hosts + 1}], host_rate_mbps=rate_mbps, cores=cores) >= least


def test_links_between_switches_count_up_to_what_hosts_send() -> None:
    alone = cores_needed(topology([UNIT, UNIT], optical_rate_mbps="unshaped"), FRAME_US)
    for rate_mbps, share in ((10_000, 2 * 10 / 160), (40_000, 2 * 40 / 160), (4_000_000, 1.0)):
        joined = cores_needed(topology([UNIT, UNIT], optical_rate_mbps=rate_mbps), FRAME_US)
        assert joined == pytest.approx(alone * (1 + share / 2))
    core = cores_needed(topology([UNIT, UNIT], optical_rate_mbps="unshaped", core={}), FRAME_US)
    assert core == pytest.approx(alone * (1 + 0.25 / 2))
    pod = {"kind": "gpu", "racks": 2, "hosts": 2}
    assert cores_needed(topology([pod], pod_rate_mbps=80_000), FRAME_US) == pytest.approx(alone / 2 * 1.5)


def test_a_bmv2_unit_is_so_much_slower() -> None:
    xdp, bmv2 = (cores_needed(topology([{**UNIT, "engine": engine}]), FRAME_US) for engine in ("xdp", "bmv2"))
    assert bmv2 == pytest.approx(DATA_PLANES["bmv2"].frame_times * xdp)
    assert bmv2 > 10 * xdp


def test_larger_frames_are_fewer() -> None:
    assert scale_of(mtu=9000) < scale_of(mtu=3476) < scale_of()


def test_unshaped_links_have_no_rate_to_divide() -> None:
    choice = auto_scale(topology(host_rate_mbps="unshaped"), FRAME_US, CORES)
    assert (choice.scale, choice.frames_per_s) == (1, 0)
    assert in_words(choice, CORES, "") == "scale 1: no host's link has a rate"
    half = scale_of(links={"u1h1": "unshaped", "u1h2": "unshaped"})
    assert half == two_digits_up(scale_of() / 2)


def test_no_link_gets_a_rate_that_cannot_be_emulated() -> None:
    slow = auto_scale(topology(links={"u1h1": 100}), FRAME_US, CORES)
    assert slow.scale == 100
    assert in_words(slow, CORES, "measured now") == (
        "scale 100: these cores keep up at 540, but the slowest link has 1 Mb/s (measured now)"
    )
    assert scale_of(host_rate_mbps=4e6, cores=1e9) == 200, "at 20000 Mb/s"
    with pytest.raises(RequestError, match=r"^scale: auto; links of 1 and 40000 Mb/s are declared"):
        scale_of(links={"u1h1": 1})


def test_all_ready_configurations_get_a_scale() -> None:
    for name in READY:
        chosen, choice = with_scale(ready(name, AtUp("auto")), FRAME_US, CORES)
        assert chosen == replace(ready(name), scale=choice.scale)
        assert parse(words(chosen), name) == chosen, "the number, by which it can be had elsewhere"


def test_only_a_command_that_brings_it_up_may_leave_it_to_the_machine(tmp_path: Path) -> None:
    said = {"units": [UNIT], "scale": "auto"}
    line = r"scale: auto; only `testbed up` measures it; a whole number is accepted here, such as the one"
    with pytest.raises(RequestError, match=line):
        parse(said, "test")
    file = tmp_path / "mine.yaml"
    file.write_text("units: [{hosts: 2}]\nscale: auto\n")
    with pytest.raises(RequestError, match=line):
        load(file)
    assert load(file, AtUp()).scale == find(str(file), AtUp()).scale == AUTO_SCALE
    assert find(str(file), AtUp(300)).scale == find("default", AtUp(300)).scale == 300
    assert words(load(file, AtUp()))["scale"] == "auto"


@pytest.mark.parametrize("scale", [0, -1, 100_001, 1.5, True, "fast", "AUTO", None])
def test_other_scales_are_refused(scale: object) -> None:
    line = r"^scale: .+; a whole number from 1 to 100000 or the word auto is accepted$"
    with pytest.raises(RequestError, match=line):
        parse({"units": [UNIT], "scale": scale}, "test", at_up=AtUp())
