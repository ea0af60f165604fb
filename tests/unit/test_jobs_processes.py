"""The life of a job's processes, with real processes on this machine in place of emulated hosts."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from testbed.client.caller import Caller
from testbed.emulation.leftovers import end_those, environment_of
from testbed.emulation.spawner import Spawner, Started
from testbed.errors import RequestError, TestbedError
from testbed.jobs.board import LAYOUT, GroupState, JobBoard, WorkerState
from testbed.jobs.logs import LAST_BYTES
from testbed.jobs.processes import Ending, JobProcesses, Orders, Patience, ProcessSpec, Starts
from testbed.jobs.user_files import UserFiles
from testbed.messages.events import Event, JobNote, OutputLine
from tests.limits import CALL_S
from tests.processes import ENCLOSURES, alive, spawn

WAIT_FOREVER = "import signal; signal.pause()"
STUBBORN = (
    "import signal; signal.signal(15, signal.SIG_IGN); print('deaf', flush=True)\nwhile True: signal.pause()"
)
ME = Caller.of(os.geteuid())

Run = Callable[..., Ending]


FILES = UserFiles(spawn)


def open_logs(paths: Sequence[Path]) -> list[int]:
    return FILES.open_logs(paths, ME)


class Here:
    """Starts processes on this machine, in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def start(self, spec: ProcessSpec, stdout: int) -> Started:
        return Started(
            spec.argv,
            env=spec.env,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=stdout,
            pass_fds=spec.pass_fds,
            start_new_session=True,
        )


class Fixture:
    """Runs scripts as a job's workers; the last one as its parameter server if asked."""

    def __init__(self, tmp_path: Path) -> None:
        self.folder = tmp_path
        self.events: list[Event] = []
        self.board = JobBoard(8)
        self.stop_reason: str | None = None
        self.broken: str | None = None
        self.dismisses: Callable[[], bool] = lambda: False
        self.listen: Callable[[Event], Any] = self.events.append
        self.starter: Starts = Here(tmp_path)
        self.open_logs, self.spawner = open_logs, Spawner()
        self.most_log_bytes: int | None = None
        self.leaves_stacks = False

    def spec(self, index: int, script: str, serves: bool = False) -> ProcessSpec:
        argv = (sys.executable, "-c", script)
        who, log = (
            ("the parameter server", "ps.log") if serves else (f"worker {index}", f"worker-{index}.log")
        )
        fields: Any = LAYOUT.fields
        asks, left = (index * LAYOUT.itemsize + fields[name][1] for name in ("asks_stacks", "left_stacks"))
        return ProcessSpec(
            index,
            f"u1h{index + 1}",
            who,
            f"u1h{index + 1}",
            argv,
            {**os.environ, "BOARD": f"{self.board.fd} {asks} {left}"},
            self.folder / log,
            (self.board.fd,),
            serves=serves,
            most_log_bytes=self.most_log_bytes,
            stacks=self.folder / f"stacks-{index}.log" if self.leaves_stacks else None,
        )

    def run(self, *scripts: str, ps: str | None = None, limit_s: float = 120.0, **times: float) -> Ending:
        end = time.monotonic() + limit_s
        specs = [self.spec(index, script) for index, script in enumerate(scripts)]
        if ps is not None:
            specs.insert(0, self.spec(len(scripts), ps, serves=True))
        with JobProcesses(
            self.starter, self.board, lambda event: self.listen(event), Patience(**times)
        ) as processes:
            processes.start(specs, self.open_logs([spec.log for spec in specs]))
            orders = Orders(
                lambda: self.stop_reason or ("too late" if time.monotonic() > end else None),
                lambda: self.broken,
                self.dismisses,
            )
            return processes.wait(orders)

    def lines(self) -> list[str]:
        return [f"[{event.label}] {event.output}" for event in self.events if isinstance(event, OutputLine)]


def says(board: JobBoard, rank: int, phase: GroupState, asked: int = 0, waits_for: int = 0) -> None:
    """Write as a worker does."""
    for name, value in (("phase", phase), ("asked", asked), ("waits_for", waits_for)):
        getattr(board._workers, name)[rank] = value


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Fixture]:
    fixture = Fixture(tmp_path)
    yield fixture
    fixture.spawner.close()
    fixture.board.close()


def test_all_done(job: Fixture) -> None:
    ending = job.run("print('one')", "import sys; sys.stderr.write('two\\nunfinished')")
    assert ending.failure is None
    assert ending.exit_codes == {0: 0, 1: 0}
    assert sorted(job.lines()) == ["[u1h1] one", "[u1h2] two", "[u1h2] unfinished"]
    assert (job.folder / "worker-1.log").read_text() == "two\nunfinished"
    assert job.board.state(0) is WorkerState.EXITED


def test_a_failure_is_named_and_the_others_end_after_their_grace(job: Fixture) -> None:
    began = time.monotonic()
    ending = job.run(WAIT_FOREVER, "raise SystemExit(7)", WAIT_FOREVER, grace_s=0.3)
    assert time.monotonic() - began > 0.3
    assert ending.exit_codes == {0: -signal.SIGTERM, 1: 7, 2: -signal.SIGTERM}
    assert ending.failure
    assert ending.failure.startswith("worker 1 on u1h2 exited with code 7 (log: ")


def test_what_a_job_needs_and_loses_is_its_failure_and_no_stop(job: Fixture) -> None:
    job.broken = "u1's simple_switch ended (signal 9)"
    ending = job.run(WAIT_FOREVER, WAIT_FOREVER)
    assert ending.failure == job.broken
    assert not ending.stopped, "so that a job with restarts left starts again"
    assert ending.exit_codes == {0: -signal.SIGTERM, 1: -signal.SIGTERM}


def test_in_its_grace_a_worker_can_say_whom_it_misses(job: Fixture) -> None:
    # worker 0 waits until worker 1 is reaped, so that it is the second to fail, whichever came up first
    waits = (
        "import pathlib, time\nproc = pathlib.Path('/proc')\nname = pathlib.Path('name')\n"
        "while not name.is_symlink() or (proc / name.readlink()).exists(): time.sleep(0.01)\n"
        "print('missing: worker 1'); raise SystemExit(3)"
    )
    ending = job.run(
        waits, "import os; os.symlink(str(os.getpid()), 'name'); raise SystemExit(7)", grace_s=60.0
    )
    assert ending.exit_codes == {0: 3, 1: 7}
    assert ending.failure
    assert "worker 1 on u1h2 exited with code 7" in ending.failure
    assert job.lines() == ["[u1h1] missing: worker 1"]


def test_who_does_not_hear_is_killed(job: Fixture) -> None:
    # the failure waits until the deaf one is deaf, or the signal would reach it before
    deaf = job.folder / "worker-0.log"
    fail = (
        "import pathlib\n"
        f"while 'deaf' not in pathlib.Path({str(deaf)!r}).read_text(): pass\n"
        "raise SystemExit(1)"
    )
    ending = job.run(STUBBORN, fail, grace_s=0.1, term_s=0.2)
    assert ending.exit_codes[0] == -signal.SIGKILL


def test_who_ends_with_0_while_others_wait_for_it_is_the_failure(job: Fixture) -> None:
    says(job.board, 0, GroupState.MEETING)
    ending = job.run(WAIT_FOREVER, "pass")
    assert ending.failure == (
        f"worker 1 on u1h2 ended with 0 before it joined the process group (log: {job.folder}/worker-1.log)"
    )
    assert ending.exit_codes == {0: -signal.SIGTERM, 1: 0}


def test_a_failure_names_the_one_that_the_failed_waited_for(job: Fixture) -> None:
    says(job.board, 0, GroupState.JOINED, asked=3, waits_for=3)
    says(job.board, 1, GroupState.ALONE, asked=2)
    # worker 0 fails at once when worker 1 is gone, long before it is sure that nobody will be there
    after = (
        "import pathlib, time\nproc = pathlib.Path('/proc')\nname = pathlib.Path('name')\n"
        "while not name.is_symlink() or (proc / name.readlink()).exists(): time.sleep(0.01)\n"
        "raise SystemExit(1)"
    )
    ending = job.run(after, "import os; os.symlink(str(os.getpid()), 'name')")
    assert ending.exit_codes == {0: 1, 1: 0}
    assert ending.failure
    assert ending.failure.startswith(
        "worker 1 on u1h2 ended with 0 while others waited for it in collective 3"
    )


def test_nobody_waits_out_a_grace_for_a_group_that_cannot_come(job: Fixture) -> None:
    says(job.board, 0, GroupState.MEETING)
    ending = job.run(WAIT_FOREVER, "raise SystemExit(7)", grace_s=60.0, limit_s=50.0)
    assert ending.failure
    assert ending.failure.startswith("worker 1 on u1h2 exited with code 7 (log: ")
    assert not ending.stopped


# as workloads/waiting.py does, when another worker has failed
LEAVES = (
    "import mmap, os, signal, sys, time\n"
    "signal.signal(15, lambda *_: sys.exit(0 if os.path.exists('left') else 9))\n"
    "fd, asked, left = map(int, os.environ['BOARD'].split())\n"
    "board = mmap.mmap(fd, 0)\n"
    "print('there', flush=True)\n"
    "while not board[asked]: time.sleep(0.01)\n"
    "time.sleep(0.2)\nopen('left', 'w').close()\nboard[left] = 1\n"
    "signal.pause()"
)


def test_workers_leave_their_stacks_before_they_are_asked_to_end(job: Fixture) -> None:
    job.leaves_stacks = True
    fails = (
        f"import pathlib, time\nlog = pathlib.Path({str(job.folder / 'worker-0.log')!r})\n"
        "while 'there' not in log.read_text(): time.sleep(0.01)\nraise SystemExit(3)"
    )
    ending = job.run(LEAVES, fails, grace_s=0.0)
    assert ending.failure
    assert ending.failure.startswith("worker 1 on u1h2 exited with code 3")
    assert ending.exit_codes == {0: 0, 1: 3}
    assert ending.left_stacks == {0}


def test_nobody_is_waited_for_for_long_who_leaves_no_stacks(job: Fixture) -> None:
    job.leaves_stacks = True
    ending = job.run(WAIT_FOREVER, "raise SystemExit(3)", grace_s=0.0)
    assert ending.exit_codes == {0: -signal.SIGTERM, 1: 3}
    assert ending.left_stacks == frozenset()


def test_a_job_that_ends_well_is_asked_for_no_stacks(job: Fixture) -> None:
    job.leaves_stacks = True
    assert job.run("pass", "pass").failure is None
    assert not job.board._workers.asks_stacks.any()


def test_a_process_group_of_another_size_is_said(job: Fixture) -> None:
    job.board._workers.world[0] = 3
    ending = job.run("raise SystemExit(1)")
    assert ending.failure
    assert ending.failure.startswith(
        "worker 0 on u1h1: world_size 3 does not fit this job's 8 workers (log: "
    )


def test_whom_the_others_wait_for_is_told_and_noted(job: Fixture) -> None:
    says(job.board, 0, GroupState.JOINED, asked=3, waits_for=3)
    says(job.board, 1, GroupState.JOINED, asked=2)
    # as long as nobody is told
    until = "import pathlib, time\nwhile not pathlib.Path('told').exists(): time.sleep(0.01)"
    lines: list[str] = []

    def listen(event: Event) -> None:
        if isinstance(event, JobNote):
            lines.append(event.note)
            (job.folder / "told").touch()

    job.listen = listen
    ending = job.run(until, until, tell_s=0.5)
    assert re.fullmatch(
        r"waiting for worker 1 on u1h2 \(\w+ for \d s\) in collective 3: "
        r"worker 0 waits in collective 3, worker 1 \w+ since collective 2",
        lines[0],
    )
    assert ending.failure is None
    assert re.fullmatch(r"the others waited \d+ s for worker 1 on u1h2", ending.notes[0])


FRAMES = """\
[rank1]:[W1122 12:59:17.696279097 TCPStore.cpp:106] [c10d] sendBytes failed: Broken pipe
Exception raised from sendBytes at /pytorch/torch/csrc/c10d/Utils.hpp:758 (most recent call first):
frame #0: c10::Error::Error(c10::SourceLocation, std::__cxx11::basic_string<char>) + 0x9d (0x7ff in libc10.so)
frame #19: /usr/bin/python3() [0x53ad87]
C++ CapturedTraceback:
#4 std::_Function_handler<void ()>::_M_invoke(std::_Any_data const&) from Logging.cpp:0
#5 is the number of the step
"""


def test_a_stack_of_cpp_is_in_the_log_alone(job: Fixture) -> None:
    ending = job.run(f"print({FRAMES!r}, end='')")
    assert ending.failure is None
    first, *_, last = FRAMES.splitlines()
    assert job.lines() == [f"[u1h1] {first}", f"[u1h1] {last}"]
    assert (job.folder / "worker-0.log").read_text() == FRAMES


def test_a_reason_to_stop_ends_the_job_at_once(job: Fixture) -> None:
    job.stop_reason = "asked to"
    ending = job.run(WAIT_FOREVER, WAIT_FOREVER)
    assert ending.failure == "asked to"
    assert set(ending.exit_codes.values()) == {-signal.SIGTERM}


def test_a_reason_that_comes_up_ends_the_job(job: Fixture) -> None:
    ending = job.run(WAIT_FOREVER, limit_s=0.3)
    assert ending.failure == "too late"
    assert ending.stopped
    assert ending.exit_codes == {0: -signal.SIGTERM}


def test_the_parameter_server_ends_with_the_workers_and_that_is_no_failure(job: Fixture) -> None:
    ending = job.run("pass", ps=WAIT_FOREVER)
    assert ending.failure is None
    assert ending.exit_codes == {0: 0, 1: -signal.SIGTERM}


def test_the_death_of_the_parameter_server_is_a_failure_even_with_code_0(job: Fixture) -> None:
    ending = job.run(WAIT_FOREVER, ps="pass", grace_s=0.1)
    assert ending.failure
    assert ending.failure.startswith("the parameter server on u1h2 exited with code 0")


def test_a_parameter_server_that_turns_out_not_to_be_needed_ends_first_and_that_is_no_failure(
    job: Fixture,
) -> None:
    job.dismisses = (job.folder / "serves").exists
    waits = "import os, time\nwhile not os.path.exists('dismissed'): time.sleep(0.01)"
    serves = (
        "import signal, sys\n"
        "signal.signal(signal.SIGTERM, lambda *_: (open('dismissed', 'w').close(), sys.exit(0)))\n"
        "open('serves', 'w').close()\nwhile True: signal.pause()"
    )
    ending = job.run(waits, ps=serves)
    assert ending.failure is None
    assert ending.exit_codes == {0: 0, 1: 0}


def test_what_a_worker_started_goes_with_it(job: Fixture) -> None:
    script = f"import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', {WAIT_FOREVER!r}]).pid)"
    assert job.run(script).failure is None
    pid = int(job.lines()[0].split()[1])
    deadline = time.monotonic() + 60
    while alive(pid):
        assert time.monotonic() < deadline, "the grandchild still runs"
        time.sleep(0.01)


def test_what_left_its_session_is_known_by_its_environment() -> None:
    enclosure, another = (ENCLOSURES.open("job", os.getuid()) for _ in range(2))
    longer = {name: f"{value}0" for name, value in enclosure.mark.items()}
    mine, other, longest = (
        subprocess.Popen(
            [sys.executable, "-c", f"print(flush=True); {WAIT_FOREVER}"],
            env={**os.environ, **mark},
            stdout=subprocess.PIPE,
        )
        for mark in (enclosure.mark, another.mark, longer)
    )
    for process in (mine, other, longest):
        assert process.stdout
        # its environment is its own by now, not that of the process it was forked from
        process.stdout.readline()
    try:
        assert enclosure.end() == 1
        assert mine.wait(60) == -signal.SIGKILL
        assert other.poll() is None
        assert longest.poll() is None
    finally:
        for process in (mine, other, longest):
            process.kill()
            process.communicate(timeout=CALL_S)


def test_who_listens_does_not_read_and_the_limit_still_holds(job: Fixture) -> None:
    """Nor does a listener that never returns hold up more than what it listens to."""
    job.listen = lambda event: threading.Event().wait(60)
    began = time.monotonic()
    ending = job.run("while True: print('x' * 1000)", WAIT_FOREVER, limit_s=0.5, term_s=0.5)
    assert ending.failure == "too late"
    assert time.monotonic() - began < 50
    assert ending.exit_codes == {0: -signal.SIGTERM, 1: -signal.SIGTERM}


def test_one_that_prints_until_it_is_ended_has_all_of_it_in_its_log(job: Fixture) -> None:
    ending = job.run("for number in range(200_000): print(number)")
    assert ending.failure is None
    assert (job.folder / "worker-0.log").read_text().splitlines() == [
        str(number) for number in range(200_000)
    ]
    assert len(job.events) == 200_000


def test_a_log_that_takes_no_more_is_noted_and_the_job_goes_on(job: Fixture) -> None:
    job.open_logs = lambda paths: [os.open("/dev/full", os.O_WRONLY)]
    ending = job.run("for number in range(100_000): print(number)")
    assert ending.failure is None
    assert ending.notes == [f"log {job.folder / 'worker-0.log'}: No space left on device: it lacks output"]
    assert len(job.events) == 100_000


def test_a_bounded_log_has_its_beginning_and_its_end(job: Fixture) -> None:
    """Whole lines, and the note and the gap say how much is left out."""
    job.most_log_bytes = 100_000
    ending = job.run("for number in range(100_000): print(number)")
    log = (job.folder / "worker-0.log").read_text()
    (note,) = ending.notes
    before, gap, after = re.split(r"\n\.\.\. (\d+) bytes are left out here \.\.\.\n", log)
    assert note == (
        f"log {job.folder / 'worker-0.log'}: {gap} bytes are left out before its last 64 KiB; "
        "with --logs DIR all are kept"
    )
    printed = "".join(f"{number}\n" for number in range(100_000))
    assert len(before) == 100_000
    assert printed.startswith(before)
    assert printed.endswith("\n" + after)
    assert len(after) <= LAST_BYTES
    assert len(before) + int(gap) + len(after) == len(printed)
    assert len(job.events) == 100_000, "whoever listens has all of it"


def test_a_log_that_is_within_its_bound_has_no_gap(job: Fixture) -> None:
    job.most_log_bytes = 100
    ending = job.run("print('x' * 50); print('y' * 2000)")
    assert ending.notes == []
    assert (job.folder / "worker-0.log").read_text() == "x" * 50 + "\n" + "y" * 2000 + "\n"


def test_why_one_did_not_come_to_run_is_the_failure(job: Fixture) -> None:
    class EnteringFirst:
        def start(self, spec: ProcessSpec, stdout: int) -> Started:
            cwd = f"{job.folder}/gone"
            return Spawner.popen(job.spawner, None, spec.argv, uid=os.getuid(), cwd=cwd, stdout=stdout)

    job.starter = EnteringFirst()
    ending = job.run("print('never')")
    assert ending.exit_codes == {0: 126}
    assert ending.failure == f"start worker 0 on u1h1: enter {job.folder}/gone: No such file or directory"


def test_one_that_is_becoming_another_program_is_looked_at_when_it_is(tmp_path: Path) -> None:
    """A /proc in which a real process has no environment yet, as in execve(2), and has it a moment later."""
    process = subprocess.Popen([sys.executable, "-c", WAIT_FOREVER])
    try:
        deadline = time.monotonic() + 60
        fields = ["0"] * 49
        while not int(fields[48]) > int(fields[47]) > 0:  # Popen is back before execve(2) has set these
            assert time.monotonic() < deadline, "where its environment is"
            fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        assert int(fields[20]) > 0, "its memory"
        folder = tmp_path / str(process.pid)
        folder.mkdir()
        (folder / "environ").touch()
        fields[47] = fields[48] = "0"
        (folder / "stat").write_text(f"{process.pid} (a) b) {' '.join(fields)}")
        threading.Timer(0.1, lambda: (folder / "environ").write_text("A=B\0C=mine\0")).start()
        assert end_those(lambda folder: b"C=mine" in environment_of(folder).split(b"\0"), tmp_path) == 1
        assert process.wait(60) == -signal.SIGKILL
    finally:
        process.kill()
        process.wait(CALL_S)


def test_one_that_cannot_start_ends_those_that_did(job: Fixture) -> None:
    with JobProcesses(job.starter, job.board, job.events.append) as processes:
        bad = ProcessSpec(
            1, "u1h2", "worker 1", "u1h2", ("/no/such/program",), {}, job.folder / "worker-1.log"
        )
        specs = [job.spec(0, WAIT_FOREVER), bad]
        with pytest.raises(TestbedError, match=r"start worker 1: .*No such file"):
            processes.start(specs, open_logs([spec.log for spec in specs]))
    assert job.board.state(0) is WorkerState.EXITED


def test_a_log_that_cannot_be_written(job: Fixture) -> None:
    (job.folder / "worker-0.log").mkdir()
    with pytest.raises(RequestError, match=r"worker-0.log: user .* cannot write it: Is a directory"):
        job.run("pass")


def test_what_could_not_be_started_is_named_whoever_starts_it(job: Fixture) -> None:
    class Refusing:
        def start(self, *_: Any) -> Any:
            raise TestbedError("fork a worker: Resource temporarily unavailable")

    job.starter = Refusing()
    with pytest.raises(TestbedError, match=r"^start worker 0: fork a worker: Resource temporarily"):
        job.run("pass")
