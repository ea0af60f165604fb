"""`testbed reproduce trio fig12`: what is said of the paper, shown, drawn and asked. Made-up runs, no
testbed.
"""

from __future__ import annotations

import argparse
import io
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from reproductions.live import trust
from reproductions.trio.accuracy import claims
from reproductions.trio.accuracy.figure import EXPERIMENTS
from reproductions.trio.accuracy.runs import IDEAL, AccuracyReport, AccuracyRow, final, reached, reached_s
from reproductions.trio.slow.setting import SWITCHML, TRIO, WORKERS
from reproductions.verdicts import AGREES, DIFFERS, SIZE, TIE
from testbed.errors import RequestError
from testbed.messages.coding import plain
from testbed.messages.verdict import JobVerdict
from workloads.jobs import timed_digits as training
from workloads.jobs.digits import digits

(FIGURE,) = EXPERIMENTS
RISING = [0.1, 0.5, 0.92, 0.91, 0.95]


def row(way: str, seed: int, iteration_s: float, accuracy: list[float] = RISING) -> AccuracyRow:
    return AccuracyRow(
        way=way,
        seed=seed,
        accuracy=accuracy,
        ended_s=[iteration_s * number for number in range(1, len(accuracy) + 1)],
        delays=0,
        blocks=200 if way == TRIO.sync else None,
        without={"0": 30, "5": 50} if way == TRIO.sync else None,
        verdict=JobVerdict(True, "verdict: trustworthy", (), ()),
    )


def rows(
    trio_s: float = 0.4, trio: list[float] = RISING, ideal: list[float] = RISING, seeds: int = 2
) -> list[AccuracyRow]:
    made = []
    for seed in range(1, seeds + 1):
        made += [
            row(IDEAL, seed, 0.2, ideal),
            row(SWITCHML.sync, seed, 0.6),
            row(TRIO.sync, seed, trio_s, trio),
        ]
    return made


def report_of(made: list[AccuracyRow]) -> dict[str, Any]:
    """Return the report of these runs in JSON's form, as `testbed reproduce` has it."""
    sums = trust([each.verdict for each in made])
    report = {"figure": "fig12", **plain(AccuracyReport(1, made, sums, 2, 5, 0.9, 200.0, 190.0))}
    return {**report, "claims": FIGURE.claims(report)}


def options(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    FIGURE.options(parser)
    parsed = parser.parse_args(words)
    FIGURE.check(parsed)
    return parsed


def test_a_target_is_reached_where_it_is_for_the_first_time() -> None:
    made = row(IDEAL, 1, 0.2)
    assert (reached(made, 0.9), reached(made, 0.95), reached(made, 0.96)) == (3, 5, None)
    assert reached_s(made, 0.9) == pytest.approx(0.6)
    assert reached_s(made, 0.96) is None
    assert final(made, 2) == pytest.approx(0.93)


@pytest.mark.parametrize(("trio_s", "word"), [(0.4, AGREES), (0.25, AGREES), (0.5, SIZE), (0.61, DIFFERS)])
def test_a_ratio_agrees_that_is_the_papers_or_more(trio_s: float, word: str) -> None:
    claim = claims.of(rows(trio_s), 0.9)[0]
    assert claim.paper == "1.56 to 1.60"
    assert claim.ours == f"{0.6 / trio_s:.2f} ({0.6 / trio_s:.2f} to {0.6 / trio_s:.2f})"
    assert claim.verdict == word


def test_what_degraded_sums_cost_is_said() -> None:
    later = [0.1, 0.5, 0.7, 0.91, 0.92]
    _, ours, baseline, more, lost = claims.of(rows(trio=later), 0.9)
    assert (ours.ours, ours.verdict) == ("2.67 (2.67 to 2.67)", DIFFERS)
    assert (baseline.ours, baseline.verdict) == ("3.00 (3.00 to 3.00)", AGREES)
    assert (more.ours, more.verdict) == ("1.33 (1.33 to 1.33)", DIFFERS)
    assert (lost.ours, lost.verdict) == ("-5.00 (standard error 0.00)", DIFFERS)
    _, _, _, more, lost = claims.of(rows(), 0.9)
    assert (more.verdict, lost.verdict) == (TIE, AGREES)


def test_runs_that_never_come_to_the_target_are_counted() -> None:
    made = rows(trio=[0.1, 0.2, 0.3, 0.4, 0.5])
    assert claims.of(made, 0.9)[0].ours == "not reached in 2 of 2"
    assert claims.of(made, 0.9)[0].verdict == DIFFERS
    made[2] = row(TRIO.sync, 1, 0.4)
    assert claims.of(made, 0.9)[0].ours == "1.50; not reached in 1 of 2"


def test_workers_batches_have_no_image_twice_in_an_epoch() -> None:
    train, _ = digits()
    by_worker = [training.batches(train, 64, 3, rank, WORKERS, 1) for rank in range(WORKERS)]
    order: list[int] = []
    images = {image.numpy().tobytes(): number for number, image in enumerate(train.tensors[0])}
    for worker in by_worker:
        assert [len(labels) for _, labels in worker] == [64, 64, 64]
        order += [images[image.numpy().tobytes()] for batch, _ in worker for image in batch]
    assert len(set(order)) == len(order) == 3 * 64 * WORKERS
    again = training.batches(train, 64, 3, 0, WORKERS, 1)
    assert (again[2][1] == by_worker[0][2][1]).all()


def test_a_digest_is_of_all_parameters() -> None:
    net = training.network()
    before = training.digest(net)
    list(net.parameters())[-1].data[-1] += 1e-6
    assert training.digest(net) != before


def test_reports_are_shown_and_drawn(tmp_path: Path) -> None:
    report = report_of(rows())
    console = Console(file=io.StringIO(), width=200)
    FIGURE.show(report, console)
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "seed 2, Trio-ML" in shown
    assert "25% at most" in shown
    FIGURE.draw(report, tmp_path / "fig12.png")
    assert (tmp_path / "fig12.png").read_bytes().startswith(b"\x89PNG")


def test_defaults_and_what_is_refused() -> None:
    asked = options()
    assert (asked.seeds, asked.iterations, asked.target) == (5, 60, 0.9)
    quick = options("--quick")
    assert (quick.seeds, quick.iterations, quick.target) == (1, 20, 0.5)
    for words, says in (
        (("--seeds", "0"), "--seeds 0: 1 to 100 are accepted"),
        (("--iterations", "9"), "--iterations 9: 10 to 10000 are accepted"),
        (("--target", "1.5"), "--target 1.5: 0.2 to 1 are accepted"),
        (("--target", "nan"), "--target nan: 0.2 to 1 are accepted"),
    ):
        with pytest.raises(RequestError) as refused:
            options(*words)
        assert str(refused.value) == says
