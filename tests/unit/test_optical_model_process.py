"""The process of a user's optical model as the daemon keeps it: what it loads when, and what an end of it
costs the controller that asks it.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from controller.model import AskedModel
from testbed.client.caller import Caller
from testbed.daemon.model_process import STARTS, ModelProcess
from testbed.emulation.spawner import Started
from testbed.emulation.user_model import settled
from testbed.errors import TestbedError
from testbed.optics.model import CircuitTurn, DarkTime, DarkTimes, Ends
from testbed.topology.load import parse
from testbed.topology.model import Topology
from tests.limits import CALL_S
from tests.processes import spawn

ROOT = Path(__file__).resolve().parents[2]
FIRST: Ends = ("u1o1", "u2o1")
FATAL: Ends = ("u1o1", "u3o1")
TIMES = DarkTimes(DarkTime.of_ms(7))
PLAIN = """
import os, time
from pathlib import Path
from testbed.optics.model import *

class Own(OpticalModel):
    def dark_times(self, turn):
        if turn.added == (("u1o1", "u3o1"),):
            os._exit(3)
        return DarkTimes(DarkTime.of_ms(7))
    def mean_ms(self, plane=""):
        return 7.0
"""
BROKEN = "import no_such_module\n"
ENDS = "import os\nos._exit(3)\n"
LIMIT_S = 1.0
LIMITED = (
    "import sys; from testbed.emulation import model_host; "
    f"model_host.LIMIT_S = {LIMIT_S}; sys.exit(model_host.main(sys.argv[1:]))"
)


class Spawns:
    """Starts processes, with a low limit for an answer; counts them, and fails while it is told to."""

    def __init__(self) -> None:
        self.count = 0
        self.fails = False

    def __call__(self, argv: Sequence[str], **options: Any) -> Started:
        if self.fails:
            raise BlockingIOError(11, "Resource temporarily unavailable")
        self.count += 1
        words = list(argv)
        words[words.index("-m") : -1] = ["-c", LIMITED]
        return spawn(words, **options)


class Kept:
    """A model's process, watched as the daemon does, and the controller's side of it."""

    def __init__(self, folder: Path) -> None:
        self.file, self.topology, self._path = folder / "own.py", own(folder), folder / "s"
        self.spawns = Spawns()
        environ = {**os.environ, "PYTHONPATH": str(ROOT)}
        caller = Caller.of_this_process()
        self.process = ModelProcess(self.spawns, self.topology, self._path, caller, environ)

    def controller(self, within_s: float = CALL_S) -> AskedModel:
        return AskedModel(self.topology, self._path, within_s=within_s)

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        ended, failures = threading.Event(), list[Exception]()

        def watch() -> None:
            while not ended.wait(0.02):
                try:
                    self.process.watch()
                except Exception as error:  # which would end the testbed
                    failures.append(error)
                    return

        with self.process:
            watching = threading.Thread(target=watch)
            watching.start()
            try:
                yield
            finally:
                ended.set()
                watching.join(CALL_S)
        assert failures == []

    def kill(self) -> None:
        process = self.process._process
        assert process is not None
        process.kill()
        process.wait(timeout=CALL_S)


def own(folder: Path) -> Topology:
    return parse({"units": [{"hosts": 1}] * 4, "ocs": {"model": "own.py:Own"}}, "own", folder)


def turn(circuit: Ends = FIRST) -> CircuitTurn:
    return CircuitTurn(1, 100.0, frozenset(), frozenset({circuit}))


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    (tmp_path / "own.py").write_text(PLAIN)
    return Kept(tmp_path)


SLOWLY = f"time.sleep({2 * LIMIT_S})\nPath('there').touch()\n"
MAKING = "    def __init__(self, *all):\n        " + SLOWLY.replace("\n", "\n        ", 1)


@pytest.mark.parametrize(
    "text",
    [PLAIN + SLOWLY, PLAIN.replace("    def d", f"{MAKING}    def d", 1)],
    ids=["to load", "to make"],
)
def test_one_that_is_slow_to_come_is_there_before_it_is_asked(kept: Kept, text: str) -> None:
    """Whoever enters waits for it, and the limit of an answer does not count then."""
    kept.file.write_text(text)
    with kept.watched():
        assert (kept.file.parent / "there").exists()
        assert kept.controller().dark_times(turn()) == TIMES
    assert kept.spawns.count == 1


def test_what_was_tried_is_what_answers_until_it_is_started_again(kept: Kept) -> None:
    with kept.watched():
        kept.file.write_text(PLAIN.replace("of_ms(7)", "of_ms(8)"))
        assert kept.controller().dark_times(turn()) == TIMES
        kept.process.restart()
        assert kept.controller().dark_times(turn()) == DarkTimes(DarkTime.of_ms(8))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (BROKEN, r"^ocs.model: .*own.py:Own: ModuleNotFoundError: No module named 'no_such_module'$"),
        (ENDS, r"^start optical model .*own.py:Own: its process ended before it was loaded$"),
    ],
)
def test_one_that_cannot_be_loaded_ends_the_start_of_a_testbed(kept: Kept, text: str, says: str) -> None:
    kept.file.write_text(text)
    with pytest.raises(TestbedError, match=says), kept.process:
        pass
    assert kept.process.pid == 0


def test_a_trial_and_a_live_model_have_the_same_folder(
    kept: Kept, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "beside").write_text("7")
    text = PLAIN.replace("of_ms(7)", "of_ms(int(Path('beside').read_text()))")
    kept.file.write_text(f"{text}\nassert Path('beside').exists()\n")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    known = settled(kept.topology, None, Caller.of_this_process(), os.environ)
    assert known.ocs.means_ms == {"": 7.0}
    with kept.watched():
        assert kept.controller().dark_times(turn()) == TIMES


def test_one_that_was_refused_is_loaded_again_for_the_next_change(kept: Kept) -> None:
    with kept.watched():
        model = kept.controller()
        kept.file.write_text(BROKEN)
        kept.process.restart()
        for _ in range(2):
            with pytest.raises(
                TestbedError, match=r"own\.py:Own: ModuleNotFoundError: No module named 'no_such_"
            ):
                model.dark_times(turn())
        kept.file.write_text(PLAIN)
        assert model.dark_times(turn()) == TIMES


def test_one_that_ended_while_nobody_asked_costs_no_change(kept: Kept) -> None:
    with kept.watched():
        model = kept.controller()
        for _ in range(3):
            assert model.dark_times(turn()) == TIMES
            time.sleep(0.1)  # it is watched, and nobody waits
            kept.kill()
        assert model.dark_times(turn()) == TIMES
        with pytest.raises(TestbedError, match=r"its process ended without an answer$"):
            model.dark_times(turn(FATAL))
        assert model.dark_times(turn()) == TIMES
    assert kept.spawns.count == 4 + 2, "asked twice, once more, for it had ended after an answer"


def test_one_that_ends_before_it_is_loaded_is_not_started_without_end(
    kept: Kept, capfd: pytest.CaptureFixture[str]
) -> None:
    with kept.watched():
        kept.file.write_text(ENDS)
        kept.process.restart()
        model = kept.controller()
        descriptors = len(os.listdir("/proc/self/fd"))
        for _ in range(2):
            with pytest.raises(TestbedError, match=r"its process ended without an answer$"):
                model.dark_times(turn())
        count = kept.spawns.count
        assert count <= 2 + 2 * STARTS
        time.sleep(0.3)
        assert kept.spawns.count == count, "nobody asks"
        assert len(os.listdir("/proc/self/fd")) <= descriptors
        kept.file.write_text(PLAIN)
        assert model.dark_times(turn()) == TIMES
    assert capfd.readouterr().err.count("own.py:Own: its process ended with 3\n") == 1


def test_one_that_cannot_be_started_for_a_while_is_tried_again(
    kept: Kept, capfd: pytest.CaptureFixture[str]
) -> None:
    with kept.watched():
        kept.spawns.fails = True
        kept.process.restart()
        with pytest.raises(TestbedError, match=r"no dark times within 0\.2 s$"):
            kept.controller(within_s=0.2).dark_times(turn())
        kept.spawns.fails = False
        assert kept.controller().dark_times(turn()) == TIMES
    said = capfd.readouterr().err
    assert (
        said.count(f"start optical model {kept.file}:Own: [Errno 11] Resource temporarily unavailable") == 1
    )


def test_words_that_are_cut_off_end_no_process(kept: Kept) -> None:
    with kept.watched():
        for words in (b"", b'{"topology": "'):
            with socket.socket(socket.AF_UNIX) as peer:
                peer.connect(str(kept._path))
                peer.sendall(words)
        assert kept.controller().dark_times(turn()) == TIMES
    assert kept.spawns.count == 1
