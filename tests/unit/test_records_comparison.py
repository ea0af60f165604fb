"""Comparisons: what is said of set-ups that differ, of results, and of figures; as text, and as a picture."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib.image
import pytest
from matplotlib.figure import Figure

from testbed.messages.coding import decode, plain
from testbed.messages.script import StepOfRun
from testbed.records import Record, Store
from testbed.records.comparison import Comparison, Differing, NumberRow, Side, compare, set_up_differences
from testbed.records.facts import RecordedFault, RecordedHost, RecordedNetwork, RecordedSource
from testbed.records.measures import known, measures
from testbed.records.plots import draw, draw_panel, side_names
from testbed.records.record import CONFIGURATION
from testbed.records.statistics import Said, mean
from testbed.records.tables import comparison, listing, means_of, page, size, value
from tests.unit import recorded, results


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "runs")


def runs(store: Store, *round_ms: float, **set_up: Any) -> Record:
    return recorded.record(store, [recorded.result(each) for each in round_ms], **set_up)


def against(*records: Record) -> Comparison:
    return compare([Side((record,)) for record in records])


# ---------------------------------------------------------------- numbers


def test_the_numbers_of_a_job() -> None:
    assert measures(recorded.run_result()) == {
        "wall_s": [2.0],
        "round_ms": [10.0],
        "allowed_ms": [8.0],
        "ratio": [1.25],
        "all_reduce_ms": [25.0],
        "link_mb": [1.5],
        "drops": [1.0],
        "retransmits": [5.0],
    }
    assert measures(recorded.run_result(bound=None)).keys() == {
        *("wall_s", "all_reduce_ms", "link_mb", "drops", "retransmits")
    }
    assert measures(recorded.run_result(failure="x")) == {}
    assert measures(recorded.outcome(results.script(), "script")) == {}
    for left in (7, [], {"count": "x"}, {"count": 0, "busy_s": 1.0}, None):
        worker = results.worker(0, "u1h1", {"allreduce": left, "retransmits": "many"})
        assert not measures(recorded.run_result(workers=[worker])).keys() & {"all_reduce_ms", "retransmits"}


def test_the_numbers_of_a_queue() -> None:
    times = [{"waiting_s": 1.0, "training_s": 4.0}, {"waiting_s": 3.0, "training_s": None}]
    numbers = measures(results.read_submission(*(results.queued(**each) for each in times)))
    assert numbers["waiting_s"] == [2.0]
    assert numbers["training_s"] == [4.0]
    assert numbers["reconfigured_connections"] == [2.0]


def test_the_numbers_of_a_figure_are_by_setting_and_seeds_are_repeats() -> None:
    rows = [
        {"value": 800, "scheme": scheme, "seed": seed, "ct_bti_s": base + seed, "status": None}
        for scheme, base in (("fcfs", 10.0), ("tw", 5.0))
        for seed in (1, 2)
    ]
    report = {"version": 1, "runs": rows, "means": [{"scheme": "fcfs", "ct_bti_s": 1.0}]}
    assert measures(report) == {"800 fcfs ct_bti_s": [11.0, 12.0], "800 tw ct_bti_s": [6.0, 7.0]}
    assert known("800 tw ct_bti_s").title == "800 tw ct_bti_s"
    assert measures({"rows": [{"workers": 1}]}) == {}


# ---------------------------------------------------------------- set-ups


def differing(*records: Record) -> dict[str, tuple[str, ...]]:
    return {part.what: part.values for part in set_up_differences([Side((each,)) for each in records])}


def test_set_ups_that_are_equal(store: Store) -> None:
    assert differing(runs(store, 1.0), runs(store, 2.0)) == {}


def test_each_part_of_a_set_up_counts(store: Store) -> None:
    first = runs(store, 1.0)
    second = runs(
        store,
        1.0,
        options={"sync": "ring", "arguments": ["--turns", "13"]},
        seeds={"ocs": 2},
        network=RecordedNetwork((), (RecordedFault("u1h1", loss=0.01),), ()),
        versions={"python": "3.12.0"},
        source=RecordedSource("abc", True),
        environment={},
        host=RecordedHost("here", cores=4),
    )
    assert differing(first, second) == {
        "option sync": ("inc", "ring"),
        "option arguments": ("--turns 12", "--turns 13"),
        "seed ocs": ("1", "2"),
        "network circuits": ("u1o1-u2o1", "-"),
        "network faults[u1h1].link": ("-", "u1h1"),
        "network faults[u1h1].loss": ("-", "0.01"),
        "version of python": ("3.11.2", "3.12.0"),
        "source changed": ("no", "yes"),
        "variable OMP_NUM_THREADS": ("1", "-"),
        "host cores": ("2", "4"),
    }


def test_keys_of_the_configuration_are_named(store: Store) -> None:
    first, second = runs(store, 1.0), runs(store, 1.0)
    for made, ports in ((first, 2), (second, 4)):
        text = json.dumps({"scale": 200, "units": [{"index": 1, "optical_ports": ports}]})
        (made.folder / CONFIGURATION).write_text(text)
    assert differing(first, second) == {"configuration units[1].optical_ports": ("2", "4")}


def test_scales_that_machines_chose_are_compared(store: Store) -> None:
    first, second = runs(store, 1.0), runs(store, 1.0)
    for made, scale in ((first, 680), (second, 340)):
        (made.folder / CONFIGURATION).write_text(json.dumps({"scale": scale, "units": []}))
    assert differing(first, second) == {"configuration scale": ("680", "340")}


def test_scripts_are_compared_by_their_content(store: Store, tmp_path: Path) -> None:
    script = tmp_path / "x.py"
    script.write_text("a = 1\nb = 2\n")
    first = recorded.record(store, [], inputs=[("script", script)])
    script.write_text("a = 1\nb = 3\nc = 4\n")
    second = recorded.record(store, [], inputs=[("script", script)])
    (values,) = differing(first, second).values()
    assert values[0].startswith(f"{script} ")
    assert values[1].endswith(" (+2 -1 lines)")


def test_steps_of_a_script_are_part_of_the_set_up(store: Store) -> None:
    first, second = runs(store, 1.0), runs(store, 1.0)
    done = results.step("link set u1h1 --down")
    step = decode(StepOfRun, {"run_s": 4.2, "script": "s.yaml", **done}, "step")
    second = replace(second, runs=(replace(second.runs[0], steps=(step,)),))
    assert differing(first, second) == {"step 1 in run 1": ("-", "4 s: link set u1h1 --down")}


def test_records_that_count_as_one_side_should_be_of_one_set_up(store: Store) -> None:
    first, other = runs(store, 1.0), runs(store, 2.0, seeds={"ocs": 2})
    compared = compare([Side((first, other)), Side((first,))])
    assert compared.set_up == (Differing("seed ocs", ("1 / 2", "1")),)
    assert Side((first, other)).values()["round_ms"] == [1.0, 2.0]


# ---------------------------------------------------------------- results


def test_results_are_held_against_the_first(store: Store) -> None:
    compared = against(
        runs(store, 10.0, 10.1, 9.9, 10.05), runs(store, 15.0, 15.2, 15.1, 14.9), runs(store, 10.0, 10.06)
    )
    rows = {row.measure.name: row for row in compared.rows}
    slower, alike = rows["round_ms"].differences
    assert slower is not None
    assert alike is not None
    assert (slower.said, alike.said) == (Said.MORE, Said.WITHIN)
    assert [each and each.said for each in rows["link_mb"].differences] == [Said.SAME, Said.SAME]


def test_a_number_that_one_side_lacks(store: Store) -> None:
    first, second = runs(store, 10.0), recorded.record(store, [recorded.result(bound=None)])
    assert "round_ms" not in {row.measure.name for row in against(first, second).rows}
    third = runs(store, 11.0)
    row = next(row for row in against(first, second, third).rows if row.measure.name == "round_ms")
    assert row.means[1] is None
    assert row.differences[0] is None
    assert row.differences[1] is not None


def test_claims_of_figures_are_compared(store: Store) -> None:
    def figure(ours: str) -> Record:
        claims = [
            {"text": "less", "ours": ours, "verdict": "agrees"},
            {"text": "same", "ours": "1", "verdict": "tie"},
        ]
        return recorded.record(store, [{"claims": claims, "runs": []}], command="reproduce")

    first = figure("4 %")
    assert against(first, figure("5 %")).claims == (Differing("less", ("4 % (agrees)", "5 % (agrees)")),)
    assert "claims: 1 agrees, 1 tie" in page(first)


# ---------------------------------------------------------------- text and picture


def test_a_comparison_as_text(store: Store) -> None:
    text = comparison(against(runs(store, 10.0, 10.1, 9.9), runs(store, 15.0, 15.2, 15.1, seeds={"ocs": 2})))
    for part in (
        "A  2",
        ": done, 3 runs with numbers, 3 of 3 trustworthy",
        "Set-up\n            A  B\n  seed ocs  1  2\n",
        "  round                        10.00 ± 0.25 ms  15.10 ± 0.25 ms  +51.0%, more than the noise (p ",
        "B differs from A by more than the noise in: round, round over what links allow",
    ):
        assert part in text, text


def test_times_of_runs_that_are_not_trustworthy_are_not_compared(store: Store) -> None:
    doubtful = {**results.TRUSTED, "trustworthy": False, "line": "verdict: not trustworthy"}
    slow = [recorded.result(each, verdict=doubtful) for each in (15.0, 15.2, 15.1)]
    for result in slow:
        result["links"] = [{**link, "bytes": 2 * link["bytes"]} for link in result["links"]]
    sides = runs(store, 10.0, 10.1, 9.9), recorded.record(store, slow)
    for first, second in (sides, sides[::-1]):
        compared = against(first, second)
        said = {row.measure.name: row.differences[0] for row in compared.rows}
        assert {name for name, each in said.items() if each and each.said == Said.MORE} == {"link_mb"}
        assert said["round_ms"] is not None
        assert said["round_ms"].said == Said.UNJUDGED
        text = comparison(compared)
        assert "B differs from A by more than the noise in: on all links" in text
        assert "B against A: times are not judged, for not all runs are trustworthy" in text
        assert re.search(r"^  round  .* [+-]\d+\.\d%, not judged$", text, re.MULTILINE), text


def test_one_run_each_says_what_to_do(store: Store) -> None:
    text = comparison(against(runs(store, 10.0), runs(store, 15.0)))
    assert "no difference that is recorded" in text
    assert re.search(r"^  round +10 ms +15 ms +\+50\.0%, noise not known$", text, re.MULTILINE)
    assert "B against A: too few runs to know the noise: testbed run --repeat N" in text


def test_records_without_numbers_in_common(store: Store) -> None:
    text = comparison(
        against(runs(store, 10.0), recorded.record(store, [results.script()], command="script"))
    )
    assert "no number that two of them have" in text
    assert "command  run  script" in text


def test_a_record_as_text(store: Store) -> None:
    text = page(runs(store, 10.0, 11.0))
    for part in (
        "-run: done\n  testbed run x.py\n",
        "on testbed one, configuration default",
        "seeds ocs 1",
        "run 2: verdict: trustworthy",
        "means of 2 runs, ± 95 % confidence:",
        "round                        10.5 ± 6.4 ms",
    ):
        assert part in text, text
    assert "2 of 2 trustworthy" in listing(store.records())


def test_a_record_names_the_stacks_of_workers_whose_job_failed(store: Store) -> None:
    record = runs(store, 10.0)
    assert "stacks of" not in page(record)
    logs = record.folder / "runs" / "1" / "logs"
    logs.mkdir(parents=True, exist_ok=True)
    for rank in range(2):
        (logs / f"stacks-{rank}.log").touch()
    assert "  stacks of 2 workers as it failed: runs/1/logs/stacks-0.log ..." in page(record)


def test_means_as_json() -> None:
    repeated = [recorded.run_result(10.0), recorded.run_result(12.0)]
    means = plain(means_of(repeated))
    assert means["runs"] == [recorded.result(10.0), recorded.result(12.0)]
    assert list(means["means"]["round_ms"]) == ["mean", "low", "high", "values"]
    assert means["means"]["round_ms"]["mean"] == 11.0
    assert means["means"]["round_ms"]["values"] == [10.0, 12.0]


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([1.0], "1 s"),
        ([1.0, 1.0], "1 s"),
        ([123.4, 123.6], "123.5 ± 1.3 s"),
        ([1e6, 3e6], "2000000 ± 12706205 s"),
    ],
)
def test_a_mean_in_as_many_digits_as_it_has(values: list[float], text: str) -> None:
    assert value(mean(values), "s") == text


@pytest.mark.parametrize(("count", "text"), [(0, "0 B"), (1500, "1.5 kB"), (2_000_000_000, "2 GB")])
def test_sizes_in_words(count: int, text: str) -> None:
    assert size(count) == text


def test_a_picture_has_a_panel_for_what_differs(store: Store, tmp_path: Path) -> None:
    two = against(runs(store, 10.0, 10.1), runs(store, 15.0, 15.2))
    same = against(runs(store, 10.0), runs(store, 10.0))
    lone = against(
        runs(store, 10.0), runs(store, 11.0), recorded.record(store, [recorded.result(bound=None)])
    )
    for number, compared in enumerate((two, same, lone)):
        draw(compared, tmp_path / f"{number}.png")
        assert matplotlib.image.imread(tmp_path / f"{number}.png").shape[0] > 100
    assert (tmp_path / "0.png").read_bytes() != (tmp_path / "1.png").read_bytes()


def test_a_side_is_named_by_what_tells_it_from_the_others(store: Store) -> None:
    def options(**changes: str) -> dict[str, str]:
        return {"sync": "inc", "script": "a.py", **changes}

    inc = runs(store, 10.0, options=options())
    ring = runs(store, 11.0, options=options(sync="ring"))
    long = runs(store, 11.0, options=options(script="/home/alice/projects/of/this/summer/train.py"))
    assert side_names(against(inc, ring)) == ["sync inc", "sync ring"]
    assert side_names(against(inc, ring, long)) == [
        "sync inc, script a.py",
        "sync ring, script a.py",
        "sync inc, script .../of/this/summer/train.py",
    ]
    assert side_names(against(inc, inc)) == [inc.name] * 2  # there is nothing else to name them by


@pytest.mark.parametrize(
    ("first", "second", "is_cut"),
    [((10.0, 10.1), (15.0, 15.2), False), ((100.0, 100.1), (101.0, 101.1), True), ((0.0,), (0.0,), False)],
)
def test_an_axis_begins_at_zero_or_is_marked_as_cut(
    first: tuple[float, ...], second: tuple[float, ...], is_cut: bool
) -> None:
    figure = Figure()
    panel = figure.subplots()
    row = NumberRow(known("round_ms"), (mean(first), mean(second), None), (None, None))
    draw_panel(panel, row, ["one", "two", "three"])
    assert ("axis cut" in panel.get_title(loc="left")) == is_cut
    low, high = panel.get_ylim()
    assert (low > 0) == is_cut
    assert high > max(second)
    assert [text.get_text() for text in panel.texts] == ["no number"]


@pytest.mark.parametrize(
    ("failures", "says"),
    [
        ([None], "trustworthy"),
        (["worker 1 exited with code 1"], "failed"),
        ([None, None, "worker 1 exited with code 1"], "2 of 2 trustworthy, 1 failed"),
    ],
    ids=["done", "failed", "the third failed"],
)
def test_a_job_that_failed_is_not_said_to_be_untrustworthy(
    failures: list[str | None], says: str, store: Store
) -> None:
    """The verdict on it is that it is not, which no link and no machine is to blame for."""
    good = results.TRUSTED
    lost = {**good, "trustworthy": False, "line": "verdict: not trustworthy: the job failed"}
    outcomes = [recorded.result(failure=failure, verdict=lost if failure else good) for failure in failures]
    made = recorded.record(store, outcomes)
    if failures[-1]:
        made = replace(made, state="failed")
    line = listing([made]).splitlines()[1]
    assert f"  {says}  " in line, line
    assert "not trustworthy" not in line
    assert Side((made,)).is_doubtful() == bool(failures[-1]), "its times are compared with no other's"
