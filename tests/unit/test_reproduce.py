"""The command `testbed reproduce` with tiny settings."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from reproductions.p4inc.simulated import plots
from reproductions.p4inc.simulated.report import SweepReport
from testbed import reproduce
from testbed.errors import HostError, RequestError
from testbed.messages.coding import decode
from testbed.report.plots import drawing
from testbed.systems.p4inc.simulator.settings import FOUR
from tests.processes import alive

WAIT_S = 180.0
CHECKOUT = Path(__file__).resolve().parents[2]
TINY = ("units=8", "slot_s=0.5", "iterations=20", "job_count=7,11", "megabytes=100,200")
TRACE = "5 3\n1 0 1 2 1 4:150\n2 700 3 0 1 4 2 0:648.0 3:972.0\n7 700 1 0 1 0:80\n"


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.txt"
    path.write_text(TRACE)
    return path


def ran(figure: str, out: Path, *words: str) -> dict[str, object]:
    settings = [word for setting in TINY for word in ("--set", setting)]
    arguments = [
        "p4inc",
        figure,
        "--seeds",
        "2",
        "--jobs-in-parallel",
        "2",
        "--out",
        str(out),
        *settings,
        *words,
    ]
    assert reproduce.main(arguments) == 0
    report: dict[str, object] = json.loads((out / f"{figure}.json").read_text(), parse_constant=pytest.fail)
    return report


def timeless(report: dict[str, object]) -> object:
    """Return the report without the figures that come from a clock."""
    runs = report["runs"]
    assert isinstance(runs, list)
    return [{key: value for key, value in run.items() if key != "time_s"} for run in runs]


def test_fig8_is_printed_written_and_drawn(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = ran("fig8", tmp_path, "--records", str(tmp_path / "records"))
    printed = capsys.readouterr().out
    (result,) = (tmp_path / "records").glob("*/runs/1/result.json")
    assert report["claims"]
    assert json.loads(result.read_text())["claims"] == report["claims"]
    assert "Fig. 8: numbers of training jobs, reading: batch" in printed
    assert "The paper's statements, and what our runs say of each" in printed
    assert "92.8%" in printed
    assert "noINC-FCFS" in printed
    assert (tmp_path / "fig8.png").read_bytes().startswith(b"\x89PNG")
    runs = report["runs"]
    assert isinstance(runs, list)
    assert len(runs) == 2 * 2 * 4
    assert {run["scheme"] for run in runs} == set(FOUR)
    setting = report["setting"]
    assert isinstance(setting, dict)
    assert (setting["iterations"], setting["units"], setting["ps_gbps"]) == (20, 8, "inf")
    again = ran("fig8", tmp_path / "again", "--jobs-in-parallel", "1")
    assert timeless(again) == timeless(report)


def test_table1_has_the_milp(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = ran(
        "table1", tmp_path, "--time-limit", "20", "--seeds", "1", "--set", "job_count=40", "--set", "inc=1"
    )
    printed = capsys.readouterr().out
    assert "Table I" in printed
    # the paper's time of the MILP, beside ours
    assert "84.6" in printed
    heading = printed.split("scheme", 1)[0].splitlines()[-2] + printed.split("scheme", 1)[1].splitlines()[0]
    assert "slots" in heading
    assert "above the" in heading
    means = report["means"]
    assert isinstance(means, list)
    (solved,) = (mean for mean in means if mean["scheme"] == "milp")
    assert solved["bound_s"]["mean"] <= solved["ct_bti_s"]["mean"] + 1e-6
    runs = report["runs"]
    assert isinstance(runs, list)
    (stages_s,) = (run["stages_s"] for run in runs if run["scheme"] == "milp")
    assert stages_s
    with drawing():
        panels = plots.picture(decode(SweepReport, report, "report")).axes
    crosses = [line for axes in panels for line in axes.get_lines() if line.get_label() == "paper"]
    assert len(crosses) == len(panels) == 2
    for mean in means:
        assert mean["delta"]["mean"] >= -1e-6 - solved["gap"]["mean"]
        assert mean["above_bound"]["mean"] >= -1e-6


def test_fig9_draws_from_the_trace(tmp_path: Path, trace: Path) -> None:
    report = ran("fig9", tmp_path, "--trace", str(trace), "--reading", "printed", "--set", "schemes=inc-tw")
    setting = report["setting"]
    assert isinstance(setting, dict)
    # of the reading, but for what is set beside it
    assert (setting["host_gbps"], setting["nominal_gbps"], setting["iterations"]) == ("inf", 0.01, 20)
    runs = report["runs"]
    assert isinstance(runs, list)
    assert len(runs) == 4
    assert report["claims"] == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["p5inc", "fig8"], "no paper 'p5inc'; accepted: aleph, p4inc, luwu, trio, rotor"),
        (["p4inc", "fig4"], "no figure 'fig4'; accepted: table1, fig8"),
        (["p4inc", "fig8", "--seeds", "0"], "--seeds 0: at least 1"),
        (["p4inc", "fig8", "--jobs-in-parallel", "0"], "--jobs-in-parallel 0: at least 1"),
        (["p4inc", "table1", "--time-limit", "0"], "--time-limit 0: seconds above 0"),
        (["p4inc", "table1", "--time-limit", "nan"], "--time-limit nan: seconds above 0"),
        (["p4inc", "fig8", "--reading", "aloud"], "--reading aloud: accepted: batch, printed"),
        (["p4inc", "fig8", "--set", "speed=3"], "--set speed=3: NAME=VALUE is accepted"),
        (["p4inc", "fig8", "--set", "units=-3"], "units -3; a whole number above 0"),
        (["p4inc", "fig9"], "--trace FILE is accepted"),
        (["p4inc", "fig8", "--trace", "x"], "fig8 draws its jobs from no trace"),
        (["p4inc", "fig9", "--trace", "/nowhere"], "/nowhere: No such file"),
        (["p4inc", "fig8", "--out", "/proc/nowhere"], "--out /proc/nowhere"),
        # there, and not to be written even by root: known before anything runs
        (["p4inc", "fig8", "--out", "/proc"], "--out /proc: "),
        (["p4inc", "fig10", "--set", "units=1,2"], "workers 16|units"),
    ],
)
def test_bad_input_is_one_line(words: list[str], said: str, tmp_path: Path) -> None:
    where = [] if "--out" in words else ["--out", str(tmp_path)]
    small = ["--set", "servers=4"] if "fig10" in words else []
    with pytest.raises(RequestError) as caught:
        reproduce.main([*words, *where, *small])
    assert any(part in str(caught.value) for part in said.split("|"))
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_the_experiment_needs_root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    with pytest.raises(HostError, match=r"^needs root .* reproduce p4inc fig6$"):
        reproduce.main(["p4inc", "fig6", "--runs", "3", "--out", str(tmp_path / "made")])
    assert list(tmp_path.iterdir()) == []


def test_kill_9_leaves_nothing_at_work() -> None:
    script = (
        "import time\nfrom reproductions.pool import Pool\n"
        "with Pool(time.sleep, (), 2) as pool:\n    for _ in pool.results([0, 600, 600]): print(flush=True)"
    )
    with subprocess.Popen([sys.executable, "-c", script], cwd=CHECKOUT, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()  # the first process is through, and has the next piece
        started = children(process.pid)
        process.kill()
    assert len(started) == 3, "two processes at work and spawn's tracker"
    until(lambda: not any(alive(pid) for pid in started), "its processes to end")


def children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def until(condition: object, what: str) -> None:
    assert callable(condition)
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, f"waited {WAIT_S} s for {what}"
        time.sleep(0.02)


@pytest.fixture
def long_run(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    words = ["-m", "testbed", "reproduce", "p4inc", "fig8", "--seeds", "500", "--jobs-in-parallel", "2"]
    with subprocess.Popen(
        [sys.executable, *words, "--out", str(tmp_path)],
        cwd=CHECKOUT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        yield process
        process.kill()


def test_no_process_can_be_interrupted_while_it_starts(long_run: subprocess.Popen[str]) -> None:
    until(lambda: len(children(long_run.pid)) >= 3, "two processes at work and spawn's tracker")
    assert [pid for pid in children(long_run.pid) if not is_deaf(pid, signal.SIGINT)] == []


def is_deaf(pid: int, number: signal.Signals) -> bool:
    """Return whether a process blocks or ignores a signal."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    masks = dict(line.split(":", 1) for line in lines if line.startswith(("SigBlk", "SigIgn")))
    return bool((int(masks["SigBlk"], 16) | int(masks["SigIgn"], 16)) & 1 << number - 1)


def test_ctrl_c_ends_all_of_it(long_run: subprocess.Popen[str]) -> None:
    until(lambda: len(children(long_run.pid)) >= 3, "two processes at work and spawn's tracker")
    started = children(long_run.pid)
    # as a terminal does: to the whole foreground group
    os.killpg(long_run.pid, signal.SIGINT)
    _, errors = long_run.communicate(timeout=WAIT_S)
    assert long_run.returncode == 130
    assert "Traceback" not in errors
    until(lambda: not any(alive(pid) for pid in started), "its processes to end")
