"""The contract: rendered files are fresh, say nothing twice, and mean the same to C and to NumPy."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scripts import render
from testbed.systems.luwu import contract as owned
from testbed.systems.trio import contract as blocks
from testbed.wire import codec, endpoint, links, places, records, rings, spec, verdicts
from testbed.wire.records import Record
from testbed.wire.rendered_note import note
from workloads.luwu import contract as ends

RENDERED = render.rendered()
LANES, CELL_BYTES = 854, 1514
RECORDS = (
    *places.RECORDS,
    rings.RESULT,
    rings.WAKE,
    *links.FAULT_RECORDS,
    *links.MARK_RECORDS,
    *endpoint.RECORDS,
    *blocks.RECORDS,
    *owned.RECORDS,
    *ends.RECORDS,
)
# What gives a name its meaning, in C and in P4. A name that is only used does not match.
_DEFINITIONS = re.compile(
    r"^[ \t]*#[ \t]*define[ \t]+(\w+)"
    r"|^[ \t]*const[ \t]+bit<\d+>[ \t]+(\w+)[ \t]*="
    r"|^[ \t]*(?:enum|struct|header)[ \t]+(\w+)[ \t]*\{"
    r"|\baction[ \t]+(\w+)\("
    r"|^[ \t]+([A-Z][A-Z0-9_]*)[ \t]*(?:=[^=;]*)?,",
    re.MULTILINE,
)


def test_rendered_files_are_fresh() -> None:
    assert render.stale() == [], "run `make wire`"


# a parameter of bpf/ring.h, and actions of P4's controls, of which each has its own
OF_A_PLACE = {"RESULT_LANES", "keep", "add"}


def sources() -> Iterator[Path]:
    """C, P4 and Lua, written by hand or rendered."""
    for folder in ("bpf", "bpf/systems", "p4", "p4/systems", "workloads/native", "wireshark"):
        yield from (
            path
            for path in (render.ROOT / folder).iterdir()
            if path.suffix in (".c", ".h", ".hpp", ".p4", ".lua")
        )


def test_a_rendered_file_says_so_and_no_other_does() -> None:
    mark, command = note("").partition(" ")[0] + " from ", note("").partition(".py")[2]
    texts = {path: path.read_text() for path in sources()}
    assert {path for path, text in texts.items() if mark in text and command in text} == set(RENDERED)


def defined(text: str) -> set[str]:
    return {name for groups in _DEFINITIONS.findall(text) for name in groups if name}


@pytest.mark.parametrize(
    ("suffixes", "known"),
    [
        (
            (".c", ".h"),
            {"V_CORRUPT", "ROLE_TOP", "wire_header", "result", "stage", "settings", "EVENT_DONE"},
        ),
        ((".p4",), {"V_CORRUPT", "ROLE_TOP", "wire_h", "entry_t", "set_entry", "SLOTS"}),
    ],
)
def test_what_the_contract_says_is_said_nowhere_else(suffixes: tuple[str, ...], known: set[str]) -> None:
    files = [path for path in sources() if path.suffix in suffixes]
    ours = {name for path in files if path in RENDERED for name in defined(RENDERED[path])}
    assert known <= ours
    again = {
        f"{path.relative_to(render.ROOT)}: {name}"
        for path in files
        if path not in RENDERED
        for name in defined(path.read_text()) & ours - OF_A_PLACE
    }
    assert not again


@pytest.mark.parametrize(
    "line",
    [
        "#define V_CORRUPT 3",
        "const bit<8> SLOT_FINAL = 3;",
        "struct wake {",
        "enum event {",
        "\tV_CORRUPT, /* counted */",
        "\tV_CORRUPT = 3,",
        '    @name(".set_entry") action set_entry(bit<64> workers,',
    ],
)
def test_a_second_statement_is_found(line: str) -> None:
    assert defined(f"/* a file */\n{line}\n")


@pytest.mark.parametrize(
    "line",
    ["\tif (entry->role == ROLE_TOP)", "\treturn counted(V_BAD_JOB, XDP_DROP);", "\tstruct wake *wake;"],
)
def test_a_use_is_no_statement(line: str) -> None:
    assert not defined(f"{line}\n")


def test_no_number_of_the_contract_stands_bare() -> None:
    """Those that cannot be another number by chance."""
    numbers = [spec.MAGIC, spec.UDP_PORT, spec.PROBE_ETHERTYPE, endpoint.CHECK_FACTOR]
    bare = re.compile(
        r"\b(" + "|".join(f"{number}|{number:#x}" for number in numbers) + r")(?:ULL)?\b", re.IGNORECASE
    )
    numbers_by_path = {path: bare.findall(path.read_text()) for path in sources() if path not in RENDERED}
    assert not {path: matches for path, matches in numbers_by_path.items() if matches}


def test_a_c_compiler_lays_records_out_as_numpy_does(tmp_path: Path) -> None:
    includes = (
        f'#define WIRE_LANES {LANES}\n#define CELL_BYTES {CELL_BYTES}\n'
        '#include <stddef.h>\n#include <stdio.h>\n#include <linux/types.h>\n'
        '#include "bpf/wire.h"\n#include "bpf/verdicts.h"\n#include "bpf/places.h"\n#include "bpf/ring.h"\n'
        '#include "bpf/link_faults.h"\n#include "bpf/link_marks.h"\n#include "bpf/link_delay.h"\n'
        '#include "bpf/link_apart.h"\n#include "workloads/native/wire.h"\n'
        '#include "bpf/systems/blocks_contract.h"\n#include "bpf/systems/owned_contract.h"\n'
        '#include "workloads/native/ends_contract.h"\n'
    )  # fmt: skip
    lines = [
        f'printf("{record.name} {member.name} %zu\\n", offsetof(struct {record.name}, {member.name}));'
        for record in RECORDS
        for member in record.members
    ]
    lines += [f'printf("{record.name} . %zu\\n", sizeof(struct {record.name}));' for record in RECORDS]
    lines.append('printf("wire_header . %zu\\n", sizeof(struct wire_header));')
    (tmp_path / "layout.c").write_text(
        includes + "int main(void)\n{\n" + "\n".join(lines) + "\nreturn 0;\n}\n"
    )
    argv = ["cc", "-Wall", "-Werror", "-I", str(render.ROOT), "-o", "layout", "layout.c"]
    subprocess.run(argv, cwd=tmp_path, check=True, timeout=60)
    ended = subprocess.run([tmp_path / "layout"], capture_output=True, text=True, check=True, timeout=60)
    said = {(record, member): int(at) for record, member, at in map(str.split, ended.stdout.splitlines())}
    assert said.pop(("wire_header", ".")) == spec.HEADER_BYTES
    assert said == {place: at for record in RECORDS for place, at in _laid_out(record).items()}


@pytest.mark.parametrize(
    "header", [path for path in RENDERED if path.suffix == ".h"], ids=lambda path: path.name
)
def test_a_header_needs_no_other_but_the_packets(header: Path, tmp_path: Path) -> None:
    """Nor what a loader tells another program's."""
    text = '#include <linux/types.h>\n#include "bpf/wire.h"\n'
    if header.name == "link_faults.h":
        text += f"#define CELL_BYTES {CELL_BYTES}\n"
    (tmp_path / "alone.c").write_text(f'{text}#include "{header.relative_to(render.ROOT)}"\n')
    argv = ["cc", "-Wall", "-Werror", "-I", str(render.ROOT), "-c", "alone.c"]
    subprocess.run(argv, cwd=tmp_path, check=True, timeout=60)


def _laid_out(record: Record) -> dict[tuple[str, str], int]:
    kind = record.dtype(LANES, CELL_BYTES=CELL_BYTES)
    assert kind.fields is not None
    # `cell` alone is no multiple of its widest member: the compiler rounds it up
    size = -(-kind.itemsize // 8) * 8 if record is links.CELL else kind.itemsize
    return {**{(record.name, name): spot[1] for name, spot in kind.fields.items()}, (record.name, "."): size}


def test_an_offset_is_numpys() -> None:
    fields = places.ENTRY.dtype().fields
    assert fields is not None
    assert {name: places.ENTRY.offset(name) for name in fields} == {
        name: spot[1] for name, spot in fields.items()
    }


def test_one_line_adds_an_operation(tmp_path: Path) -> None:
    """Add a line to the table in operations.py; C, P4, Lua, scapy and codec then know the operation, and that
    it has no lanes.
    """
    for source in ("errors.py", "__init__.py", "wire"):
        (tmp_path / "testbed").mkdir(exist_ok=True)
        at = render.ROOT / "testbed" / source
        (shutil.copytree if at.is_dir() else shutil.copyfile)(at, tmp_path / "testbed" / source)
    (tmp_path / "scripts").mkdir()
    shutil.copyfile(render.ROOT / "scripts" / "render.py", tmp_path / "scripts" / "render.py")
    (tmp_path / "testbed" / "systems").mkdir()  # no system has a contract here
    for folder in ("bpf", "bpf/systems", "p4", "p4/systems", "workloads/native", "wireshark"):
        (tmp_path / folder).mkdir(parents=True)
    table = tmp_path / "testbed" / "wire" / "operations.py"
    entry = '    POKE = 13, Body.NONE, "into a place: look at this slot"\n'
    text, entries = re.subn(r"(\n    GRADIENT_BEAT = .*\n)", rf"\1{entry}", table.read_text())
    assert entries == 1
    table.write_text(text)
    check = (
        "from scripts import render; render.main([])\n"
        "from testbed.wire.codec import Header\n"
        "from testbed.wire.frame import NO_LANES, Frame\n"
        "poke = Frame(Header(13, 1, 2, 3, 4, 5, 6, 0), NO_LANES, '10.0.1.1', '10.0.1.254').pack()\n"
        "from testbed.wire.scapy_layer import GradientPacket\n"
        "from scapy.layers.l2 import Ether\n"
        "print(len(Frame.parse(poke).lanes), Ether(poke)[GradientPacket].sprintf('%op%'))\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", check], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60
    )
    assert ended.stdout == "0 POKE\n"
    c, p4, lua = (
        (tmp_path / name).read_text() for name in ("bpf/wire.h", "p4/wire.p4", "wireshark/optinc.lua")
    )
    assert "#define WIRE_OP_POKE 13" in c
    assert "const bit<8> WIRE_OP_POKE = 13;" in p4
    assert '[13] = "POKE"' in lua
    assert "#define WIRE_IS_OP(op) ((op) >= WIRE_OP_PUSH && (op) <= WIRE_OP_POKE)" in c
    assert "(op) != WIRE_OP_GRADIENT_BEAT && (op) != WIRE_OP_POKE)" in " ".join(c.replace("\\", "").split())
    assert (
        "(((op) >= WIRE_OP_PUSH && (op) <= WIRE_OP_TICK) || ((op) >= WIRE_OP_SUM && (op) <= WIRE_OP_POKE))"
        in p4
    )  # which does not know EMPTY
    assert "(op) != WIRE_OP_GRADIENT_BEAT && (op) != WIRE_OP_POKE)" in p4


def test_a_verdict_has_one_number_in_every_data_plane() -> None:
    xdp, p4 = (verdicts.names(engine) for engine in verdicts.Engine)
    assert {number: xdp[number] for number in xdp.keys() & p4.keys()} == {
        number: p4[number] for number in xdp.keys() & p4.keys()
    }
    assert sorted(xdp.keys() | p4.keys()) == list(range(len(verdicts.Verdict)))
    assert {"forwarded", "switched", "unroutable", "aggregated", "completed", "corrupt"} <= set(p4.values())
    assert {"to_ovs", "lit", "pulled", "lock_busy"} <= set(xdp.values())


def test_a_slot_that_is_complete_is_what_the_jobs_role_says() -> None:
    """p4/slot.p4 puts the role's number into the slot's state."""
    for role, state in (("INNER", "PARTIAL"), ("TOP", "FINAL")):
        assert int(places.Role[role]) == int(places.SlotState[state])


def test_a_packet_fills_an_ethernet_frame() -> None:
    assert spec.FRAME_HEADERS_BYTES + spec.PAYLOAD_BYTES == 1514
    assert codec.PACKET_DTYPE.itemsize == spec.PAYLOAD_BYTES


@given(
    st.fixed_dictionaries(
        {f.name: st.integers(0, 2**f.bits - 1) for f in spec.HEADER if f.name not in ("magic", "version")}
    )
)
def test_header_round_trips_and_agrees_with_the_array_form(values: dict[str, int]) -> None:
    header = codec.Header(**values)
    assert codec.Header.unpack(header.pack()) == header
    array = np.frombuffer(header.pack() + bytes(4 * spec.LANES), codec.PACKET_DTYPE)[0]
    assert {name: int(array[name]) for name in values} == values


@pytest.mark.parametrize(("data", "said"), [(b"", "0 bytes"), (b"\0" * 32, "magic 0x0")])
def test_what_is_no_header_is_refused(data: bytes, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        codec.Header.unpack(data)


def test_bias_has_room_for_every_worker() -> None:
    for workers in range(1, spec.MAX_WORKERS + 1):
        assert workers * (2 * spec.bias(workers) - 1) < 2**32


def test_a_record_is_filled_by_the_names_of_its_members() -> None:
    record = records.filled(places.PORT.dtype(), kind=2, number=7)
    assert (record["kind"], record["number"], record["job"]) == (2, 7, 0)
    with pytest.raises(ValueError, match="no field of name none"):
        records.filled(places.PORT.dtype(), none=1)
