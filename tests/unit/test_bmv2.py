"""The engine bmv2 without a switch: which program is loaded, how it is started, how its tables' entries are
written.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from testbed.aggregation.entries import Entry
from testbed.dataplanes.bmv2 import process, program
from testbed.dataplanes.bmv2.compile import COMPILED, Systems, sources_hash
from testbed.dataplanes.bmv2.routes import mac_number
from testbed.dataplanes.bmv2.switch import entry_data
from testbed.dataplanes.bmv2.switch_client import Action, Key, SwitchClient, _port_map
from testbed.errors import HostError, RequestError, TestbedError
from testbed.topology.model import BMV2_LAYOUTS
from testbed.wire.places import P4_ENTRY, Program, Role
from testbed.wire.render_p4 import P4_LAYOUTS


def test_the_program_for_the_usual_mtu_is_there() -> None:
    for names in (None, []):
        made = program.compiled("wide", 1500, names)
        assert made.parent == COMPILED
        assert made.is_file()
    assert program.programs_of(made) == ["sum"]
    assert program.programs_of(program.compiled("wide", 1500)) == ["sum", "blocks", "owned"]


def test_a_topology_may_name_the_layouts_that_there_are() -> None:
    assert set(BMV2_LAYOUTS) == set(P4_LAYOUTS)


def test_a_program_that_is_not_kept_is_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[tuple[str, list[str], int]] = []

    def compile_program(layout: str, systems: Systems, lanes: int) -> str:
        compiled.append((layout, [each.name for each in systems], lanes))
        return json.dumps({"__meta__": {"sources": sources_hash(layout, systems, lanes)}})

    monkeypatch.setattr(program, "compile_program", compile_program)
    monkeypatch.setattr(program, "compiler", lambda: "/p4c")
    monkeypatch.setattr(program, "cache_folder", lambda: tmp_path)
    made = [program.compiled("registers", 1500, ["owned"]) for _ in range(2)]
    assert made[0] == made[1]
    assert made[0].parent.parent == tmp_path / "p4"
    assert made[0].name == "registers-sum-owned-360.json"
    assert compiled == [("registers", ["owned"], 360)]
    made[0].write_text(json.dumps({"__meta__": {"sources": "of other sources"}}))
    program.compiled("registers", 1500, ["owned"])
    assert len(compiled) == 2
    assert program.lanes_of(made[0]) == 360
    (tmp_path / "p4").chmod(0o777)
    with pytest.raises(HostError, match="is another's, or others may write there: remove it"):
        program.compiled("registers", 1500, ["owned"])


def test_without_a_compiler_a_program_that_is_not_kept_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program, "cache_folder", lambda: tmp_path)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(HostError) as raised:
        program.compiled("registers", 1500)
    assert str(raised.value) == (
        "bmv2: registers-sum-blocks-owned-360.json is not kept in p4/compiled, and there is no p4c to "
        "compile it; run sudo make p4-tools, or take layout wide, an mtu of 1500 or 3476 or 9000, and "
        "programs all or none"
    )
    with pytest.raises(RequestError, match=r"^bmv2.layout: 'tall'; accepted are wide, registers$"):
        program.compiled("tall", 1500)


def _fake_switch(folder: Path, script: str) -> None:
    path = folder / "simple_switch"
    path.write_text(script)
    path.chmod(0o755)


@pytest.mark.parametrize("verbose", [False, True])
@pytest.mark.parametrize("options", ["--notifications-addr arg", "--thrift-port arg"])
def test_the_command_line(
    verbose: bool, options: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _fake_switch(tmp_path, f"#!/bin/sh\necho '{options}'\n")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    argv = process._arguments(3, {"u3-h1": 1, "u3-o1": 201}, Path("/p/wide-360.json"), Path("/log"), verbose)
    assert argv[:9] == [
        *(str(tmp_path / "simple_switch"), "-i", "1@u3-h1", "-i", "201@u3-o1"),
        *("--thrift-port", "9093", "--device-id", "3"),
    ]
    assert argv[-1] == "/p/wide-360.json"
    assert ("inproc://notifications" in argv) == options.startswith("--notifications")
    assert ("off" in argv) != verbose
    assert ("/log/u3-bmv2-packets" in argv) == verbose


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("#!/bin/sh\nexec sleep 60\n", "no answer within 0.2 s"),
        ("#!/no/such/shell\n", "No such file or directory"),
    ],
)
def test_help_that_does_not_come_is_one_line(
    script: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _fake_switch(tmp_path, script)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(process, "HELP_S", 0.2)
    with pytest.raises(TestbedError) as raised:
        process._arguments(1, {}, Path("/p"), Path("/log"), False)
    assert str(raised.value) == f"{tmp_path}/simple_switch --help: {said}"


def test_without_simple_switch_the_command_that_gets_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(HostError, match=r"simple_switch .* is not installed.*sudo make p4-tools"):
        process.binary()


def test_keys_and_actions_as_they_are_sent() -> None:
    (port,) = Key(201, 9).packed()
    assert port.exact.key == b"\x00\xc9"
    (route,) = Key(0x0A000200, 32, 24).packed()
    assert (route.lpm.key, route.lpm.prefix_length) == (b"\x0a\x00\x02\x00", 24)
    (station,) = Key(mac_number("02:00:0a:00:01:01"), 48).packed()
    assert station.exact.key == bytes.fromhex("02000a000101")
    assert Action("set_entry", (0, 255, 256, 2**64 - 1)).packed() == [b"\0", b"\xff", b"\x01\0", b"\xff" * 8]
    assert _port_map({1, 3, 201})[-4:] == "1010"
    assert len(_port_map({201})) == 202
    assert _port_map(()) == "0"


def test_an_entry_in_the_order_of_the_programs_parameters() -> None:
    loaded = json.loads(program.compiled("wide", 1500).read_text())
    (action,) = (action for action in loaded["actions"] if action["name"] == "set_entry")
    names = [parameter["name"] for parameter in action["runtime_data"]]
    widths = [parameter["bitwidth"] for parameter in action["runtime_data"]]
    assert [(field.name, field.bits) for field in P4_ENTRY] == list(zip(names, widths, strict=True))
    entry = Entry(1, 2, 3, 4, 5, 6, 7, 8, 9, "0.0.0.10", "0.0.0.11", "0.0.0.12", 13)
    data = dict(zip(names, entry_data(entry, 14, 15, {"record": 16}), strict=True))
    assert data == {
        **{"generation": 2, "workers": 3, "places": 4, "number": 5, "base": 6, "size": 7, "up_base": 8},
        **{
            "result_base": 9,
            "self_ip": 10,
            "up_ip": 11,
            "group_ip": 12,
            "lanes": 13,
            "group": 14,
            "ways": 15,
            "record": 16,
        },
        "role": Role.INNER,
        "program": Program.SUM,
    }


def test_a_switch_that_is_not_there_is_one_line() -> None:
    with pytest.raises(TestbedError, match=r"^u250's simple_switch: uptime: .*9340") as raised:
        SwitchClient(250).uptime_us()
    assert "\n" not in str(raised.value)
