"""Messages: no field of any type is lost on its way, and what `--json` prints is what docs/schemas say."""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import pkgutil
import threading
import types
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

import jsonschema
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import UNSET, UnsetType

from testbed import documents, messages
from testbed.api import handle
from testbed.api.state import status
from testbed.client import rpc
from testbed.client.main_facts import MainState
from testbed.client.terminal_text import lines
from testbed.errors import TestbedError
from testbed.messages import schema
from testbed.messages.coding import as_json, decode, encoded, plain
from testbed.messages.events import KINDS, Event, event_of
from testbed.messages.jobs import WrittenCounts
from testbed.messages.links import LinkStatus
from testbed.messages.queue import QueueStatus
from testbed.messages.result import OthersTraffic, RepeatedRuns, RunResult
from testbed.messages.script import ScriptResult
from testbed.messages.status import DeadStatus, SilentStatus, Status, UnwrittenStatus
from testbed.messages.submission import SubmissionResult
from testbed.messages.traffic import TrafficResult
from testbed.plugins.counts import counts_types
from testbed.status import page
from testbed.systems.trio.counts import BlocksStatus
from tests.unit import page_world, results

MODULES = [
    *(
        importlib.import_module(f"testbed.messages.{info.name}")
        for info in pkgutil.iter_modules(messages.__path__)
    ),
    *(importlib.import_module(kind.__module__) for kind in counts_types()),
]
MESSAGES = {
    name: kind
    for module in MODULES
    for name, kind in vars(module).items()
    if dataclasses.is_dataclass(kind) and isinstance(kind, type) and kind.__module__ == module.__name__
}
DEEPEST = 2  # of a tree of places, or of jobs and what they carried
PLAIN: dict[Any, tuple[Any, ...]] = {
    int: (0, 1, -3, 100, 1 << 53),
    float: (100.0, 0.1, 1e-9, 2.0**60),
    str: ("u1h1", "größer\n", "100", ""),
    bool: (False, True),
    type(None): (None,),
    UnsetType: (UNSET,),
    Any: (["a line"], [], ["", "b"]),  # of a user's program: what is JSON
}
COUNTS = st.sampled_from((1, 2, 0))


def any_of(draw: st.DrawFn, of: Any, depth: int = 0) -> Any:
    """Draw a value of a field's type, which may be a message."""
    if of is WrittenCounts:
        return plain(any_of(draw, draw(st.sampled_from(counts_types())), depth))
    origin, inner = get_origin(of), get_args(of)
    if origin in (Union, types.UnionType):
        return any_of(draw, draw(st.sampled_from(inner)), depth)
    if origin is tuple:
        many = inner[1:] == (...,)
        kinds = inner[:1] * (draw(COUNTS) if depth < DEEPEST else 0) if many else inner
        return tuple(any_of(draw, each, depth + 1) for each in kinds)
    if origin in (dict, Mapping):
        keys = PLAIN[str][: draw(COUNTS)]
        return {key: any_of(draw, inner[1], depth) for key in keys}
    if dataclasses.is_dataclass(of):
        hints = get_type_hints(of)
        return of(**{each.name: any_of(draw, hints[each.name], depth) for each in dataclasses.fields(of)})
    if issubclass(of, StrEnum):
        return draw(st.sampled_from(of))
    return draw(st.sampled_from(PLAIN[of]))


@st.composite
def some(draw: st.DrawFn, kind: type) -> Any:
    """Draw a message of a type, with numbers that are whole and numbers that are not."""
    return any_of(draw, kind)


def copied(message: Any) -> Any:
    """Return a message that went over a socket."""
    return decode(type(message), json.loads(json.dumps(as_json(message))), "copy")


def test_there_are_messages() -> None:
    assert len(MESSAGES) >= 18
    assert {"Status", "QueuedStatus", "LitCircuits", "LinkDelta", "EndedJob", "JobVerdict"} <= MESSAGES.keys()


@pytest.mark.parametrize("kind", MESSAGES.values(), ids=MESSAGES)
def test_a_message_is_frozen_and_slotted(kind: Any) -> None:
    assert kind.__dataclass_params__.frozen
    assert "__slots__" in vars(kind)


@pytest.mark.parametrize("kind", MESSAGES.values(), ids=MESSAGES)
@given(data=st.data())
@settings(max_examples=12, deadline=None)
def test_nothing_is_lost_on_the_way(kind: type, data: st.DataObject) -> None:
    message = data.draw(some(kind))
    assert copied(message) == message
    assert json.loads(encoded(message)) == json.loads(json.dumps(as_json(message)))
    written = as_json(message)
    assert list(written) == [name for name in fields_of(kind) if name in written], "in the fields' order"
    assert json.dumps(as_json(copied(message))) == json.dumps(written), "100 stays 100, and 100.0 stays it"


@given(data=st.data())
@settings(deadline=None)
def test_an_event_is_known_by_its_fields(data: st.DataObject) -> None:
    for kind in get_args(Event):
        event = data.draw(some(kind))
        assert event_of(json.loads(json.dumps(as_json(event)))) == event
    assert {*KINDS.values()} == {*get_args(Event)}
    assert event_of({"of a later version": 1}) is None


def fields_of(kind: type) -> list[str]:
    return [field.name for field in dataclasses.fields(kind)]


@pytest.mark.parametrize("kind", MESSAGES.values(), ids=MESSAGES)
@given(data=st.data())
@settings(max_examples=12, deadline=None)
def test_a_field_that_is_not_there_is_refused(kind: type, data: st.DataObject) -> None:
    """A reader does not go on with less than the writer was to write."""
    message = data.draw(some(kind))
    needed = [
        each.name
        for each in dataclasses.fields(kind)
        if each.default is each.default_factory is dataclasses.MISSING
    ]
    name = data.draw(st.sampled_from(needed))
    less = {key: value for key, value in as_json(message).items() if key != name}
    with pytest.raises(TestbedError, match=f"missing required field `{name}`"):
        decode(kind, less, "message")


def test_numbers_that_policies_compute_are_written_as_json_writes_them() -> None:
    link = LinkStatus("u1h1", np.float64(1e21 / 3), 1, 1, 0, 0, True)
    assert json.dumps(as_json(link)["rate_mbps"]) == json.dumps(link.rate_mbps)
    with pytest.raises(TypeError, match="is nothing that JSON has"):
        as_json({"a": np.int64(1)})


def test_a_name_that_is_no_utf_8_is_written(tmp_path: Path) -> None:
    """Any process's argument may be one, and whoever asks for a status gets it beside the others."""
    wrong = os.fsdecode(b"train\xff.py\n")
    answer = page_world.read(page_world.status(user=wrong))
    assert b"\n" not in encoded(answer)

    def handler(request: Any, peer: rpc.Peer, emit: rpc.Emit, gone: threading.Event) -> bytes:
        return encoded(answer)

    with rpc.serve(tmp_path / "socket", handler):
        assert decode(Status, rpc.call(tmp_path / "socket", "status"), "status") == answer


def test_a_later_version_s_field_is_passed_over() -> None:
    link = page_world.link("u1h1")
    assert decode(LinkStatus, {**link, "colour": "red"}, "link") == decode(LinkStatus, link, "link")


NEWER: dict[str, Any] = {
    "core": None,
    "circuit_jobs": (),
    "down": (),
    "failed_locks": {},
    "timetable": None,
    "schedule": None,
    "cores_busy": None,
    "calendar": (),
    "calendar_overrun": 0,
    "kept_apart": None,
    "gone_links": {},
    "faults": (),
}
"""Keys that not all versions of the daemon wrote, and what a reader has in their place."""
NEWER_OF: dict[str, dict[str, Any]] = {
    "units": {"planes": {}, "restarts": 0, "link_rates_mbps": {}},
    "hosts": {"commands_of": (), "second_name": None, "exec": None},
    "links": {"up": True, "queued_bytes": 0},
    "jobs": {"service": None, "waiting": None, "blocks": None, "uses": None},
}


def test_an_earlier_version_s_status_is_read() -> None:
    wire = page_world.status()
    for kind, newer in NEWER_OF.items():
        wire[kind] = [{key: value for key, value in row.items() if key not in newer} for row in wire[kind]]
    wire["controller"] = {"state": "away", "restarts": 0}
    answer = page_world.read({key: value for key, value in wire.items() if key not in NEWER})
    assert {name: getattr(answer, name) for name in NEWER} == NEWER
    for kind, newer in NEWER_OF.items():
        for row in getattr(answer, kind):
            assert {name: getattr(row, name) for name in newer} == newer
    assert not answer.controller.ready
    assert page(answer).startswith("testbed made-up: ready, pid 4242, up 300 s")
    session = page_world.queue()
    del session["complaints"]
    assert decode(QueueStatus, session, "queue").complaints == ()
    assert decode(BlocksStatus, {"made": 1, "active": 0, "without": {}}, "blocks").left == ()
    defaults = {
        (name, each.name)
        for name, kind in MESSAGES.items()
        for each in dataclasses.fields(kind)
        if each.default not in (dataclasses.MISSING, UNSET) or each.default_factory is not dataclasses.MISSING
    }
    of_rows = {"units": "UnitStatus", "hosts": "HostStatus", "links": "LinkStatus", "jobs": "JobStatus"}
    tried = {(of_rows[kind], name) for kind, newer in NEWER_OF.items() for name in newer}
    tried |= {("Status", name) for name in NEWER} | {("ControllerStatus", "ready")}
    tried |= {("QueueStatus", "complaints"), ("BlocksStatus", "left")} | NEWER_OF_RESULTS
    assert defaults == tried


NEWER_OF_RESULTS = {
    ("LinkDelta", "device_drops"),
    ("LinkTelemetry", "bytes_up"),
    ("WorkerResult", "stacks"),
    ("OthersTraffic", "bytes_up"),
    ("BoundResult", "lit_share"),
    ("RunResult", "optical_losses"),
    ("RunResult", "other_traffic"),
}
"""Fields of a result that not all versions that left records wrote."""


def without_newer(data: dict[str, Any]) -> dict[str, Any]:
    """Return a job's result as the first version that left records wrote it."""
    old = {name: each for name, each in data.items() if name not in ("optical_losses", "other_traffic")}
    old["bound"] = {name: each for name, each in data["bound"].items() if name != "lit_share"}
    rows = {
        "links": (data["links"], "device_drops"),
        "workers": (data["workers"], "stacks"),
    }
    old |= {kind: [without(row, name) for row in each] for kind, (each, name) in rows.items()}
    links = [without(link, "bytes_up") for link in data["telemetry"]["links"]]
    events = [without(each, "circuits_ms", "failed_locks") for each in data["ocs"]["events"]]
    return {**old, "telemetry": {**data["telemetry"], "links": links}, "ocs": {"events": events}}


def without(row: dict[str, Any], *names: str) -> dict[str, Any]:
    return {name: each for name, each in row.items() if name not in names}


def test_an_earlier_version_s_result_is_read() -> None:
    telemetry = {**results.TELEMETRY, "links": [results.of_link("u1h1", 0.5)]}
    whole = results.result(telemetry=telemetry, ocs={"events": [results.event(3)]})
    read = decode(RunResult, without_newer(whole), "result")
    assert (read.optical_losses, read.other_traffic) == ({}, ())
    assert read.bound is not None
    assert (read.bound.lit_share, read.workers[0].stacks, read.links[0].device_drops) == (1.0, None, 0)
    assert read.telemetry.links[0].bytes_up == 0
    assert [(event.id, event.circuits_ms) for event in read.events] == [(3, UNSET)]
    assert decode(OthersTraffic, {"link": "u1h1", "protocol": 17, "port": 9, "bytes": 5}, "row").bytes_up == 0


RELIT = results.event(5, added=[], relit=[["u1o1", "u2o1"]])  # the end of a timetable


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        (
            RunResult,
            results.result(ocs={"events": [results.event(3), results.event(4, measured_ms=None), RELIT]}),
        ),
        (RunResult, results.result(series="AAAA", bound=None, wall_s=2)),
        (SubmissionResult, results.submission(results.queued(), results.queued(5, run=None), lost=None)),
        (ScriptResult, results.script(results.step())),
        (TrafficResult, json.loads(json.dumps(as_json(results.traffic())))),
    ],
)
def test_a_result_is_printed_as_it_was_answered(kind: Any, data: dict[str, Any]) -> None:
    """Byte for byte: what a command reads of the daemon, it prints, and leaves in its record."""
    assert json.dumps(as_json(decode(kind, data, "result")), indent=2) == json.dumps(data, indent=2)


def test_what_a_user_s_script_leaves_of_itself_is_kept_as_it_is() -> None:
    left = {"of mine": {"größe": [1, 1.0, None, True, "\ud800", 1 << 70]}, "loss": float("nan"), "0": {}}
    text = json.dumps(results.result(workers=[results.worker(0, "u1h1", left)]))
    assert json.dumps(as_json(decode(RunResult, json.loads(text), "result"))) == text


def test_a_wrong_type_is_said_with_its_place() -> None:
    links = [page_world.link("u1h1"), {**page_world.link("u1h2"), "drops": "3"}]
    says = r"^status: not as this version has it: Expected `int`, got `str` - at `\$.links\[1\].drops`$"
    with pytest.raises(TestbedError, match=says):
        decode(Status, page_world.status(links=links), "status")


@given(some(LinkStatus))
@settings(deadline=None)
def test_a_message_is_shown_with_all_its_fields(link: LinkStatus) -> None:
    assert lines(link) == dataclasses.replace(link, name=lines(link.name))


# ---- what is printed ----


def test_the_schemas_in_the_documents_are_the_types() -> None:
    """`make schemas` writes them: a change of what `--json` prints is a change of these files."""
    assert set(schema.FOLDER.iterdir()) == {*schema.rendered(counts_types()), documents.SCHEMA}
    for path, text in schema.rendered(counts_types()).items():
        assert path.read_text() == text, f"{path.name} is stale: run `make schemas`"


def test_a_field_with_a_default_is_printed_all_the_same() -> None:
    required = schema.schema("status", counts_types())["$defs"]["Status"]["required"]
    assert sorted(required) == sorted(set(fields_of(Status)) - {"optical_model"})


def validated(printed: Any, command: str) -> None:
    checker = jsonschema.Draft202012Validator(json.loads((schema.FOLDER / f"{command}.json").read_text()))
    checker.validate(json.loads(json.dumps(printed)))


@pytest.mark.parametrize("kind", [Status, SilentStatus, UnwrittenStatus, DeadStatus])
@given(data=st.data())
@settings(max_examples=12, deadline=None)
def test_any_status_is_of_the_schema(kind: type, data: st.DataObject) -> None:
    printed = as_json(data.draw(some(kind)))
    validated(printed, "status")
    validated([printed, printed], "status")
    del printed["name"]
    with pytest.raises(jsonschema.ValidationError):
        validated(printed, "status")


@pytest.mark.parametrize(
    ("command", "kind"),
    [
        ("run", RunResult),
        ("run", RepeatedRuns),
        ("submit", SubmissionResult),
        ("script", ScriptResult),
        ("traffic", TrafficResult),
    ],
)
@given(data=st.data())
@settings(max_examples=5, deadline=None)
def test_any_result_is_of_the_schema(command: str, kind: type, data: st.DataObject) -> None:
    validated(as_json(data.draw(some(kind))), command)


def test_a_status_is_printed_as_the_daemon_wrote_it(tmp_path: Path) -> None:
    world = page_world.World(tmp_path)
    runtime = page_world.LivingRuntime("made-up", tmp_path)
    wire = page_world.status(scale=200, cores_busy=[1, 0.5])
    world.status = wire
    answer = status(runtime, world.call)
    assert json.dumps(as_json(answer), indent=2) == json.dumps(wire, indent=2)


def test_the_library_says_what_is_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists, too: a script may compare them with lists."""
    wire = page_world.status()
    monkeypatch.setattr(handle, "status", lambda runtime: page_world.read(wire))
    testbed = handle.Testbed(name="made-up")
    testbed._runtime = page_world.LivingRuntime("made-up", tmp_path)
    assert testbed.status() == wire


@pytest.mark.parametrize(
    ("written", "keys"),
    [
        (
            MainState("x", 7, "me", "rack", "ready"),
            "name pid user configuration state units hosts circuits jobs error",
        ),
        (None, "name pid units hosts circuits jobs state error"),
    ],
)
def test_a_testbed_that_does_not_answer_is_printed_by_what_it_wrote(
    written: MainState | None, keys: str, tmp_path: Path
) -> None:
    class Wrote(page_world.LivingRuntime):
        def read_main(self) -> MainState | None:
            return written

    def silent(*_: Any, **__: Any) -> Any:
        raise TestbedError("no answer in 10 s")

    printed = as_json(status(Wrote("x", tmp_path), silent))
    assert list(printed) == keys.split()
    assert printed["state"] == ("not answering" if written else "starting")
    assert (printed["error"], printed["pid"]) == ("no answer in 10 s", written and written.pid)
    validated(printed, "status")
