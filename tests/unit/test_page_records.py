"""Records on the page: read by the records' own reader, shown where the page shows what lives."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from testbed.messages.script import StepOfRun
from testbed.records.facts import RecordedHost, RecordedNetwork, RecordedSource, RecordedTestbed
from testbed.records.record import CONFIGURATION, DONE, FAILED, FILE, RESULT, RUNS, Record, Run, SetUp
from testbed.records.store import Store
from testbed.topology import catalogue
from testbed.webpage.page import RECORDS, shown
from testbed.webpage.recorded import of_record
from tests.unit import results
from tests.unit.page_world import NOW, TRUSTED, World, change

LINKS = [results.link("u1h1", 50_000_000, drops=1), results.link("u1h2")]
RESULT_OF_RUN = results.result(
    id=4,
    placement=["u1", "u1"],
    ps_host="u3h1",
    notes=["restart 1 of at most 2"],
    workers=[results.worker(0, "u1h1"), results.worker(1, "u1h2")],
    ocs={"events": [change(3, NOW + 1, [("u1o1", "u2o1")], [("u1o1", "u3o2")])]},
    links=LINKS,
    telemetry={
        **results.TELEMETRY,
        "links": [results.of_link("u1h1", 0.95)],
        "cores": [results.of_core(0, 0.4)],
    },
    verdict=TRUSTED,
)


STEP = StepOfRun(3.0, "s.yaml", 3.0, 3.0, 3.0, "link set u1h1 --down", 0, "", "")


def written(folder: Path, result: dict[str, Any] | None = None, **changes: Any) -> Record:
    """A record with one run, as a command leaves it."""
    network = RecordedNetwork((("u1o1", "u2o1"),), (), ())
    set_up = SetUp(
        {},
        {},
        (),
        RecordedTestbed(configuration="default"),
        network,
        {},
        RecordedSource("abc"),
        {},
        RecordedHost(),
    )
    run = Run(1, NOW, NOW + 9, verdict=TRUSTED["line"], trustworthy=True)
    words = ("run", "--place", "u1:2", "train.py")
    record = Record("run", words, "/", "me", NOW, set_up, DONE, NOW + 10, 0, runs=(run,))
    record = replace(record, **changes)
    place = folder / "20330518-033320-run"
    (place / RUNS / "1").mkdir(parents=True)
    (place / FILE).write_text(json.dumps(record.to_json()))
    (place / CONFIGURATION).write_text(catalogue.ready("default").to_json())
    if result is not None:
        (place / RUNS / "1" / RESULT).write_text(json.dumps(result))
    return Record.read(place)


def test_a_run_is_shown_as_it_was(tmp_path: Path) -> None:
    view = of_record(written(tmp_path, RESULT_OF_RUN))
    assert [(unit.name, len(unit.hosts)) for unit in view.units] == [
        ("u1", 4),
        ("u2", 4),
        ("u3", 2),
        ("u4", 2),
    ]
    held = {host.name for unit in view.units for host in unit.hosts if host.job == 4}
    assert held == {"u1h1", "u1h2", "u3h1"}
    (job,) = view.jobs
    assert (job.state, job.verdict, job.attention) == (
        "done",
        "trustworthy: within 3 %",
        ("restart 1 of at most 2",),
    )
    assert (view.links["u1h1"].share, view.links["u1h1"].up_mbps, view.links["u1h2"].share) == (0.95, 100, 0)
    assert [circuit.name for circuit in view.circuits] == ["u1o1-u3o2"]
    assert view.cores == (0.4,)
    assert ("verdict", "trustworthy: within 3 %") in view.facts
    spans = {(span.name, span.began - NOW, span.is_dark) for span in view.spans.circuits}
    assert spans == {("u1o1-u2o1", 0, False), ("u1o1-u3o2", 1, True), ("u1o1-u3o2", 1.5, False)}
    assert (view.spans.began, view.spans.now) == (NOW, NOW + 9)


def test_a_submission_has_its_jobs_by_their_times(tmp_path: Path) -> None:
    job = results.queued(8, run=None)
    failed = results.queued(
        9, "b", hosts=[], failure="it was cancelled", started_s=None, ended_s=None, run=None
    )
    view = of_record(written(tmp_path, results.submission(job, failed), command="submit"))
    assert [(shown.number, shown.state, shown.script) for shown in view.jobs] == [
        (8, "done", "a"),
        (9, "failed", "b"),
    ]
    first = view.spans.jobs[0]
    assert (first.began - NOW, first.ended - NOW) == (2, 5)


def test_a_script_s_steps_are_told(tmp_path: Path) -> None:
    run = Run(1, NOW, NOW + 9, steps=(STEP,))
    view = of_record(written(tmp_path, RESULT_OF_RUN, runs=(run,)))
    (step,) = [line for line in view.happenings if line.text.startswith("step")]
    assert (step.at - NOW, step.text) == (3.0, "step: link set u1h1 --down")


def test_a_record_without_a_result_says_why(tmp_path: Path) -> None:
    view = of_record(written(tmp_path, None, state=FAILED, failure="its worker died"))
    assert view.attention == ("its worker died",)
    assert view.jobs == ()


@pytest.mark.parametrize(
    ("path", "says"),
    [
        (RECORDS, "20330518-033320-run"),
        ("/record/20330518-033320-run", "record 20330518-033320-run"),
        ("/record/..%2F20330518-033320-run", "no record"),
        ("/record/nonesuch", "no record 'nonesuch'"),
        ("/elsewhere", "no page /elsewhere"),
    ],
)
def test_the_page_opens_them(path: str, says: str, tmp_path: Path) -> None:
    written(tmp_path, RESULT_OF_RUN)
    world = World(tmp_path)
    page = shown(path, None, world.source, Store(tmp_path))
    assert says in json.dumps({name: part.content for name, part in page.items()}, default=vars)
    assert world.asked == [], "of a record the testbed knows nothing"


def test_records_that_are_switched_off_are_said_to_be(tmp_path: Path) -> None:
    world = World(tmp_path)
    for path in (RECORDS, "/record/x"):
        page = shown(path, None, world.source, None)
        assert "records are switched off" in json.dumps(page["head"].content, default=vars)
