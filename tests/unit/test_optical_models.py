"""Optical models by name and by FILE.py:CLASS: what is found, what is refused, and how a user's is asked."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from controller.conductor import Conductor
from controller.decide import leaving
from controller.model import AskedModel, model_for
from controller.records import ChangeRecord
from controller.state import begin
from testbed.client.caller import Caller
from testbed.daemon.model_process import ModelProcess
from testbed.daemon.status import optical_model
from testbed.emulation import model_host, user_topo
from testbed.emulation.model_host import ModelHost
from testbed.emulation.user_model import settled
from testbed.errors import RequestError, TestbedError
from testbed.messages.coding import UNSET
from testbed.messages.status import OpticalModelStatus
from testbed.optics import models as package
from testbed.optics.delays import Delay
from testbed.optics.model import (
    CircuitTurn,
    DarkTime,
    DarkTimes,
    Ends,
    PastTurn,
    Settings,
)
from testbed.plugins.optical import find, in_words, model_of, models
from testbed.status import optics_text
from testbed.topology.load import load, parse
from testbed.topology.model import Topology
from testbed.topology.yaml_form import words
from tests.limits import CALL_S
from tests.processes import spawn
from tests.unit.model_switches import ModelPlane
from tests.unit.test_controller import connected

ROOT = Path(__file__).resolve().parents[2]
UNITS = [{"hosts": 1}] * 4
RING: list[Ends] = [("u1o1", "u2o1"), ("u2o2", "u3o1"), ("u3o2", "u4o1"), ("u1o2", "u4o2")]
IMPORTS = "from testbed.optics.model import *\nfrom testbed.optics.delays import Delay\n"
CONSTANT = (
    IMPORTS
    + '''
class Constant(OpticalModel):
    """As long as it is told, everywhere."""
    name, summary = "constant", "one time for all"
    parameters = (
        Parameter("dark_ms", Duration(), Delay("constant", 4.0), "how long", of_planes=True, of_ports=True),
        Parameter("share", Quantity(0, 1), 0.5, "of it that is switching"),
        Parameter("count", Whole(1, 9), 3, "of nothing"),
        Parameter("mood", Word(("calm", "wild")), "calm", "of nothing"),
        Parameter("strict", YesNo(), False, "or not"),
    )
    def dark_times(self, turn):
        def time(port, plane):
            total_ms = self.settings.of("dark_ms", port, plane).mean_ms
            return DarkTime.of_ms(total_ms * self.settings["share"], total_ms * (1 - self.settings["share"]))
        times = {}
        for circuit in turn.added:
            ends = [time(port, self.plane(circuit)) for port in circuit]
            times[circuit] = max(ends, key=lambda each: each.total_ns)
        return DarkTimes(time("", ""), times)
    def mean_ms(self, plane=""):
        return self.settings.of("dark_ms", "", plane).mean_ms
'''
)


def described(model: str, folder: Path | None = None, **ocs: Any) -> Topology:
    return parse({"units": UNITS, "ocs": {"model": model, **ocs}}, "own", folder)


@pytest.fixture
def constant(tmp_path: Path) -> str:
    (tmp_path / "constant.py").write_text(CONSTANT)
    return f"{tmp_path / 'constant.py'}:Constant"


# ---- by name ----


def test_the_models_that_lie_in_the_folder_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A further one is a file, and nothing else is edited for it."""
    assert list(models()) == ["transceivers"]
    (tmp_path / "a_planted_constant.py").write_text(CONSTANT)
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path)])
    with fresh():
        assert list(models()) == ["constant", "transceivers"]
        topology = described("constant", dark_ms=6, ports={"u2o1": {"dark_ms": 9}})
        topology = settled(topology, None, Caller.of_this_process(), os.environ)
        assert topology.ocs.mean_ms() == 6
        times = model_for(topology, None).dark_times(turn([RING[0], RING[1]]))
        assert {ends: time.total_ns for ends, time in times.circuits.items()} == {
            RING[0]: 9_000_000,
            RING[1]: 6_000_000,
        }
        with pytest.raises(RequestError, match=r"^ocs.share: 2; a number from 0 to 1 is accepted$"):
            model_of(described("constant", share=2))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("import nothing_of_this_name", "a_planted_bad: ModuleNotFoundError: No module named"),
        (
            CONSTANT.replace('summary = "constant"', 'summary = "transceivers"'),
            "'transceivers': two have this name, the second",
        ),
        (CONSTANT.replace("def mean_ms", "def mean"), "a_planted_bad:Constant has no method mean_ms"),
    ],
)
def test_a_file_of_the_folder_that_is_no_model_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, says: str
) -> None:
    (tmp_path / "a_planted_bad.py").write_text(text)
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path)])
    with fresh(), pytest.raises(TestbedError, match=says):
        models()


@contextlib.contextmanager
def fresh() -> Iterator[None]:
    """Have the folder searched now, and again by the next test."""
    models.cache_clear()
    try:
        yield
    finally:
        models.cache_clear()
        for name in [each for each in sys.modules if ".a_planted_" in each]:
            del sys.modules[name]


# ---- in a configuration ----


def test_settings_of_a_users_model_survive_json_and_words(constant: str) -> None:
    said = {
        "dark_ms": {"uniform": [2, 4]},
        "strict": True,
        "ports": {"u1o1": {"dark_ms": 7}},
        "seed": 5,
    }
    topology = described(constant, **said)
    assert Topology.from_json(topology.to_json()) == topology
    assert parse(words(topology), "own") == topology
    settings = model_of(topology).settings
    names = ("share", "count", "mood", "strict")
    assert [settings[name] for name in names] == [0.5, 3, "calm", True]
    known = settled(topology, None, Caller.of_this_process(), os.environ)
    assert known.ocs.means_ms == {"": 3.0}
    assert model_of(known).settings == settings, "read once more, they are the same"
    assert Topology.from_json(known.to_json()) == known
    assert in_words(settings) == known.ocs.settings


def test_a_default_is_what_a_file_that_says_it_has(tmp_path: Path) -> None:
    """A number for a duration is a Delay to the class, in the trial as live."""
    each = (
        "Parameter('each_ms', Duration(), 4.0, '')",
        "Parameter('share', Quantity(0, 9), 3, '')",
        "Parameter('rest_ms', Duration(), None, '')",
        "Parameter('mood', Word(['calm']), 'calm', '')",
    )
    body = "return DarkTimes(DarkTime.of_ms(self.settings['each_ms'].mean_ms * self.settings['share']))\n"
    (tmp_path / "own.py").write_text(declaring(f"({', '.join(each)})").replace(GOOD, body))
    topology = described("own.py:Own", tmp_path)
    known = settled(topology, None, Caller.of_this_process(), os.environ)
    tried, live = model_of(topology), model_of(known)
    assert tried.settings == live.settings
    assert {name: type(value) for name, value in tried.settings.values.items()} == {
        name: type(value) for name, value in live.settings.values.items()
    }
    assert tried.settings["each_ms"] == Delay("constant", 4.0)
    assert tried.dark_times(turn(RING)) == live.dark_times(turn(RING)) == DarkTimes(DarkTime.of_ms(12))


def test_a_relative_file_begins_at_the_configurations_folder(tmp_path: Path, constant: str) -> None:
    (tmp_path / "trace").write_text("3\n5\n")
    file = tmp_path / "own.yaml"
    ocs = {"model": "constant.py:Constant", "dark_ms": {"trace_ms": "trace"}}
    file.write_text(json.dumps({"units": UNITS, "ocs": ocs}))
    topology = load(file)
    assert topology.ocs.model == constant
    known = settled(topology, tmp_path, Caller.of_this_process(), os.environ)
    assert known.ocs.settings.values["dark_ms"] == {"values": [3.0, 5.0]}
    assert known.ocs.mean_ms() == 4.0


def test_planes_have_settings_of_their_own(constant: str) -> None:
    raw = {
        "units": UNITS,
        "optical_ports": {"slow": 1, "fast": 1},
        "ocs": {"model": constant, "planes": {"slow": {}, "fast": {"dark_ms": 1}}},
    }
    known = settled(parse(raw, "planes"), None, Caller.of_this_process(), os.environ)
    assert known.ocs.means_ms == {"slow": 4.0, "fast": 1.0}
    times = model_of(known).dark_times(turn([("u1o1", "u2o1"), ("u1o2", "u2o2")]))
    assert [time.total_ns for time in times.circuits.values()] == [4_000_000, 1_000_000]


@pytest.mark.parametrize(
    ("ocs", "says"),
    [
        ({"dark": 3}, "^ocs.dark: 3; unknown key; did you mean dark_ms. accepted are dark_ms, share"),
        ({"dark_ms": -1}, "^ocs.dark_ms: -1; milliseconds from 0 to 60000"),
        ({"share": "half"}, "^ocs.share: half; a number from 0 to 1 is accepted$"),
        ({"count": 10}, "^ocs.count: 10; a whole number from 1 to 9 is accepted$"),
        ({"count": True}, "^ocs.count: True; a whole number"),
        ({"mood": "sad"}, "^ocs.mood: sad; calm, wild are accepted$"),
        ({"strict": 1}, "^ocs.strict: 1; true or false is accepted$"),
        ({"ports": {"u1o1": {"share": 1}}}, "^ocs.ports.u1o1.share: 1; unknown key; .*accepted are dark_ms$"),
        ({"ports": {"u1o1": {"dark_ms": "x"}}}, "^ocs.ports.u1o1.dark_ms: x; milliseconds from 0 to"),
        ({"ports": {"u9o1": {}}}, "^ocs.ports.u9o1: .*; no such optical port, there are u1o1"),
        ({"switch_ms": 3}, "^ocs.switch_ms: 3; unknown key; .*accepted are dark_ms, share"),
        ({"ports": {"u1o1": None}}, "^ocs.ports.u1o1: None; keys and values are accepted, the keys being "),
        ({"ports": {"u1o1": 5}}, "^ocs.ports.u1o1: 5; keys and values are accepted"),
        ({"ports": {"u1o1": {1: 2}}}, "^ocs.ports.u1o1.1: 2; unknown key; accepted are the model's"),
        ({"planes": {"a": None}}, "^ocs.planes.a: None; keys and values are accepted"),
        ({"planes": {"a": [1]}}, r"^ocs.planes.a: \[1\]; keys and values are accepted"),
        ({"planes": {"a": {True: 2}}}, "^ocs.planes.a.True: 2; unknown key; accepted are the model's"),
        ({1: 2}, "^ocs.1: 2; unknown key; accepted are the model's parameters$"),
        ({"dark_ms": object()}, "^ocs: .* is not JSON serializable; numbers, texts, lists, and keys"),
    ],
)
def test_a_setting_that_the_model_does_not_take_is_one_line(
    constant: str, ocs: Mapping[Any, Any], says: str
) -> None:
    raw = {"units": UNITS, "ocs": {"model": constant, **ocs}}
    with pytest.raises(RequestError, match=says) as caught:
        settled(parse(raw, "own"), None, Caller.of_this_process(), os.environ)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("model", "says"),
    [
        (7, "^ocs.model: 7; FILE.py:CLASS, or a name of the testbed's own, is accepted"),
        ("Drift", "^ocs.model: Drift; FILE.py:CLASS, or a name"),
        ("drift.py", "^ocs.model: drift.py; FILE.py:CLASS"),
        ("drift.py:1", "^ocs.model: drift.py:1; FILE.py:CLASS"),
        (
            "drift.py:Drift",
            "^ocs.model: drift.py:Drift; a relative path is accepted in a YAML file",
        ),
    ],
)
def test_what_names_no_model_is_one_line(model: Any, says: str) -> None:
    with pytest.raises(RequestError, match=says):
        described(model)


# ---- a user's class ----

BODY = "\n    def mean_ms(self, plane=''):\n        return 1.0\n    def dark_times(self, turn):\n        "
CLASS = f"{IMPORTS}class Own(OpticalModel):"
GOOD = "return DarkTimes(DarkTime.of_ms(1))\n"
FAR = "return DarkTimes(circuits={('u1o1', 'u3o1'): DarkTime(1, 1)})\n"


def answering(body: str) -> str:
    """Return a class with this answer to changes."""
    return f"{CLASS}{BODY}{body}"


def declaring(parameters: str) -> str:
    """Return a class with these parameters."""
    return f"{CLASS}\n    parameters = {parameters}{BODY}{GOOD}"


BAD: dict[str, tuple[str, str]] = {
    "no file": ("", "FileNotFoundError: .*own.py'$"),
    "no class": ("Other = 1\n", "AttributeError: module 'users_own' has no attribute 'Own'$"),
    "no Python": ("class Own(:\n", "SyntaxError: invalid syntax"),
    "raises at import": ("1 / 0\n", "ZeroDivisionError: division by zero$"),
    "no class of ours": ("class Own: pass\n", "is Own; a class of testbed.optics.model.OpticalModel is "),
    "an object": (
        f"{IMPORTS}Own = OpticalModel(Settings())\n",
        "is a OpticalModel; a class of testbed.optics",
    ),
    "no dark times": (f"{CLASS}\n    pass\n", "has no method dark_times; dark_times and mean_ms are needed$"),
    "no tuple": (declaring("7"), "parameters is no tuple of Parameter$"),
    "no parameter": (declaring("('step_ms',)"), "its parameters have a str; Parameter is accepted$"),
    "a taken name": (
        declaring("(Parameter('seed', YesNo(), True, ''),)"),
        "its parameter 'seed'; a name of its own is accepted, and none of ports, planes, seed, circuits, ",
    ),
    "one name twice": (
        declaring("(Parameter('a', YesNo(), True, ''),) * 2"),
        "its parameter 'a'; a name of its own is accepted",
    ),
    "no kind": (
        declaring("(Parameter('a', int, 1, ''),)"),
        "its parameter a has no kind; Duration, Quantity, Whole, Word, YesNo are accepted$",
    ),
    "a default beyond its range": (
        declaring("(Parameter('a', Whole(1, 2), 3, ''),)"),
        "its parameter a: default of.a: 3; a whole number from 1 to 2 is accepted$",
    ),
    "a generator": (
        declaring("(each for each in [Parameter('a', YesNo(), True, '')])"),
        "parameters is no tuple of Parameter$",
    ),
    "a name that is no text": (
        declaring("(Parameter(True, YesNo(), True, ''),)"),
        "its parameter True; a name of its own is accepted",
    ),
    "a range of texts": (
        declaring("(Parameter('a', Quantity('x', 3), 1, ''),)"),
        r"its parameter a: Quantity\(low='x', high=3, .*; a number, one that is not below it, and a word",
    ),
    "a range upside down": (
        declaring("(Parameter('a', Whole(3, 1), None, ''),)"),
        r"its parameter a: Whole\(low=3, high=1\); a whole number, and one that is not below it, are",
    ),
    "no words": (
        declaring("(Parameter('a', Word(None), None, ''),)"),
        r"its parameter a: Word\(accepted=None\); words are accepted, like Word",
    ),
    "a word's letters": (
        declaring("(Parameter('a', Word('calm'), 'c', ''),)"),
        r"its parameter a: Word\(accepted='calm'\); words are accepted",
    ),
    "words of numbers": (
        declaring("(Parameter('a', Word((1, 2)), 1, ''),)"),
        r"its parameter a: Word\(accepted=\(1, 2\)\); words are accepted",
    ),
    "a default that nothing reads": (
        declaring("(Parameter('a', Duration(), Delay([1]), ''),)"),
        "its parameter a: its default raised TypeError: unhashable type: 'list'$",
    ),
    "raises when made": (
        f"{CLASS}\n    def __init__(self, *args):\n        raise KeyError(1){BODY}{GOOD}",
        "its __init__ raised KeyError: 1$",
    ),
    "raises": (answering("return 1 / 0\n"), r"its dark_times raised ZeroDivisionError.*\(line 7\)$"),
    "no times": (answering("return 5.0\n"), "its dark_times returned float; DarkTimes is accepted$"),
    "times of milliseconds": (
        answering("return DarkTimes(DarkTime(0.5, 1))\n"),
        "its dark times are no DarkTime by circuit, in whole nanoseconds: TypeError",
    ),
    "a circuit that is not made": (
        answering(FAR),
        "its dark time has u1o1-u3o1, which the change does not make; it makes u1o1-u2o1, u1o2-u4o2",
    ),
    "too long": (
        answering("return DarkTimes(DarkTime.of_ms(120_001))\n"),
        "of otherwise is 120001 ms and 0 ms; 0 to 120000 ms together are accepted$",
    ),
    "no mean": (
        answering(GOOD).replace("1.0", "float('nan')"),
        "its mean_ms returned nan; milliseconds from 0 are accepted$",
    ),
}


@pytest.mark.parametrize("what", BAD)
def test_a_bad_class_is_one_line_that_names_it(tmp_path: Path, what: str) -> None:
    text, says = BAD[what]
    if text:
        (tmp_path / "own.py").write_text(text)
    name = f"{tmp_path / 'own.py'}:Own"
    topology = described(name)
    with pytest.raises(RequestError, match=says) as caught:
        ModelHost(name, topology).checked()
    line = str(caught.value)
    assert line.startswith(f"ocs.model: {name}"), line
    assert "\n" not in line


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (GOOD.replace("return", "import os; os._exit(1); return"), "it ended without an answer$"),
        ("return 1 / 0\n", r"its dark_times raised ZeroDivisionError: division by zero \(line 7\)$"),
        ("import json; print(json.dumps({'refused': 'no'})); " + GOOD, ""),
    ],
)
def test_a_class_is_tried_in_a_process_of_its_own_before_anything_starts(
    tmp_path: Path, body: str, says: str
) -> None:
    (tmp_path / "own.py").write_text(answering(body))
    topology, name = described("own.py:Own", tmp_path), f"{tmp_path / 'own.py'}:Own"
    if not says:  # what it prints is no answer
        assert settled(topology, None, Caller.of_this_process(), os.environ).ocs.means_ms == {"": 1.0}
        return
    with pytest.raises(RequestError, match=says) as caught:
        settled(topology, None, Caller.of_this_process(), os.environ)
    assert str(caught.value).startswith(f"ocs.model: {name}: ")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            declaring("(Parameter('a', YesNo(), True, ''),)").replace(
                BODY, f"\n    def __init__(self, *args):\n        pass{BODY}"
            ),
            "",
        ),
        (
            answering("return DarkTimes(DarkTime.of_ms(len(self.ports)))\n").replace(
                BODY, f"\n    def __init__(self, *args):\n        pass{BODY}"
            ),
            "its dark_times raised AttributeError: 'Own' object has no attribute 'ports'",
        ),
        (
            answering(GOOD).replace("(OpticalModel)", "(OpticalModel, metaclass=Odd)"),
            "raised LookupError: odd",
        ),
    ],
)
def test_a_class_that_forgets_its_settings_is_no_riddle(tmp_path: Path, text: str, says: str) -> None:
    odd = "class Odd(type):\n    @property\n    def parameters(cls):\n        raise LookupError('odd')\n"
    (tmp_path / "own.py").write_text(text.replace("class Own", f"{odd}class Own"))
    topology = described("own.py:Own", tmp_path)
    if not says:
        known = settled(topology, None, Caller.of_this_process(), os.environ)
        assert known.ocs.settings.values == {"a": True}
        return
    with pytest.raises(RequestError, match=says) as caught:
        settled(topology, None, Caller.of_this_process(), os.environ)
    assert "\n" not in str(caught.value)


def test_an_answer_that_comes_too_late_is_refused_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(model_host, "ANSWER_S", 0.01)
    (tmp_path / "own.py").write_text(answering(f"import time; time.sleep(0.06); {GOOD}"))
    name = f"{tmp_path / 'own.py'}:Own"
    with pytest.raises(RequestError, match=r"own\.py:Own: its dark_times took 0\.1 s; 0\.01 s are accepted$"):
        ModelHost(name, described(name)).checked()


def test_a_class_that_hangs_is_given_up_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(user_topo, "WITHIN_S", 0.5)
    (tmp_path / "own.py").write_text(f"import time\ntime.sleep(600)\n{answering(GOOD)}")
    with pytest.raises(RequestError, match=r"own\.py:Own: no dark times within 0\.5 s$"):
        settled(described("own.py:Own", tmp_path), None, Caller.of_this_process(), os.environ)


# ---- asked by the controller ----


def turn(added: list[Ends], history: tuple[PastTurn, ...] = (), before: tuple[Ends, ...] = ()) -> CircuitTurn:
    number = len(history) + 1
    return CircuitTurn(number, 100.0, frozenset(before), frozenset({*before, *added}), history)


TELLING = (
    IMPORTS
    + '''
import os, time
class Telling(OpticalModel):
    """A millisecond for each change that it knows of."""
    def dark_times(self, turn):
        if turn.added == (("u1o1", "u3o1"),):
            os._exit(1)
        if turn.added == (("u1o1", "u4o1"),):
            time.sleep(600)
        if turn.added == (("u1o1", "u2o2"),):
            raise ValueError("not\\nthis one")
        assert [past.number for past in turn.history] == list(range(1, turn.number))
        return DarkTimes(DarkTime.of_ms(len(turn.history)))
    def mean_ms(self, plane=""):
        return 1.0
'''
)


@pytest.fixture
def telling(tmp_path: Path) -> Iterator[tuple[ModelProcess, AskedModel]]:
    """A model's process as the daemon keeps it, watched, and the controller's side of it."""
    (tmp_path / "telling.py").write_text(TELLING)
    name, path, ended = f"{tmp_path / 'telling.py'}:Telling", tmp_path / "s", threading.Event()
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    topology = described(name)
    with ModelProcess(spawn, topology, path, Caller.of_this_process(), environ) as process:

        def watch() -> None:
            while not ended.wait(0.02):
                process.watch()

        watching = threading.Thread(target=watch)
        watching.start()
        try:
            yield process, AskedModel(topology, path, within_s=CALL_S)
        finally:
            ended.set()
            watching.join(CALL_S)


def past(count: int) -> tuple[PastTurn, ...]:
    return tuple(PastTurn(number, float(number), (), (RING[0],)) for number in range(1, count + 1))


def test_it_is_told_the_history_once_and_all_of_it_after_its_end(
    telling: tuple[ModelProcess, AskedModel],
) -> None:
    process, model = telling
    assert (process._path.stat().st_mode & 0o777) == 0o600
    for count in (3, 4, 7):
        assert model.dark_times(turn([RING[0]], past(count))) == DarkTimes(DarkTime.of_ms(count))
    with pytest.raises(TestbedError, match=r"its dark_times raised ValueError: not \.\.\. \(line 13\)$"):
        model.dark_times(turn([("u1o1", "u2o2")], past(8)))
    assert model.dark_times(turn([RING[0]], past(9))) == DarkTimes(DarkTime.of_ms(9))
    first = process.pid
    with pytest.raises(TestbedError, match=r"Telling: its process ended without an answer$"):
        model.dark_times(turn([("u1o1", "u3o1")], past(9)))
    assert model.dark_times(turn([RING[0]], past(10))) == DarkTimes(DarkTime.of_ms(10))
    assert process.pid != first, "started again, for it was asked"


def test_one_that_hangs_is_given_up_and_asked_again(telling: tuple[ModelProcess, AskedModel]) -> None:
    _process, model = telling
    model.dark_times(turn([RING[0]]))
    model._within_s = 0.3
    with pytest.raises(TestbedError, match=r"no dark times within 0\.3 s$"):
        model.dark_times(turn([("u1o1", "u4o1")]))
    model._within_s = CALL_S
    assert model.dark_times(turn([RING[0]], past(2))) == DarkTimes(DarkTime.of_ms(2))


@pytest.mark.parametrize(
    ("said", "says"),
    [
        (b"what\n", "its answer is none: "),
        (b"[]\n", "its answer is none: list$"),
        (b'{"dark": {"otherwise": {}}}\n', "its answer is none: "),
        (b"{}\n", "it answered neither dark times nor a reason$"),
        (b"x" * (9 << 20), "its answer is none: it has more than 8388608 bytes$"),
        (b'{"refused": "a\\nb\\tc"}\n', "own.py:Own: a b c$"),
        (
            b'{"dark": {"otherwise": {"switch_ns": -5, "lock_ns": 0}, "circuits": [], "failed": {}}}\n',
            "own.py:Own: its dark time of otherwise is -5e-06 ms and 0 ms; 0 to 120000 ms",
        ),
    ],
)
def test_an_answer_is_not_believed(tmp_path: Path, said: bytes, says: str) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen()

        def answer() -> None:
            peer, _ = listener.accept()
            with peer, peer.makefile("rb") as lines, contextlib.suppress(OSError):
                for _ in ("the topology", "the change"):
                    lines.readline()
                peer.sendall(said)

        answering = threading.Thread(target=answer)
        answering.start()
        model = AskedModel(described("/there/own.py:Own"), tmp_path / "s", within_s=CALL_S)
        with pytest.raises(TestbedError, match=says) as caught:
            model.dark_times(turn([RING[0]]))
        answering.join(CALL_S)
    assert not isinstance(caught.value, RequestError)
    assert "\n" not in str(caught.value)


def test_a_controller_runs_no_code_of_a_user(tmp_path: Path, constant: str) -> None:
    with pytest.raises(TestbedError, match=r"Constant: no process of its user's answers for it$"):
        Conductor(described(constant), None, tmp_path / "history")


class Scripted:
    """A model that answers what it is given, or raises it."""

    def __init__(self, answers: list[DarkTimes | Exception]) -> None:
        self.answers, self.turns = answers, list[CircuitTurn]()

    def dark_times(self, turn: CircuitTurn) -> DarkTimes:
        self.turns.append(turn)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def test_a_conductor_changes_nothing_where_the_model_fails(tmp_path: Path) -> None:
    times = {RING[0]: DarkTime.of_ms(1, 2), ("u3o1", "u4o1"): DarkTime.of_ms(0.5)}
    model = Scripted([TestbedError("it raised"), DarkTimes(DarkTime.of_ms(1)), DarkTimes(circuits=times)])
    plane = ModelPlane()
    conductor, _ = connected(tmp_path, plane, model=model)
    before = conductor.state
    target = [list(RING[0]), ["u3o1", "u4o1"]]
    with pytest.raises(TestbedError, match=r"^it raised$"):
        conductor.apply([["u1o2", "u2o2"]])
    assert conductor.state == before
    assert conductor.state.is_ready
    conductor.apply([["u1o2", "u2o2"]])
    event = conductor.apply(target)
    assert event
    assert (event.id, event.asked_ms, event.switch_ms, event.lock_ms) == (2, 3, 1, 2)
    assert event.circuits_ms == {"u1o1-u2o1": 3, "u3o1-u4o1": 0.5}
    first, again, last = model.turns
    assert replace(first, at_s=0) == replace(again, at_s=0)
    assert abs(last.at_s - time.time()) < CALL_S
    assert [each.number for each in last.history] == [1]
    assert (last.number, last.before) == (2, {("u1o2", "u2o2")})


def test_a_circuit_without_a_time_has_that_of_the_others(tmp_path: Path) -> None:
    """Ports that no circuit gets are dark as long as the longest."""
    own = {("u1o1", "u3o1"): DarkTime.of_ms(3, 2)}
    model, plane = Scripted([DarkTimes(DarkTime.of_ms(11), own)] * 2), ModelPlane()
    conductor, _ = connected(tmp_path, plane, model=model)
    event = conductor.apply([["u1o1", "u3o1"], ["u2o1", "u4o1"]])
    assert event
    assert event.circuits_ms == {"u1o1-u3o1": 5, "u2o1-u4o1": 11}
    assert (event.asked_ms, event.switch_ms, event.lock_ms) == (11, 11, 0)
    state = conductor.state
    left, peers, dark_ns = leaving(state, DarkTimes(DarkTime.of_ms(11), own), 0, 0.0)
    change = left.errand.change if left.errand else None
    assert change
    assert (change.dark_ns, len(peers)) == (11_000_000, 4)
    assert sorted(dark_ns) == [5_000_000] * 2 + [11_000_000] * 2  # type: ignore[arg-type]


# ---- documents ----


def test_the_class_of_the_page_is_a_model(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "configuration.md").read_text()
    (text,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (tmp_path / "drift.py").write_text(text)
    name = f"{tmp_path / 'drift.py'}:Crowd"
    topology = described(name, each_ms=2)
    assert ModelHost(name, topology).checked().means_ms == {"": 2.0}
    assert model_of(topology).dark_times(turn(RING[:3])).longest == DarkTime.of_ms(6)


def test_status_names_a_model_that_is_not_the_usual_one(constant: str) -> None:
    assert optical_model(parse({"units": UNITS}, "usual").ocs) is UNSET
    for settings, text in (
        ({"dark_ms": 3, "ports": {"u1o1": {"dark_ms": 4}}}, f"{constant}: dark_ms 3, u1o1 dark_ms 4"),
        ({}, constant),
    ):
        model = optical_model(described(constant, **settings).ocs)
        assert isinstance(model, OpticalModelStatus)
        assert optics_text(model) == text


def test_status_has_settings_whole_and_shows_them_short(constant: str) -> None:
    values = [float(number) for number in range(2500)]
    said = {"dark_ms": {"values": values}, "strict": True, "mood": "calm"}
    model = optical_model(described(constant, **said, ports={"u1o1": {"dark_ms": {"values": values}}}).ocs)
    assert isinstance(model, OpticalModelStatus)
    value = model.values["dark_ms"]
    assert yaml.safe_load(value) == {"values": values}
    assert model.ports["u1o1"]["dark_ms"] == value
    assert "\n" not in value
    assert (model.values["strict"], model.values["mood"]) == ("true", "calm")
    short = "{values: [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9...."
    assert optics_text(model) == f"{constant}: dark_ms {short}, strict true, mood calm, u1o1 dark_ms {short}"


# ---- the example of the documents ----


def example(**settings: float) -> Any:
    kind: Callable[..., Any] = find(f"{ROOT / 'docs' / 'examples' / 'mirror_drift.py'}:MirrorDrift")
    usual = {"settle_ms": 2.0, "step_ms": 0.5, "wavelengths": 4, "tune_ms": 0.2, "drift_ms": 0.0}
    ports = {f"u{unit}o{port}": "" for unit in (1, 2, 3, 4) for port in (1, 2)}
    return kind(Settings({**usual, **settings}), 1, ports)


def dark_ms(model: Any, asked: CircuitTurn) -> dict[Ends, tuple[float, float]]:
    times: DarkTimes = model.dark_times(asked)
    times.check(asked, model.ports)
    return {ends: (time.switch_ns / 1e6, time.lock_ns / 1e6) for ends, time in times.circuits.items()}


def test_a_mirror_takes_as_long_as_its_way_is() -> None:
    """Ports have places 0 (u1o1) to 7 (u4o2); a mirror that never moved points at its own."""
    model = example()
    assert dark_ms(model, turn([("u1o1", "u2o1")])) == {("u1o1", "u2o1"): (3.0, 0.4)}
    assert dark_ms(model, turn([("u1o1", "u4o1")])) == {("u1o1", "u4o1"): (5.0, 0.4)}
    back = CircuitTurn(2, 0.0, frozenset({("u1o1", "u4o1")}), frozenset({("u1o1", "u3o2")}))
    assert dark_ms(model, back) == {("u1o1", "u3o2"): (4.5, 0.2)}, "the other end comes from its own place"
    far = example(step_ms=1.0, settle_ms=0.0, tune_ms=1.0)
    assert dark_ms(far, turn([("u1o2", "u4o2")])) == {("u1o2", "u4o2"): (6.0, 2.0)}


def test_where_a_mirror_points_is_history() -> None:
    gone = PastTurn(1, 40.0, (), (("u1o1", "u2o1"),)), PastTurn(2, 70.0, (("u1o1", "u2o1"),), ())
    asked = turn([("u1o1", "u2o1")], gone)
    assert dark_ms(example(), asked) == {("u1o1", "u2o1"): (2.0, 0.0)}, "it points there still"
    assert dark_ms(example(drift_ms=6.0), asked) == {("u1o1", "u2o1"): (2.0, 6.0)}, "at rest for a minute"


def test_the_end_of_a_timetable_moved_the_mirrors_of_all_circuits() -> None:
    """They have rested since then, as the history of its record says."""
    record = ChangeRecord(id=1, time=40.0, relit=(("u2o1", "u1o1"),))
    state = begin(parse({"units": UNITS}, "mirrors"), False, [record])
    assert state.past == (PastTurn(1, 40.0, (), (("u1o1", "u2o1"),)),)
    asked = turn([("u1o1", "u2o1")], state.past)
    assert dark_ms(example(drift_ms=6.0), asked) == {("u1o1", "u2o1"): (2.0, 6.0)}


def test_its_mean_goes_by_the_number_of_ports() -> None:
    assert example().mean_ms() == pytest.approx(2.0 + 0.5 * 8 / 3)


def test_the_example_is_a_model_that_a_configuration_takes(tmp_path: Path) -> None:
    shutil.copy(ROOT / "docs" / "examples" / "mirror_drift.py", tmp_path)
    topology = described("mirror_drift.py:MirrorDrift", tmp_path, step_ms=3)
    known = settled(topology, tmp_path, Caller.of_this_process(), os.environ)
    assert known.ocs.mean_ms() == pytest.approx(10.0)
