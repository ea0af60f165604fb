"""The report: measures from what jobs leave, the document, its tables and pictures."""

from __future__ import annotations

import base64
import io
import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from testbed.errors import HostError, TestbedError
from testbed.messages.coding import decode, plain
from testbed.messages.report import DemoReport
from testbed.messages.result import RunResult
from testbed.plugins.shown_jobs import shown_jobs
from testbed.report import document, host, job_rows, measures, page, plots, style, tables, timeline
from testbed.telemetry.summary import series
from testbed.topology.catalogue import find
from tests.unit import results
from tests.unit.recordings import made

ROOT = Path(__file__).resolve().parents[2]
PARAMS = 13
GRADIENTS = 4 * PARAMS
ITERATIONS = 11


def run_result(
    sync: str, number: int, comm_s: float, spans_bytes: tuple[int, ...] = (40, 12)
) -> dict[str, Any]:
    """Return a result as `testbed run --json` writes it: two workers, two buckets an iteration, the second
    worker twice as slow.
    """

    def spans(slow: int) -> list[list[float]]:
        spans: list[list[float]] = []
        for at in range(ITERATIONS):
            for half, size in enumerate(spans_bytes):
                start = at * 10 * comm_s + half * slow * comm_s / 2
                spans.append([start, start + slow * comm_s / 2, size])
        return [*spans, [1e3, 1e3 + 1, 4 * ITERATIONS]]  # a sum of something else at the end

    links = [
        results.link(name, size * number, drops=drops, rate_mbps=rate)
        for name, rate, size, drops in (
            ("u1h1", 200.0, 3_000_000, 2),
            ("u1o1", None, 1_000, 0),
            ("u1h2", 200.0, 0, 0),
        )
    ]
    return results.result(
        id=number,
        sync=sync,
        wall_s=3.5,
        workers=[
            results.worker(
                slow - 1,
                f"u1h{slow}",
                {
                    "allreduce": {"spans": spans(slow), "busy_s": ITERATIONS * comm_s * slow},
                    "retransmits": 5,
                },
            )
            for slow in (1, 2)
        ],
        ocs={"events": [results.event(number, 100.0 + number)]},
        links=links,
        bound={**results.BOUND, "bound_ms": 40.0 * number, "measured_ms": 50.0 * number},
        verdict={**results.TRUSTED, "line": "verdict: trustworthy: within 4 %"},
    )


def read_run(data: dict[str, Any]) -> RunResult:
    return decode(RunResult, data, "result")


def read(report: dict[str, Any]) -> DemoReport:
    return decode(DemoReport, report, "report")


def training(accuracy: float = 0.98, iteration_ms: float = 50.0) -> dict[str, Any]:
    """Return the training figures as the digits job writes them."""
    return {
        "test_accuracy": accuracy,
        "loss": [2.3 / (1 + at) for at in range(ITERATIONS)],
        "iterations": ITERATIONS,
        "iteration_ms_list": [iteration_ms + at - ITERATIONS // 2 for at in range(ITERATIONS)],
        "epochs": 1,
        "params": PARAMS,
        "dtype": "float32",
    }


@pytest.fixture
def report() -> dict[str, Any]:
    runs = {
        sync: read_run(run_result(sync, number, number * 1e-2))
        for number, sync in enumerate(("inc", "ring", "ps"), 1)
    }
    trainings = {
        sync: document.Training(run, training(iteration_ms=50.0 * number))
        for number, (sync, run) in enumerate(runs.items(), 1)
    }
    return dict(plain(document.document(host.facts(), find("default"), trainings)))


def test_communication_is_the_mean_of_the_workers_by_iteration() -> None:
    measured = measures.job_measures(read_run(run_result("inc", 1, 0.01)), training())
    assert measured.comm_ms == pytest.approx(15.0)  # 10 ms on one worker, 20 ms on the other
    assert len(measured.comm_ms_list) == ITERATIONS
    assert (measured.iteration_ms, measured.retransmits, measured.link_drops) == (50.0, 10, 2)


def test_sums_of_other_sizes_leave_the_mean_over_the_job() -> None:
    measured = measures.job_measures(read_run(run_result("inc", 1, 0.01, spans_bytes=(40, 13))), training())
    assert list(measured.comm_ms_list) == [pytest.approx(15.0)]


def test_spans_that_overlap_count_once() -> None:
    assert measures.covered_s([(2.0, 3.0, 1), (0.0, 1.0, 1), (0.5, 0.75, 1), (0.5, 1.5, 1)]) == pytest.approx(
        2.5
    )
    assert measures.covered_s([]) == 0


@given(
    st.lists(
        st.tuples(st.integers(0, 30), st.integers(0, 9)).map(lambda p: (p[0], p[0] + p[1], 1)), max_size=12
    )
)
def test_covered_time_is_that_of_a_count_by_seconds(spans: list[tuple[int, int, int]]) -> None:
    seconds = {second for start, end, _ in spans for second in range(start, end)}
    assert measures.covered_s([(float(a), float(b), c) for a, b, c in spans]) == len(seconds)


def test_a_worker_without_statistics_is_named() -> None:
    run = run_result("ring", 3, 0.01)
    run["workers"][1]["stats"] = None
    with pytest.raises(TestbedError, match=r"job 3 \(ring\): no statistics from the workers on u1h2"):
        measures.job_measures(read_run(run), training())


@pytest.mark.parametrize("key", ["test_accuracy", "iteration_ms_list", "params"])
def test_a_result_that_lacks_something_is_an_error_that_names_it(key: str) -> None:
    left = {name: value for name, value in training().items() if name != key}
    with pytest.raises(TestbedError, match=rf"job 1 \(inc\): its results do not read: KeyError: '{key}'"):
        measures.job_measures(read_run(run_result("inc", 1, 0.01)), left)


def test_the_document_holds_what_a_reader_looks_for(report: dict[str, Any], tmp_path: Path) -> None:
    document.write_json(tmp_path / "report.json", read(report))
    written = json.loads((tmp_path / "report.json").read_text())
    assert {"kernel", "cores", "memory"} <= set(written["host"])
    assert written["config"]["name"] == "default"
    for job in written["jobs"].values():
        assert {"test_accuracy", "iterations", "iteration_ms", "comm_ms", "loss"} <= set(job)
        assert job["bound"]["ratio"] == 1.25
        assert "emulated" not in json.dumps(job)  # times are real: none is divided by the scale
    assert written["clock"] == {
        "scale": 200,
        "times": "real",
        "volumes": "link rates are divided by the scale",
    }
    for link in written["links"]:
        assert {"name", "rate_mbps", "bytes", "drops"} <= set(link)
    assert written["ocs"]["reconfigurations"] == len(written["ocs"]["events"]) == 3
    for event in written["ocs"]["events"]:
        assert {"asked_ms", "measured_ms", "ports"} <= set(event)
    assert [path.name for path in tmp_path.iterdir()] == ["report.json"]


def test_links_are_summed_over_the_jobs(report: dict[str, Any]) -> None:
    link = next(link for link in report["links"] if link["name"] == "u1h1")
    assert link["bytes"] == 18_000_000
    assert link["bytes_by_sync"] == {"inc": 3_000_000, "ring": 6_000_000, "ps": 9_000_000}
    assert link["drops"] == 6


def test_an_event_that_two_jobs_report_counts_once() -> None:
    runs = {sync: read_run(run_result(sync, 1, 0.01)) for sync in ("inc", "ring")}
    assert [event.sync for event in measures.merged_events(runs)] == ["inc"]


def test_only_jobs_below_the_threshold_are_named(report: dict[str, Any]) -> None:
    assert document.below_threshold(read(report), 0.97) == []
    report["jobs"]["ps"]["test_accuracy"] = 0.9699
    assert document.below_threshold(read(report), 0.97) == ["ps: test accuracy 96.99% is below 97%"]


def test_the_tables_say_it_all_in_80_columns(report: dict[str, Any]) -> None:
    report["ocs"]["events"][0]["measured_ms"] = None
    saturated = "verdict: not trustworthy: core 1 was saturated"
    report["jobs"]["ring"]["verdict"] |= {"trustworthy": False, "line": saturated}
    report["jobs"]["inc-across"] = {
        **report["jobs"]["inc"],
        "link_bytes": 2_820_718_882,
        "link_drops": 40_620,
        "comm_ms_list": [3051.94],  # as on an emulated processor
        "bound": {**report["jobs"]["inc"]["bound"], "measured_ms": 18_151.8, "bound_ms": 999.96},
    }
    report["ocs"]["events"][1] |= {
        "sync": "inc-across",
        "ports": [f"u{unit}o{port}" for unit in (1, 2, 3, 4) for port in (1, 2)],
    }
    console = Console(file=io.StringIO(), width=80)
    tables.show(read(report), console)
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    assert text.index("Bytes per link") < text.index("Reconfigurations") < text.index("Training")
    for expected in (
        "98.00%",
        " 50.0 ",
        " 15.0 ",
        " 40.0 ",
        " 1.25 ",
        " 18152     3052      1000    18.15 2.82 GB  40620   yes",
        "+250 µs",
        "not measured",
        "9 MB",
        "no limit",
    ):
        assert expected in text
    assert "1 more link carried nothing" in text
    lines = [line.strip() for line in text.splitlines()]
    at = lines.index("inc: verdict: trustworthy: within 4 %")
    assert lines[at + 3] == "ring: verdict: not trustworthy: core 1 was saturated"
    assert "…" not in text  # nothing was cut off


def test_a_ratio_is_the_quotient_of_the_two_means_beside_it(report: dict[str, Any]) -> None:
    job = report["jobs"]["inc"]
    job |= {"iteration_ms_list": [1.0, 2.0, 60.0], "comm_ms_list": [9.0, 9.0, 2.0, 3.0, 7.0]}
    judged = {"rounds": 3, "left_out": 2, "measured_ms": 163.8, "bound_ms": 154.6, "ratio": 1.09}
    job["bound"] |= judged
    shown = dict(zip(job_rows.HEADS, job_rows.job_cells("inc", read(report).jobs["inc"]), strict=True))
    assert (shown["time an iteration (ms)"], shown["least by the links (ms)"]) == ("163.8", "154.6")
    assert (shown["measured / least"], shown["communication (ms)"]) == ("1.06", "4.00")
    job["bound"] |= {"rounds": 4}  # its rounds are no iterations of the script
    assert job_rows.MeanTimes.of(read(report).jobs["inc"]).communication_ms == 6.0
    job["bound"] = None
    assert job_rows.MeanTimes.of(read(report).jobs["inc"]) == job_rows.MeanTimes(21.0, 6.0, None)


def test_what_volumes_and_times_stand_for(report: dict[str, Any]) -> None:
    assert job_rows.scale_told(read(report)) == (
        "Times are real. Links have a 200th of their declared rates and these gradients were not divided by "
        "200: to these jobs "
        "the fabric is one of 200 Mb/s, not of 40 Gb/s."
    )
    run = read_run(run_result("inc", 1, 0.01))
    trainings = {"inc": document.Training(run, {**training(), "scale": 200})}
    scaled = document.document(host.facts(), find("default"), trainings)
    assert job_rows.scale_told(scaled) == (
        "Times are real, volumes are divided by 200: 52 B of gradients over 200 Mb/s take what 10.4 kB take "
        "over the 40 Gb/s that "
        "'default' declares."
    )


def test_a_job_without_a_verdict_is_in_the_tables(report: dict[str, Any]) -> None:
    report["jobs"]["ps"] |= {
        "bound": None,
        "verdict": {**results.TRUSTED, "trustworthy": None, "line": "verdict: none: it sent nothing"},
    }
    console = Console(file=io.StringIO(), width=80)
    tables.show(read(report), console)
    assert isinstance(console.file, io.StringIO)
    assert "ps: verdict: none: it sent nothing" in console.file.getvalue()


def test_no_reconfiguration_is_said_so(report: dict[str, Any]) -> None:
    report["ocs"] = {"reconfigurations": 0, "events": []}
    console = Console(file=io.StringIO(), width=80)
    tables.show(read(report), console)
    assert isinstance(console.file, io.StringIO)
    assert "No reconfiguration" in console.file.getvalue()


def test_the_pictures_are_drawn(report: dict[str, Any], tmp_path: Path) -> None:
    drawn = plots.draw_all(read(report), tmp_path)
    assert [path.name for path in drawn] == [
        "loss.png",
        "iteration_time.png",
        "links.png",
        "reconfigurations.png",
    ]
    for path in drawn:
        assert path.read_bytes().startswith(b"\x89PNG")
        assert path.stem in page.CAPTIONS
    assert "telemetry.png" not in [path.name for path in drawn]
    report["ocs"]["events"] = []
    assert "reconfigurations.png" not in [path.name for path in plots.draw_all(read(report), tmp_path)]


def _series(folder: Path, link: list[float]) -> Path:
    path = folder / f"job-{len(link)}.telemetry.npz"
    path.write_bytes(series(made([0.8] * len(link), link, softirq=0.2)))
    return path


def test_what_is_over_time_says_what_is_above_a_rate_and_whose_cores_they_are(
    report: dict[str, Any], tmp_path: Path
) -> None:
    company = {"name": "company", "text": "programs outside of this testbed took 0.61 cores"}
    report["jobs"]["ring"]["verdict"] |= {"notes": [company]}
    job = read(report)
    files = {
        "inc": _series(tmp_path, [0.0] * 3 + [0.5] * 7 + [1.13] + [0.0] * 2),
        "ring": _series(tmp_path, [0.5] * 9),
        "ps": _series(tmp_path, [0.0]),
    }
    with plots.drawing() as plt:
        figure = timeline.telemetry(job, files)
        links, cores, late = (figure.axes[row * 3 : row * 3 + 3] for row in range(3))
        words = " ".join(text.get_text() for text in figure.texts)
        assert "Up to 113% of a rate" in words
        assert "for all programs of the machine, not for the job alone" in words.replace("\n", " ")
        assert [[text.get_text() for text in axes.texts] for axes in links] == [
            ["trustworthy", "highest 113%"],
            ["trustworthy"],
            ["trustworthy"],
        ]
        assert links[0].get_ylim()[1] > 113
        legend = cores[-1].get_legend()
        assert legend is not None
        # core 1 is the busier one
        assert [text.get_text() for text in legend.get_texts()] == ["core 1", "core 0", "of it, on packets"]
        assert "took 0.61" in late[1].get_xlabel()
        assert late[0].get_xlabel() == "seconds of the job"
        plt.close(figure)
    assert "of a rate" not in timeline.finding(job)[1]


def test_no_text_of_a_picture_is_cut_off_and_no_legend_is_over_a_curve(
    report: dict[str, Any], tmp_path: Path
) -> None:
    names = ("inc", "ring", "ps", *(f"hierarchical-chain-of-hosts-in-two-levels-{at}" for at in range(2)))
    report["jobs"] = {name: report["jobs"]["ps"] for name in names}
    for link in report["links"]:
        link["bytes_by_sync"] = dict.fromkeys(names, link["bytes"])
    report["ocs"]["events"][0] |= {"sync": names[-1]}
    job = read(report)
    files = dict.fromkeys(names, _series(tmp_path, [0.5] * 9))
    drawn = (
        plots.loss,
        plots.iteration_time,
        plots.links,
        plots.reconfigurations,
        lambda each: timeline.telemetry(each, files),
    )
    with plots.drawing() as plt:
        for draw in drawn:
            figure = draw(job)
            figure.draw_without_rendering()
            around, paper = figure.get_tightbbox(), figure.get_size_inches()
            assert around.x0 >= 0
            assert around.y0 >= 0
            assert around.x1 <= paper[0]
            assert around.y1 <= paper[1]
            for axes in figure.axes:
                legend = axes.get_legend()
                assert legend is None or not legend.get_window_extent().overlaps(axes.get_window_extent())
            plt.close(figure)


def test_a_full_disk_is_one_line_and_leaves_what_was_there(tmp_path: Path) -> None:
    kept, draft = tmp_path / "report.json", tmp_path / "report.draft.json"
    document.write_json(kept, {"first": True})
    draft.symlink_to("/dev/full")
    with pytest.raises(HostError, match=r"^write .*report\.json: No space left on device$"):
        document.write_json(kept, {"first": False})
    assert json.loads(kept.read_text()) == {"first": True}
    assert not draft.is_symlink()
    (tmp_path / "report.draft.png").symlink_to("/dev/full")
    with (
        plots.drawing() as plt,
        pytest.raises(HostError, match=r"^write .*report\.png: No space left on device$"),
    ):
        plots.save(plt, plt.figure(), tmp_path / "report.png")
    assert [path.name for path in tmp_path.iterdir()] == ["report.json"]


def test_findings_are_computed(report: dict[str, Any]) -> None:
    jobs = read(report).jobs
    assert plots.fastest(jobs) == "An iteration is shortest with inc; with ps it takes 3.0 times as long"
    assert plots.fastest({"ring": jobs["ring"]}) == "ring: communication is 30% of an iteration"
    assert "differ by more than 0" in plots.loss_agreement(jobs)
    jobs["ring"] = replace(jobs["ring"], loss=tuple(value + 0.25 for value in jobs["ring"].loss))
    assert "differ by more than 0.2" in plots.loss_agreement(jobs)
    assert "within 250 µs" in plots.dark_times(plots.measured(read(report)))[0]
    for sync, accuracy in (("inc", 0.983), ("ring", 0.978), ("ps", 0.1)):
        jobs[sync] = replace(jobs[sync], test_accuracy=accuracy)
    assert plots.accuracy({"inc": jobs["inc"]}) == "Test accuracy is 98.3%"
    assert plots.accuracy(jobs) == "Test accuracy is from 10.0% (ps) to 98.3% (inc)"


class _Parts(HTMLParser):
    """The cells of a page's rows, and all that its elements refer to."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self.references: list[str] = []
        self.captions = 0
        self._in_cell = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.references += [value or "" for name, value in attrs if name in {"src", "href"}]
        self.captions += tag == "figcaption"
        self._in_cell = tag in {"td", "th"}
        if tag == "tr":
            self.rows.append([])

    def handle_data(self, data: str) -> None:
        if self._in_cell:
            self.rows[-1].append(data)

    def handle_endtag(self, tag: str) -> None:
        self._in_cell = False


def test_the_page_has_table_pictures_and_next_steps_and_asks_for_nothing(
    report: dict[str, Any], tmp_path: Path
) -> None:
    report["jobs"]["ring"] |= {
        "bound": None,
        "verdict": {**results.TRUSTED, "trustworthy": None, "line": "verdict: <none> & nothing"},
    }
    job = read(report)
    drawn = [tmp_path / f"{name}.png" for name in page.CAPTIONS]
    for picture in drawn:
        picture.write_bytes(picture.name.encode())
    page.write(tmp_path / "report.html", job, drawn)
    text = (tmp_path / "report.html").read_text()
    parts = _Parts()
    parts.feed(text)
    assert parts.rows == [
        list(job_rows.HEADS),
        *(list(job_rows.job_cells(name, each)) for name, each in job.jobs.items()),
    ]
    assert len(parts.references) == parts.captions == len(drawn)
    for reference, picture in zip(parts.references, drawn, strict=True):
        assert base64.b64decode(reference.removeprefix("data:image/png;base64,")) == picture.read_bytes()
    assert "url(" not in text
    assert "ring: &lt;none&gt; &amp; nothing" in text
    for document_name in re.findall(r"<code>(docs/[^<]*)</code>", text):
        assert (ROOT / document_name).exists(), document_name
    assert "$" not in text


@pytest.mark.parametrize("trustworthy", [False, None])
def test_no_headline_is_of_a_job_that_cannot_be_trusted(
    report: dict[str, Any], trustworthy: bool | None
) -> None:
    report["jobs"]["ring"]["verdict"] |= {"trustworthy": trustworthy, "line": "x"}
    assert plots.fastest(read(report).jobs) == "Time of an iteration; no headline, for ring cannot be trusted"
    assert ("ring" in timeline.finding(read(report))[0]) == (trustworthy is False)


def test_one_bad_batch_leaves_no_mark_on_a_curve() -> None:
    assert plots.smoothed([1.0] * 10 + [99.0] + [1.0] * 10) == [1.0] * 21


def test_text_can_be_read_on_every_colour() -> None:
    colours = {style.look(job).colour for job in shown_jobs()}
    assert len(colours) == len(shown_jobs())
    assert style.look("a job of mine") == style.Look("a job of mine", style.INK, "")
    assert plots.paler("#0072B2", 0) == "#ffffff"
    assert plots.paler("#0072B2", 1) == "#0072b2"
    assert (plots.ink_on("#ffffff"), plots.ink_on("#000000")) == (style.INK, style.PAPER)


def test_host_facts() -> None:
    facts = host.facts()
    assert facts.kernel == Path("/proc/sys/kernel/osrelease").read_text().strip()
    assert facts.cores >= 1
    assert facts.memory_bytes > 2**28
