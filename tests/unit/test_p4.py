"""The compiled P4 programs: of the sources as they are now, told by a hash, and by compiling them again where
there is a compiler.
"""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from testbed.dataplanes.bmv2 import compile as p4_compile
from testbed.dataplanes.bmv2.compile import COMPILED, KEPT_MTUS, systems_named, target
from testbed.errors import HostError, RequestError, TestbedError
from testbed.systems.luwu.contract import P4_OWNED_RECORDS
from testbed.systems.trio.contract import P4_JOB_RECORDS, P4_RECORDS, P4_SOURCES, Space
from testbed.wire import spec
from testbed.wire.places import SLOTS
from testbed.wire.render_p4 import p4_lanes
from tests.p4_ways import apart, registers, ways

NAMES = [each.name for each in systems_named(None)]
KEPT = [
    pytest.param(names, spec.lanes_for(mtu), id=f"{'-'.join(('sum', *names))}-{spec.lanes_for(mtu)}")
    for names in ([], NAMES)
    for mtu in KEPT_MTUS
]


def kept(names: list[str], lanes: int) -> Path:
    return target("wide", systems_named(names), lanes)


def program(names: list[str], lanes: int) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(kept(names, lanes).read_text())
    return loaded


@pytest.mark.parametrize(("names", "lanes"), KEPT)
def test_a_compiled_program_is_of_the_sources_as_they_are(names: list[str], lanes: int) -> None:
    recorded = p4_compile.recorded_hash(kept(names, lanes))
    assert recorded == p4_compile.sources_hash("wide", systems_named(names), lanes), (
        "stale: run python -m testbed.dataplanes.bmv2.compile"
    )


def test_nothing_else_is_kept() -> None:
    assert set(COMPILED.iterdir()) == {kept(*each.values) for each in KEPT}  # type: ignore[arg-type]


@pytest.mark.needs("p4c")
@pytest.mark.parametrize(("names", "lanes"), KEPT)
def test_the_compiler_makes_the_same_of_them(names: list[str], lanes: int) -> None:
    made = json.loads(p4_compile.compile_program("wide", systems_named(names), lanes))
    before = program(names, lanes)
    if made["__meta__"]["compiled_by"] == before["__meta__"]["compiled_by"]:
        assert made == before, "stale: run python -m testbed.dataplanes.bmv2.compile"
    # another compiler may number and cut otherwise; what the control plane and the packets see is the same
    else:
        assert _seen(made) == _seen(before)


def _seen(loaded: dict[str, Any]) -> dict[str, Any]:
    headers = {
        kind["name"]: kind["fields"]
        for kind in loaded["header_types"]
        if not kind["name"].startswith("scalars")
    }
    tables = {
        table["name"]: (table["key"], sorted(table["actions"]))
        for pipeline in loaded["pipelines"]
        for table in pipeline["tables"]
        if table["key"]
    }
    registers = {array["name"]: (array["bitwidth"], array["size"]) for array in loaded["register_arrays"]}
    return {"headers": headers, "tables": tables, "registers": registers}


def test_a_changed_source_is_told_without_a_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in p4_compile.SOURCES.rglob("*.p4"):
        copied = tmp_path / path.relative_to(p4_compile.SOURCES)
        copied.parent.mkdir(exist_ok=True)
        copied.write_text(path.read_text())
    monkeypatch.setattr(p4_compile, "SOURCES", tmp_path)

    def hashes() -> list[str]:
        return [
            p4_compile.sources_hash("wide", systems_named(names), spec.LANES)
            for names in ([], ["owned"], NAMES)
        ]

    before = hashes()
    changed = tmp_path / "slot.p4"
    changed.write_text(changed.read_text().replace("// Each contributor counts once.", "// Once."))
    assert hashes() == before, "words of a comment are none of the program"
    changed.write_text(changed.read_text().replace("== meta.entry.workers", ">= meta.entry.workers"))
    assert [new == old for new, old in zip(hashes(), before, strict=True)] == [False] * 3
    before = hashes()
    changed = tmp_path / "systems" / "terms.p4"  # which a program includes
    changed.write_text(changed.read_text().replace("#define BLOCKS 2048", "#define BLOCKS 1024"))
    assert [new == old for new, old in zip(hashes(), before, strict=True)] == [True, True, False]


def test_a_program_that_there_is_not_is_refused() -> None:
    with pytest.raises(RequestError, match=r"^bmv2\.programs: vote; accepted are blocks, owned$"):
        systems_named(["owned", "vote"])


def test_no_compiler_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(HostError, match="neither p4c-bm2-ss nor p4c is on PATH; run sudo make p4-tools"):
        p4_compile.compile_program("wide", (), spec.LANES)


def test_a_compiler_that_does_not_end_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = tmp_path / "p4c-bm2-ss"
    compiler.write_text("#!/bin/sh\nexec sleep 60\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(p4_compile, "_TIMEOUT_S", 0.2)
    with pytest.raises(TestbedError, match=f"^compile p4/: {compiler} did not end within 0.2 s$"):
        p4_compile.compile_program("wide", (), spec.LANES)


@pytest.mark.parametrize(("layout", "widths"), [("wide", [2048] * 5 + [1280]), ("registers", [32] * 360)])
def test_lanes_are_cut_into_registers(layout: str, widths: list[int]) -> None:
    text = p4_lanes(layout, 360)
    assert [int(width) for width in re.findall(r"^    bit<(\d+)> l\d+;", text, re.MULTILINE)] == widths
    assert [int(width) for width in re.findall(r"register<bit<(\d+)>>", text)] == widths


def test_an_unknown_layout_is_refused() -> None:
    with pytest.raises(ValueError, match="'narrow'; wide, registers are accepted"):
        p4_lanes("narrow", 360)


def test_as_many_slots_as_the_control_plane_thinks() -> None:
    sizes = {array["name"]: array["size"] for array in program(NAMES, 360)["register_arrays"]}
    others = {name: size for name, size in sizes.items() if not name.startswith(("block_", "owned_"))}
    assert set(others.values()) == {SLOTS + P4_RECORDS}
    assert {
        name.removeprefix("owned_"): size for name, size in sizes.items() if name.startswith("owned_")
    } == {
        "heard": P4_OWNED_RECORDS,
        "sent_ack": P4_OWNED_RECORDS,
        "sent_credit": P4_OWNED_RECORDS,
        "acks": P4_OWNED_RECORDS * spec.MAX_WORKERS,
        "credits": P4_OWNED_RECORDS * spec.MAX_WORKERS,
    }
    assert {
        name.removeprefix("block_"): size for name, size in sizes.items() if name.startswith("block_")
    } == {
        "marks": P4_RECORDS,
        "floor": P4_JOB_RECORDS * len(Space),
        "reached": P4_JOB_RECORDS * len(Space) * P4_SOURCES,
        "active": P4_JOB_RECORDS,
        "made": P4_JOB_RECORDS,
        "missed": P4_JOB_RECORDS * P4_SOURCES,
    }


@pytest.mark.parametrize("lanes", [spec.lanes_for(mtu) for mtu in KEPT_MTUS])
@pytest.mark.parametrize("names", [NAMES, []])
def test_what_a_switch_of_stages_could_not_do(names: list[str], lanes: int) -> None:
    """Each way of a packet touches every array at most once, as a stage can, but for those that docs/p4.md
    names.
    """
    loaded = program(names, lanes)
    # ask up to 64 members: their ways are too many, and are looked at by action
    beats = "tbl_by_program_owned_heard"
    actions = {action["id"]: action for action in loaded["actions"]}
    touched = Counter(
        array
        for table in loaded["pipelines"][0]["tables"]
        if table["name"].startswith(beats)
        for array in registers(actions[table["default_entry"]["action_id"]])
    )
    by_owner = {array for array, times in touched.items() if times > 1}
    assert by_owner == ({"owned_acks", "owned_credits"} if names else set())
    all_ways = ways(loaded, until=beats)
    gone = [way for way in all_ways if not any(array.startswith("block_") for _, array in way)]
    assert frozenset().union(*map(apart, gone)) == {"slot_state", "slot_generation", "slot_fragment"}
    by_blocks = frozenset().union(*map(apart, all_ways - set(gone)))
    of_blocks = {f"block_{name}" for name in ("active", "floor", "marks", "missed", "reached")}
    assert by_blocks == ({"slot_state", "slot_generation", "slot_fragment"} | of_blocks if names else set())
    sums = {array["name"] for array in loaded["register_arrays"] if array["name"].startswith("lanes_")}
    by_lane = {tuple(kind for kind, array in way if array == f"lanes_{len(sums) - 1}") for way in gone}
    assert by_lane == {(), ("read",), ("read", "write"), ("write",)}


def test_registers_that_are_touched_twice_are_found() -> None:
    read, write, other = ("read", "a"), ("write", "a"), ("read", "b")
    assert apart((read, write, other)) == apart((read, other)) == frozenset()
    assert (
        apart((read, other, write))
        == apart((write, read))
        == apart((read, read))
        == apart((read, write, read))
        == {"a"}
    )
    loaded = program(NAMES, 360)
    keep = next(action for action in loaded["actions"] if action["name"] == "Aggregate.lanes.keep")
    keep["primitives"].append(keep["primitives"][0])
    assert "lanes_0" in frozenset().union(*map(apart, ways(loaded, until="tbl_by_program_owned_heard")))
