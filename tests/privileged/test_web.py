"""The live page of a running testbed in a real browser, beside what `status --json` says; and its metrics,
scraped by a real Prometheus.
"""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.limits import CALL_S
from tests.privileged.browser import NARROW, WIDE, Shown, browser, prometheus, web
from tests.privileged.commands import Testbed, running, wait_for
from tests.privileged.test_manual_links import CONFIG, a_job, said

pytestmark = [pytest.mark.needs("namespaces", "xdp", "ovs")]
ANSWER_S = 60.0


@pytest.fixture(scope="module")
def testbed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Testbed]:
    config = tmp_path_factory.mktemp("web") / "three.yaml"
    config.write_text(CONFIG)
    with running(str(config)) as made:
        yield made


def names_in(traces: list[dict[str, Any]]) -> set[str]:
    return {name for trace in traces for name in trace["customdata"]}


def circuits_of(status: dict[str, Any]) -> list[list[str]]:
    """The rows that the page's table of circuits is to have."""
    jobs = {tuple(each["circuit"]): each["jobs"] for each in status["circuit_jobs"]}
    dark = set(status["dark"])
    return [
        [f"{a}-{b}", "dark" if {a, b} & dark else "lit", " ".join(map(str, jobs[a, b])), "clear"]
        for a, b in status["circuits"]
    ]


def of_first_job(shown: Shown, column: int) -> str:
    """Return a cell of the first row in the table of jobs; nothing while it has none."""
    rows = shown.table("jobs")
    return str(rows[0][column]) if rows else ""


def is_shown(shown: Shown, testbed: Testbed) -> bool:
    """Return whether the page says of jobs, hosts and circuits what `status` says."""
    status = said(testbed, "status")
    running = [row for row in shown.table("jobs") if row[1].startswith(("running", "starting"))]
    if not (drawn := shown.drawn("hosts")):
        return False
    (hosts,) = drawn
    held = {host["name"]: host["job"] for host in status["hosts"]}
    in_use = {
        name for name, text in zip(hosts["customdata"], hosts["hovertext"], strict=True) if "free" not in text
    }
    return (
        [row[0].strip() for row in running] == [str(job["id"]) for job in status["jobs"]]
        and [row[4].split(", ps on")[0] for row in running]
        == [" ".join(job["hosts"]) for job in status["jobs"]]
        and sorted(shown.table("circuits")) == sorted(circuits_of(status))
        and set(hosts["customdata"]) == held.keys()
        and in_use == {name for name, job in held.items() if job is not None}
        and names_in(shown.drawn("links")) == {link["name"] for link in status["links"]}
        and names_in(shown.drawn("circuit")) == {f"{a}-{b}" for a, b in status["circuits"]}
    )


def test_the_page_shows_what_status_says(testbed: Testbed, tmp_path: Path) -> None:
    records = ("--records", str(tmp_path / "records"))
    with web(testbed.name, *records) as addresses, browser() as chromium:
        shown = Shown(chromium.new_page(viewport={"width": WIDE, "height": 1000}), addresses["page"])
        shown.goes_to(addresses["acting"].removeprefix(addresses["page"]))
        assert shown.text("#head h1") == f"testbed {testbed.name}"
        wait_for(lambda: is_shown(shown, testbed), "the idle testbed on the page")
        with a_job(testbed, tmp_path, "u1:2,u2:2", *records):
            wait_for(lambda: is_shown(shown, testbed), "the job on the page")
            wait_for(lambda: "summed" in of_first_job(shown, 5), "the job's progress")
            wait_for(lambda: "so far" in of_first_job(shown, 7), "what the verdict thinks")
            wait_for(lambda: shown.text("#cores").count("core ") >= 1, "the cores")
            circuits_are_changed(shown, testbed)
            wait_for(lambda: is_shown(shown, testbed), "the new circuits on the page")
            for width, dark in ((WIDE, False), (NARROW, True)):
                shown.becomes(width, dark)
                wait_for(shown.fits, f"a page that fits {width} points")
                shown.screenshot(tmp_path / f"page-{width}.png")
        wait_for(lambda: of_first_job(shown, 1).startswith("done after"), "the job's end on the page")
        assert "trustworthy" in of_first_job(shown, 7)
        (timeline,) = shown.drawn("", "timeline")
        assert {*timeline["y"]} >= {"job 1 inc", *(row[0] for row in shown.table("circuits"))}
        its_record_is_opened(shown, json.loads((tmp_path / "result.json").read_text()))
        shown.goes_to("")
        assert shown.buttons() == [], "nothing can be done without the token"
        assert shown.wrong == []
        nobody_acts_without_the_token(addresses["page"], testbed)
        others_are_refused(addresses["page"])


def circuits_are_changed(shown: Shown, testbed: Testbed) -> None:
    """Clear one and join two ports, under a job, which has two parallel ones."""
    said(testbed, "circuits", "set", "u1o1-u2o1", "u1o2-u2o2", "--force")
    wait_for(lambda: is_shown(shown, testbed), "the circuits that were set by hand")
    before = said(testbed, "circuits", "list")["circuits"]
    shown.clicks("#table-circuits button >> nth=0")
    wait_for(lambda: "refused" in shown.text("#done"), "that a job uses it")
    assert said(testbed, "circuits", "list")["circuits"] == before
    shown.clicks("#force input")
    shown.clicks("#table-circuits button >> nth=0")
    wait_for(lambda: "removed" in shown.text("#done"), "the circuit that was cleared")
    (left,) = said(testbed, "circuits", "list")["circuits"]
    assert left in before
    wait_for(lambda: is_shown(shown, testbed), "the circuit that is left")
    ports = [port for circuit in before if circuit != left for port in circuit]
    for port in ports:
        shown.clicks(f"#ports button:text-is('{port}')")
        wait_for(lambda port=port: port in shown.text("#done"), "the pressed port")  # type: ignore[misc]
    wait_for(lambda: "added" in shown.text("#done"), "the new circuit")
    assert sorted(said(testbed, "circuits", "list")["circuits"]) == sorted(before)
    last = said(testbed, "circuits", "history")[-1]
    wait_for(lambda: f"reconfiguration {last['id']}:" in shown.text("#happenings"), "the line on it")


def its_record_is_opened(shown: Shown, result: dict[str, Any]) -> None:
    shown.goes_to("records")
    wait_for(lambda: len(shown.table("records")) == 1, "the record in the list")
    name = shown.table("records")[0][0]
    shown.goes_to(f"record/{name}")
    wait_for(lambda: bool(shown.drawn("hosts")), "the record's picture")
    assert shown.text("#head h1") == f"record {name}"
    (job,) = shown.table("jobs")
    assert (job[0].strip(), job[1]) == (str(result["id"]), "done")
    assert job[7].startswith("trustworthy" if result["verdict"]["trustworthy"] else "not trustworthy")
    if result["bound"]:
        assert f"{result['bound']['ratio']:.2f} times the bound" in job[7]
    assert "allowed" not in job[7], "the sentence is shown on demand"
    shown.clicks("#table-jobs summary")
    assert shown.text("#table-jobs .verdict") == result["verdict"]["line"].removeprefix("verdict: ")
    assert job[4].startswith(" ".join(worker["host"] for worker in result["workers"]))
    for event in result["ocs"]["events"]:
        assert f"reconfiguration {event['id']}:" in shown.text("#happenings")


def nobody_acts_without_the_token(page: str, testbed: Testbed) -> None:
    """Asked past the page, as whoever wrote a page of their own would."""
    before = said(testbed, "circuits", "list")["circuits"]
    clear = {"act": "clear", "of": "-".join(before[0])}
    body = {
        "output": "done.children",
        "outputs": {"id": "done", "property": "children"},
        "inputs": [[], [{"id": clear, "property": "n_clicks", "value": 1}]],
        "changedPropIds": [f"{json.dumps(clear, separators=(',', ':'))}.n_clicks"],
        "state": [
            {"id": "location", "property": "hash", "value": "#token=guessed"},
            {"id": "force", "property": "value", "value": ["also circuits that a running job uses"]},
        ],
    }
    request = urllib.request.Request(
        f"{page}_dash-update-component",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    answer = json.loads(urllib.request.urlopen(request, timeout=ANSWER_S).read())
    assert answer["response"]["done"]["children"].startswith("refused: the page's address has no token")
    assert said(testbed, "circuits", "list")["circuits"] == before


def others_are_refused(page: str) -> None:
    """Pages whose name leads here, pages from elsewhere, and other users of this machine."""
    port = urllib.parse.urlsplit(page).port
    for headers in ({"Host": f"elsewhere.example:{port}"}, {"Origin": "http://elsewhere.example"}):
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(urllib.request.Request(page, headers=headers), timeout=ANSWER_S)
    ask = f"import urllib.request; urllib.request.urlopen({page!r}, timeout={ANSWER_S})"
    ended = subprocess.run(
        ["/usr/bin/python3", "-c", ask],
        capture_output=True,
        text=True,
        timeout=CALL_S,
        check=False,
        user=65534,
        group=65534,
        extra_groups=[],
        cwd="/",
    )
    assert "HTTP Error 403" in ended.stderr


def test_prometheus_scrapes_it(testbed: Testbed, tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with web(testbed.name) as addresses:
        target = urllib.parse.urlsplit(addresses["metrics"]).netloc
        with prometheus(tmp_path, target, port) as api, a_job(testbed, tmp_path, "u1:2,u2:2"):
            wait_for(lambda: value(api, "testbed_up") == 1, "the first scrape")
            wait_for(lambda: (value(api, 'testbed_jobs{state="running"}') or 0) == 1, "the job")
            for grows in ("testbed_link_bytes_total", "testbed_job_summed_bytes_total"):
                wait_for(lambda grows=grows: (value(api, f"max(rate({grows}[10s]))") or 0) > 0, grows)  # type: ignore[misc]
            links = said(testbed, "status")["links"]
            assert value(api, "count(testbed_link_rate_bytes_per_second)") == len(links)
            assert value(api, "max(testbed_link_rate_bytes_per_second)") == 100e6 / 8
            (scraped,) = asked(api, "targets")["activeTargets"]
            assert (scraped["health"], scraped["lastError"]) == ("up", "")
        text = urllib.request.urlopen(addresses["metrics"], timeout=ANSWER_S).read()
    if shutil.which("promtool"):
        lint = subprocess.run(
            ["promtool", "check", "metrics"], input=text, capture_output=True, timeout=CALL_S, check=False
        )
        assert lint.returncode == 0, lint.stderr + lint.stdout


def asked(api: str, words: str) -> Any:
    try:
        return json.loads(urllib.request.urlopen(f"{api}/api/v1/{words}", timeout=ANSWER_S).read())["data"]
    except OSError:  # it is starting still
        return None


def value(api: str, query: str) -> float | None:
    """The one value of a query; None while there is none."""
    data = asked(api, f"query?query={urllib.parse.quote(query)}")
    return float(data["result"][0]["value"][1]) if data and data["result"] else None
