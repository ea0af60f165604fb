"""`testbed reproduce`: its pool of processes, the paper's claims against made-up runs, and the command with
tiny settings.
"""

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

from testbed import reproduce
from testbed.errors import HostError, RequestError, TestbedError
from testbed.reproduction.pool import Pool
from testbed.reproduction.verdicts import AGREES, DIFFERS, PARTLY, SIZE, TIE, Held, level, of_gain
from testbed.systems.p4inc.figures.simulated.claims import CLAIMS, TABLE1, findings, headline
from testbed.systems.p4inc.figures.simulated.means import AOI, CT_BTI, Sweep
from testbed.systems.p4inc.figures.simulated.trials import Measured, trials_of
from testbed.systems.p4inc.simulator.settings import FOUR, SETTINGS
from tests.processes import alive

WAIT_S = 180.0
CHECKOUT = Path(__file__).resolve().parents[2]
TINY = ("units=8", "slot_s=0.5", "iterations=20", "job_count=7,11", "megabytes=100,200")
TRACE = "5 3\n1 0 1 2 1 4:150\n2 700 3 0 1 4 2 0:648.0 3:972.0\n7 700 1 0 1 0:80\n"

# ------------------------------------------------------------------ the pool


def work(piece: int, given: str) -> str:
    if piece == 7:
        raise RequestError("seven is not accepted")
    if piece == 13:
        os._exit(13)
    if piece == 600:
        time.sleep(600)
    return f"{given}{piece}"


def test_all_pieces_come_back() -> None:
    with Pool[int, str](work, ("n",), 2) as pool:
        assert dict(pool.results(range(6))) == {n: f"n{n}" for n in range(6)}


def test_an_error_names_its_piece_and_keeps_its_code() -> None:
    with (
        Pool[int, str](work, ("n",), 2) as pool,
        pytest.raises(RequestError, match=r"^7: seven is not accepted$"),
    ):
        list(pool.results([1, 7, 2]))


def test_a_process_that_ends_is_not_waited_for() -> None:
    with Pool[int, str](work, ("n",), 2) as pool, pytest.raises(TestbedError, match=r"^13: .* exit code 13$"):
        list(pool.results([13]))


def test_leaving_the_block_ends_what_runs() -> None:
    began = time.monotonic()
    with Pool[int, str](work, ("n",), 2) as pool:
        results = pool.results([600, 1])
        assert next(results) == (1, "n1")
    assert time.monotonic() - began < 500, "the other piece takes 600 s"


# ------------------------------------------------------------------ the paper's claims


def made_up(
    scheme: str, value: float, seed: int, ct_bti_s: float, connections: int, bound_s: float | None = None
) -> Measured:
    return Measured(value, scheme, seed, ct_bti_s, connections, connections, 1.0, 0.1, bound_s)


def swept(rows: dict[str, list[tuple[float, int]]], values: tuple[float, ...] = (1, 2)) -> Sweep:
    """(CT-BTI, AOI) by scheme, one for each value; two seeds around them."""
    return Sweep(
        [
            made_up(scheme, value, seed, ct_bti_s * (1 + (seed - 1.5) / 5), connections, ct_bti_s / 2)
            for scheme, cells in rows.items()
            for value, (ct_bti_s, connections) in zip(values, cells, strict=True)
            for seed in (1, 2)
        ]
    )


def verdicts(figure: str, sweep: Sweep) -> dict[str, tuple[str, str]]:
    return {finding.text: (finding.ours, finding.verdict) for finding in findings(figure, sweep)}


def test_means_are_over_the_seeds() -> None:
    sweep = swept({"inc-tw": [(10.0, 4), (20.0, 0)]})
    spread = sweep.spread("inc-tw", 1, CT_BTI)
    assert [spread.mean, spread.least, spread.most] == pytest.approx([10, 9, 11])
    assert sweep.means("inc-tw", AOI) == (4, 0)


def test_reductions_are_averages_over_the_swept_values() -> None:
    sweep = swept({"inc-tw": [(5.0, 1), (5.0, 3)], "noinc-tw": [(10.0, 10), (20.0, 0)]})
    assert sweep.reduction(CT_BTI, "inc-tw", "noinc-tw") == pytest.approx((0.5 + 0.75) / 2)
    # nothing can be less than no reconfiguration
    assert sweep.reduction(AOI, "inc-tw", "noinc-tw") == pytest.approx(0.9)


def test_table1_deviates_as_the_paper_computes_it() -> None:
    sweep = swept({"milp": [(3.4, 1)], "inc-fcfs": [(6.0, 1)]}, (40,))
    # of the longer, not of the optimum: 43.3 % as printed, where 76.5 % of the optimum are meant by most
    assert sweep.deviation("inc-fcfs", 40).mean == pytest.approx(0.433, abs=5e-4)
    assert sweep.excess("inc-fcfs", 40).mean == pytest.approx(6.0 / 1.7 - 1)


def test_the_papers_own_table_is_consistent() -> None:
    for jobs, row in TABLE1.items():
        for scheme, (_, ct_bti_s, delta, _) in row.items():
            if delta is not None:
                assert 100 * (1 - row["milp"][1] / ct_bti_s) == pytest.approx(delta, abs=0.06), (jobs, scheme)


def test_claims_find_what_agrees_and_what_does_not() -> None:
    rows = {
        "noinc-fcfs": [(100.0, 1000), (200.0, 2000)],
        "noinc-tw": [(13.0, 70), (27.0, 140)],
        "inc-fcfs": [(90.0, 450), (20.0, 900)],
        "inc-tw": [(12.0, 440), (20.0, 880)],
    }
    by_text = verdicts("fig8", swept(rows))
    assert by_text["noINC-TW has less reconfigured connections than noINC-FCFS, by"] == (
        "93.0% ± 0.0%, 1.00 times the paper's",
        AGREES,
    )
    assert by_text["INC-FCFS has less reconfigured connections than noINC-FCFS, by"] == (
        "55.0% ± 0.0%, 0.99 times the paper's",
        AGREES,
    )
    assert by_text["INC-TW has less reconfigured connections than INC-FCFS, by"] == (
        "2.2% ± 0.0%, 0.02 times the paper's",
        SIZE,
    )
    assert by_text["INC-TW has less CT-BTI than INC-FCFS, by"] == (
        "43.3% ± 0.0%, 0.51 times the paper's",
        SIZE,
    )
    assert by_text["INC-TW has the shortest CT-BTI"] == ("at 1 of 2, tied at 1", PARTLY)
    assert by_text["INC-TW has the fewest reconfigured connections"] == ("at 0 of 2", DIFFERS)
    assert by_text["noINC-TW has a shorter CT-BTI than INC-FCFS"] == ("at 1 of 2", DIFFERS)


def test_a_tie_is_told_as_a_tie() -> None:
    """All ends are those of the arrivals: nobody is ahead, and the headline names all who are level."""
    rows = {
        "noinc-fcfs": [(90.0, 900), (90.0, 900)],
        "noinc-tw": [(40.0, 100), (52.0, 100)],
        "inc-fcfs": [(80.0, 500), (80.0, 500)],
        "inc-tw": [(40.0, 50), (52.0, 50)],
    }
    sweep = swept(rows)
    by_text = verdicts("fig8", sweep)
    assert by_text["INC-TW has the shortest CT-BTI"] == ("at 0 of 2, tied at 2", TIE)
    assert by_text["INC-TW has the fewest reconfigured connections"] == ("at 2 of 2", AGREES)
    assert headline(sweep) == "Shortest CT-BTI: a tie of noINC-TW and INC-TW; fewest connections: INC-TW"


def test_what_the_seeds_cannot_tell_apart_is_level() -> None:
    apart = [[10.0, 12.0, 11.0, 9.0], [10.6, 11.2, 11.8, 9.0]]
    assert level(*apart), "0.15 apart, and the pairs differ by 0.7"
    assert not level([value + 2 for value in apart[0]], apart[1])
    assert level([10.0], [10.04])
    assert not level([10.0], [10.06])


@pytest.mark.parametrize(
    ("ours", "paper", "error", "word"),
    [
        (0.051, 0.917, 0.0, SIZE),  # 5 % beside 92 % is no agreement, nor the same direction alone
        (0.74, 0.917, 0.0, AGREES),
        (0.73, 0.917, 0.0, SIZE),
        (1.10, 0.917, 0.0, AGREES),
        (1.11, 0.917, 0.0, SIZE),
        (0.12, 0.12, 0.07, TIE),  # as large as the paper's, and not apart from nothing
        (0.004, 0.12, 0.0, TIE),
        (-0.02, 0.12, 0.0, DIFFERS),
        (-0.02, 0.12, 0.02, TIE),
    ],
)
def test_a_gain_agrees_within_a_band_of_the_papers(
    ours: float, paper: float, error: float, word: str
) -> None:
    assert of_gain(ours, paper, error) == word


def test_at_how_many_values_a_claim_holds() -> None:
    counts = {Held(4, 0, 4): AGREES, Held(0, 4, 4): TIE, Held(1, 3, 4): PARTLY, Held(3, 0, 4): PARTLY}
    counts |= {Held(2, 1, 4): DIFFERS, Held(0, 3, 4): DIFFERS, Held(0, 0, 4): DIFFERS}
    assert {held: held.verdict for held in counts} == counts


def test_trends() -> None:
    flat = [(10.0, 10)] * 4
    rows = {
        "noinc-fcfs": flat,
        "noinc-tw": [(10.0, 10), (10.0, 10), (10.0, 10), (10.2, 10)],
        "inc-fcfs": [(20.0, 100), (12.0, 40), (8.0, 12), (7.9, 10)],
        "inc-tw": [(8.0, 50), (9.0, 40), (7.0, 30), (6.0, 0)],
    }
    by_text = verdicts("fig11", swept(rows, (2, 4, 8, 16)))
    assert by_text["CT-BTI of noINC-FCFS"] == ("0% apart", AGREES)
    assert by_text["CT-BTI of noINC-TW"] == ("2% apart", DIFFERS)
    assert by_text["CT-BTI of INC-FCFS"][1] == AGREES
    # it falls, but not all the way
    assert by_text["CT-BTI of INC-TW"] == ("-25%", PARTLY)
    assert by_text["reconfigured connections of INC-FCFS level off beyond 8 jobs"][1] == AGREES
    assert by_text["reconfigured connections of INC-TW level off beyond 8 jobs"][1] == DIFFERS


def test_claims_without_their_schemes_are_left_out() -> None:
    assert findings("fig8", swept({"inc-tw": [(1.0, 1), (1.0, 1)]})) == []
    assert set(CLAIMS) == set(SETTINGS)


def test_trials_are_every_scheme_seed_and_value() -> None:
    trials = trials_of(SETTINGS["fig8"], (1, 2), 1.0)
    assert len(trials) == 4 * 2 * len(FOUR)
    # the longest begin first
    assert trials[0].value == 1400
    assert trials_of(SETTINGS["table1"], (1,), 1.0)[0].scheme == "milp"


# ------------------------------------------------------------------ the command


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
    report = ran("fig8", tmp_path)
    printed = capsys.readouterr().out
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
        (["p5inc", "fig8"], "no paper 'p5inc'; accepted: p4inc"),
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
        "import time\nfrom testbed.reproduction.pool import Pool\n"
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
