"""The gate itself: what it does with skips, with broken probes, and with tests that do not end. Each on a
pytest of its own.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from testbed import doctor, native
from testbed.dataplanes.xdp import probe
from testbed.errors import TestbedError
from testbed.host_checks import host, kernel, trials
from testbed.host_checks.features import ProbeFailure, ProbeResult
from tests import conftest, gate
from tests.processes import alive
from tests.skips import ALLOWED

ROOT = Path(__file__).resolve().parents[2]
CONFTEST = """
from tests import gate
from tests.skips import Allowed

RULES = (
    Allowed("tea", r".*::test_pot.*", r"no tea\\b", "not all have tea", most=2),
    Allowed("file", r"test_whole\\.py", r"not here", "a file of its own"),
)


def pytest_configure(config):
    config.pluginmanager.register(gate.Skips(RULES), "skips")
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(gate.UnderWay(), "under way")
"""
INI = "[pytest]\naddopts = -p no:dash\n"  # as pyproject.toml
LANES = pytest.mark.parametrize("lanes", [[], ["-n", "2", "--dist", "loadfile"]], ids=["one lane", "two"])


def ran(folder: Path, lanes: Sequence[str] = (), **files: str) -> tuple[int, list[str]]:
    """Exit code and lines of a pytest over these files."""
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "pytest.ini").write_text(INI)
    for name, text in files.items():
        (folder / f"{name}.py").write_text(text)
    argv = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-ra", *lanes, str(folder)]
    done = subprocess.run(
        argv,
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), "COLUMNS": "300"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return done.returncode, done.stdout.rstrip().splitlines()


def test_an_allowed_skip_is_told_before_pytests_own_last_line(tmp_path: Path) -> None:
    text = "import pytest\n" + "".join(
        f"def {name}(): pytest.skip('no tea today')\n" for name in ("test_pot", "test_pot_2")
    )
    code, lines = ran(
        tmp_path, test_it=text, test_whole="import pytest\npytest.skip('not here', allow_module_level=True)\n"
    )
    assert code == 0, lines
    assert re.fullmatch(r"=+ 3 skipped in .*s =+", lines[-1])
    assert lines[-5:-1] == [
        "2 for tea: not all have tea",
        "    2: no tea today",
        "1 for file: a file of its own",
        "    1: not here",
    ]


@LANES
def test_any_other_skip_fails_the_run(tmp_path: Path, lanes: list[str]) -> None:
    files = {
        "reason": "def test_pot(): pytest.skip('no milk')",
        "test": "def test_cup(): pytest.skip('no tea')",
        "skipif": "@pytest.mark.skipif(True, reason='no milk')\ndef test_pot(): pass",
        "fixture": "@pytest.fixture\ndef tray(): pytest.skip('no tray')\ndef test_pot(tray): pass",
        "xfail": "@pytest.mark.xfail(reason='broken')\ndef test_pot(): assert False",
        "zoo": "@pytest.mark.parametrize('n', range(3))\ndef test_pot(n): pytest.skip('no tea')",
        "fine": "def test_fine(): pass",
    }
    code, lines = ran(
        tmp_path, lanes, **{f"test_{name}": f"import pytest\n{text}\n" for name, text in files.items()}
    )
    assert code == 1, lines
    assert re.fullmatch(r"=+ 4 failed, 1 passed, 2 skipped, 2 errors in .*s =+", lines[-1]), lines
    because = "skipped, which fails the gate, since tests/skips.py allows"
    failures = {
        line.split()[1].split("::")[0]: line
        for line in lines
        if line.startswith(("FAILED", "ERROR")) and because in line
    }
    assert set(failures) == {f"test_{name}.py" for name in files if name != "fine"}
    assert failures["test_zoo.py"].endswith("allows 2 for tea: no tea"), "no more than the list says"


@LANES
def test_a_file_that_is_skipped_whole_fails_the_run(tmp_path: Path, lanes: list[str]) -> None:
    text = "import pytest\nn = pytest.importorskip('never.there')\ndef test_pot(): pass\n"
    code, lines = ran(tmp_path, lanes, test_it=text, test_other="def test_fine(): pass\n")
    expected = (1, "1 passed, 1 error") if lanes else (2, "1 error")
    assert (code, re.sub(r" in .*", "", lines[-1].strip("= "))) == expected, lines


def test_the_list_says_why_of_each_and_each_is_of_tests_that_exist() -> None:
    tests = [
        f"{path.relative_to(ROOT)}::{name}"
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        for name in re.findall(r"^ *def (test_\w+)", path.read_text(), re.MULTILINE)
    ]
    for rule in ALLOWED:
        assert rule.why
        re.compile(rule.reason)
        assert any(re.fullmatch(rule.tests, test) for test in tests), rule.name


@pytest.mark.parametrize("name", ["quiet", "processor time"])
def test_a_busy_machine_may_not_skip_all_that_it_may_skip(name: str) -> None:
    (rule,) = [rule for rule in ALLOWED if rule.name == name]
    files = [
        str(path.relative_to(ROOT))
        for path in sorted((ROOT / "tests" / "privileged").glob("test_*.py"))
        if any(
            re.match(rule.tests, f"{path.relative_to(ROOT)}::{test}")
            for test in re.findall(r"^ *def (test_\w+)", path.read_text(), re.MULTILINE)
        )
    ]
    argv = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--collect-only", "-q", *files]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    collected = [line for line in done.stdout.splitlines() if re.fullmatch(rule.tests, line)]
    assert rule.most is not None
    assert 0 < rule.most < len(collected), collected


# ------------------------------------------------------------------ what TESTBED_REQUIRE says


@pytest.mark.parametrize(
    ("setting", "insisted"),
    [
        ("", set()),
        ("all", {"xdp", "bmv2", "quiet"}),
        ("all,-bmv2", {"xdp", "quiet"}),
        (" xdp , quiet", {"xdp", "quiet"}),
        ("xdp,-xdp", set()),
    ],
)
def test_what_is_required(setting: str, insisted: set[str]) -> None:
    assert {name for name in ("xdp", "bmv2", "quiet") if conftest.insisted_on(name, setting)} == insisted


@pytest.mark.parametrize("name", ["root", *conftest.CONDITIONS])
def test_each_lack_can_be_made_a_failure(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESTBED_REQUIRE", "")
    with pytest.raises(pytest.skip.Exception):
        conftest.lacking(name, "it is not here")
    monkeypatch.setenv("TESTBED_REQUIRE", name)
    with pytest.raises(pytest.fail.Exception, match=rf"it is not here \(TESTBED_REQUIRE insists on {name}\)"):
        conftest.lacking(name, "it is not here")


def test_a_misspelt_requirement_is_refused() -> None:
    argv = [sys.executable, "-m", "pytest", "--collect-only", "-q", "tests/unit/test_gate.py"]
    done = subprocess.run(
        argv,
        cwd=ROOT,
        env={"TESTBED_REQUIRE": "all,-bmv3"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 4
    assert "TESTBED_REQUIRE: no 'bmv3'; known: all, root, " in done.stderr


STALE = """
import sys
import pytest
from testbed import native
native.LIBRARIES = (native.Library("tests.none", ("setup.py",), ()),)
sys.exit(pytest.main(sys.argv[1:]))
"""


@pytest.mark.parametrize("lanes", [[], ["-n", "2"]], ids=["one lane", "two"])
def test_a_library_of_other_sources_stops_the_run_with_one_line(lanes: list[str]) -> None:
    argv = [sys.executable, "-c", STALE, "-q", *lanes, "tests/unit/test_gate.py"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 4
    why = f"{native.Library('tests.none', (), ()).path.name} does not load (No such file or directory)"
    assert done.stderr.strip() == f"ERROR: {why}; run: sudo make setup"
    assert not done.stdout.strip()


def test_no_test_skips_by_itself() -> None:
    """Each feature or condition that can be lacking has a name that TESTBED_REQUIRE knows."""
    by_itself = re.compile(r"pytest\.(skip|importorskip)\(|mark\.(skip|skipif|xfail)\b")
    own = {ROOT / "tests" / "conftest.py", Path(__file__)}
    files = [path for path in sorted((ROOT / "tests").rglob("*.py")) if path not in own]
    assert [str(path) for path in files if by_itself.search(path.read_text())] == []


# ------------------------------------------------------------------ faults of our own are no lack of the
# host's


@pytest.fixture
def broken_headers(monkeypatch: pytest.MonkeyPatch) -> None:
    def planted() -> str:
        raise NameError("name 'candidate' is not defined")

    monkeypatch.setitem(host.PROBES, "headers", planted)
    monkeypatch.setattr(conftest, "_findings", {})


@pytest.mark.usefixtures("broken_headers")
def test_a_broken_probe_fails_what_needs_it_whatever_is_required(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TESTBED_REQUIRE", "")
    monkeypatch.setattr(kernel, "findings", lambda names: [ProbeResult(name, True, "") for name in names])
    for name in ("headers", "xdp", "broadcast"):
        with pytest.raises(
            pytest.fail.Exception, match="what tries headers is broken: NameError: name 'candidate'"
        ):
            conftest.require_features(name)


@pytest.mark.usefixtures("broken_headers")
def test_the_doctor_says_that_the_fault_is_ours(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(kernel, "findings", lambda names: [ProbeResult(name, True, "") for name in names])
    for name in set(host.PROBES) - {"headers"}:
        monkeypatch.setitem(host.PROBES, name, lambda: "fine")
    with pytest.raises(TestbedError, match="own, not of this host, in what tries headers") as raised:
        doctor.main([])
    assert raised.value.exit_code == 1
    assert (
        "headers       BROKEN   kernel headers for BCC: NameError: name 'candidate' is not defined\n"
        in capsys.readouterr().out
    )
    assert doctor.report(list(trials.findings(["headers"])))["ok"] is False


def test_a_kernel_probe_that_breaks_says_so_and_the_others_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    script = (
        "import sys; from testbed.host_checks import kernel\n"
        "kernel.tool = lambda *argv: ''\n"
        "kernel.PROBES |= {'veth': lambda: [][1], 'tbf': lambda: 'fine'}\n"
        "sys.exit(kernel.main(['veth', 'tbf']))"
    )
    real = subprocess.run

    def instead(argv: Sequence[str], **options: object) -> object:
        return real([sys.executable, "-c", script], cwd=ROOT, **options)  # type: ignore[call-overload]

    monkeypatch.setattr(subprocess, "run", instead)
    assert kernel.findings(["veth", "tbf"]) == [
        ProbeResult("veth", False, "IndexError: list index out of range", broken=True),
        ProbeResult("tbf", True, "fine"),
    ]


@pytest.mark.parametrize(
    ("code", "raised"),
    [
        ("raise KeyError('slot')", host.ProbeFault),
        ("import sys; sys.exit('unshare: Operation not permitted')", ProbeFailure),
    ],
)
def test_a_traceback_of_a_probes_own_is_no_lack(code: str, raised: type[Exception]) -> None:
    with pytest.raises(raised, match=r"slot|not permitted"):
        host.said_by_ours([sys.executable, "-c", code])


@pytest.mark.parametrize(
    ("error", "lack"),
    [
        (Exception("Failed to compile BPF module"), True),  # as BCC says it
        (ModuleNotFoundError("No module named 'bcc'", name="bcc"), True),
        (PermissionError("Operation not permitted"), True),
        (ProbeFailure("tc is not installed"), True),
        (NameError("name 'candidate' is not defined"), False),
        (TestbedError("planted"), False),
        (ModuleNotFoundError("No module named 'testbed.heeders'", name="testbed.heeders"), False),
    ],
)
def test_what_an_xdp_probe_may_raise(error: Exception, lack: bool) -> None:
    assert probe.is_lack(error) is lack


# ------------------------------------------------------------------ time


@LANES
def test_tests_that_do_not_end_are_ended_with_all_that_they_started(tmp_path: Path, lanes: list[str]) -> None:
    """The gate is a process of its own here: it adopts orphans, and this one must not."""
    left = tmp_path / "pid"
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "pytest.ini").write_text(INI)
    (tmp_path / "test_hang.py").write_text(
        "import pathlib, subprocess, time\n"
        "def test_hang():\n"
        "    orphan = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
        f"    pathlib.Path({str(left)!r}).write_text(str(orphan.pid))\n"
        "    time.sleep(600)\n"
    )
    pytest_argv = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *lanes, str(tmp_path)]
    for limit_s in (6, 30, 90):  # until the test has begun by then
        code = f"import sys; from tests import gate; sys.exit(gate.Run({pytest_argv!r}, {limit_s}).run())"
        begun = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=240, check=False
        )
        assert done.returncode in (1, 2), done.stderr
        assert time.monotonic() - begun >= limit_s
        if left.exists() and left.read_text():
            break
    said = f"gate: the tests are not over after {limit_s} s (TESTBED_GATE_LIMIT_S), which fails the gate"
    assert f"{said}; ending them" in done.stderr
    assert "gate: under way: test_hang.py::test_hang\n" in done.stderr
    assert re.fullmatch(r"=+ no tests ran in .*s =+", done.stdout.rstrip().splitlines()[-1])
    assert not alive(int(left.read_text()))


def test_a_pytest_that_takes_no_signal_is_killed() -> None:
    argv = ["sh", "-c", "trap '' INT TERM; sleep 600 & wait; sleep 600"]
    code = f"import sys; from tests import gate; sys.exit(gate.Run({argv!r}, 0.5, in_order_s=0.5).run())"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "gate: pytest was ended by SIGKILL"


@pytest.mark.parametrize("options", ["--collect-only", "--deselect test_it.py::test_wrong"])
def test_options_of_the_environment_leave_no_test_out(tmp_path: Path, options: str) -> None:
    (tmp_path / "pytest.ini").write_text(INI)
    (tmp_path / "test_it.py").write_text("def test_right(): pass\ndef test_wrong(): assert False\n")
    argv = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(tmp_path),
        str(tmp_path),
    ]
    code = f"import sys; from tests import gate; sys.exit(gate.Run({argv!r}, 60).run())"
    env = {**os.environ, "PYTEST_ADDOPTS": options}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1, done.stdout
    assert "1 failed, 1 passed" in done.stdout


def test_a_limit_that_is_no_number_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(gate.LIMIT_VARIABLE, "soon")
    assert gate.main([]) == 2
    assert capsys.readouterr().err == "gate: TESTBED_GATE_LIMIT_S=soon: a number of seconds is accepted\n"


def test_a_test_that_hangs_fails_and_the_next_one_runs(tmp_path: Path) -> None:
    text = (
        "import pytest, time\n"
        "@pytest.mark.timeout(1)\n"
        "def test_hang(): time.sleep(600)\n"
        "def test_next(): pass\n"
    )
    code, lines = ran(tmp_path, test_it=text)
    assert (code, re.sub(r" in .*", "", lines[-1].strip("= "))) == (1, "1 failed, 1 passed"), lines


def test_a_thread_that_ends_while_children_are_looked_up_has_none(tmp_path: Path) -> None:
    """A timer's thread is listed for a moment after it was joined."""
    for name, children in (("11", "21 22 "), ("12", None), ("13", "23 ")):
        (tmp_path / name).mkdir()
        if children is not None:
            (tmp_path / name / "children").write_text(children)
    assert sorted(gate._children(tmp_path)) == [21, 22, 23]
