"""Systems as plug-ins: one that brings policies and figures is found and used, whether it is registered or a
file of a user's; what is wrong with one is a line.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest

from testbed import reproduce
from testbed import systems as package
from testbed.dataplanes.xdp.program import PORTS, called
from testbed.errors import HostError, RequestError, TestbedError
from testbed.plugins import papers, policies, registry
from testbed.queue.policy_host import policy_of
from testbed.scheduling.model import Limits, State
from testbed.systems import main
from testbed.wire.recovery import QUESTIONS

CHECKOUT = Path(__file__).resolve().parents[2]
EXTRA = '''
from testbed.aggregation.system import Layout, Policies, System
from testbed.wire.transports import GLOO
from testbed.scheduling.model import Decision

class Idle:
    name = "idle"
    def __init__(self, seed):
        self.seed = seed
    def decide(self, state):
        return Decision(ports=state.ports)

class Answer:
    """Runs an answer again."""
    name, on_testbed = "fig42", False
    def options(self, parser):
        parser.add_argument("--times", type=int, default=1)
    def check(self, options):
        if options.times < 1:
            from testbed.errors import RequestError
            raise RequestError(f"--times {options.times}: at least 1 is accepted")
    def run(self, options, out):
        return {"answers": [42] * options.times}
    def claims(self, report):
        ours = sum(report["answers"]) / len(report["answers"])
        return [{"text": "the answer is", "paper": 42, "ours": ours}]
    def show(self, report, console):
        console.print(f"ours is {report['claims'][0]['ours']:g}")
    def draw(self, report, path):
        path.write_bytes(b"drawn")

class Extra(System):
    name = "extra"
    summary = "sums nowhere"
    instead = "ps"
    programs = {"xdp": "sum"}
    policies = Policies({"idle": Idle}, with_inc="inc", without_inc="ps")
    paper = "deep"
    figures = (Answer(),)

    def lay_out(self, workers, site):
        return Layout(self.name, tuple(workers), GLOO)

SYSTEMS = (Extra(),)
'''
Registered = Callable[[str], None]


@pytest.fixture
def registered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Registered]:
    """Registers a package of systems with this code, for a test."""
    monkeypatch.setattr(package, "__path__", [*package.__path__, str(tmp_path)])

    def register(code: str) -> None:
        (tmp_path / "aaextra").mkdir()
        (tmp_path / "aaextra" / "__init__.py").write_text(code)
        registry.systems.cache_clear()
        registry.programs.cache_clear()

    yield register
    registry.systems.cache_clear()
    registry.programs.cache_clear()
    sys.modules.pop("testbed.systems.aaextra", None)


def test_a_system_that_brings_a_policy_and_a_figure_is_found_and_used(
    registered: Registered, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    registered(EXTRA)
    policy = policies.make("idle", 7)
    assert policy.decide(State(Limits.uniform(2, 1, 0, 1.0), 0, (), {(0, 1): 1})).ports == {(0, 1): 1}
    assert policies.choice("idle").with_inc.name == "inc"
    assert reproduce.main(["deep", "fig42", "--times", "3", "--out", str(tmp_path / "out")]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("ours is 42\n")
    assert "fig42.json fig42.png" in printed
    report = json.loads((tmp_path / "out" / "fig42.json").read_text())
    assert (report["paper"], report["figure"], report["answers"]) == ("deep", "fig42", [42, 42, 42])
    assert report["claims"] == [{"text": "the answer is", "paper": 42, "ours": 42.0}]
    with pytest.raises(RequestError, match=r"^--times 0: at least 1 is accepted$"):
        reproduce.main(["deep", "fig42", "--times", "0"])
    assert main([]) == 0
    printed = capsys.readouterr().out
    assert "policies: idle\n" in printed
    assert "figures of deep: fig42\n" in printed


def test_a_package_without_a_system_brings_simulations(registered: Registered, tmp_path: Path) -> None:
    registered(EXTRA.replace("SYSTEMS = (Extra(),)", 'SYSTEMS = ()\nPAPERS = {"far": (Answer(),)}'))
    assert "extra" not in registry.systems()
    assert reproduce.main(["far", "fig42", "--out", str(tmp_path / "out")]) == 0
    assert json.loads((tmp_path / "out" / "fig42.json").read_text())["answers"] == [42]
    with pytest.raises(RequestError, match=r"no paper .deep.; accepted: .*far"):
        reproduce.main(["deep", "fig42"])


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Has the entry points of papers be these alone, PAPER = MODULE:NAME each, for a test; a module is a file
    with EXTRA's code.
    """
    monkeypatch.syspath_prepend(tmp_path)

    def install(*points: str, code: str = EXTRA) -> None:
        (tmp_path / "shelf").mkdir()
        (tmp_path / "shelf" / "far.py").write_text(code)
        halves = [point.partition(" = ") for point in points]
        said = [EntryPoint(name=name, value=value, group=papers.GROUP) for name, _, value in halves]
        monkeypatch.setattr(papers, "distributions", lambda: [SimpleNamespace(entry_points=said)])
        papers.installed.cache_clear()

    yield install
    papers.installed.cache_clear()
    for name in ("shelf", "shelf.far"):
        sys.modules.pop(name, None)


def test_an_installed_package_brings_figures_of_a_paper(
    installed: Callable[..., None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A paper that no system has, and one that a system has, which then lists them."""
    installed("far = shelf.far:FIGURES", "trio = shelf.far:FIGURES", code=EXTRA + "FIGURES = [Answer()]\n")
    assert reproduce.main(["far", "fig42", "--out", str(tmp_path / "out")]) == 0
    assert json.loads((tmp_path / "out" / "fig42.json").read_text())["answers"] == [42]
    capsys.readouterr()
    assert main([]) == 0
    printed = capsys.readouterr().out
    assert "figures of trio: fig42\n" in printed
    assert printed.count("figures: none\n") == len(registry.systems()) - 1
    with pytest.raises(RequestError, match=r"^no paper 'p4inc'; accepted: trio, far, FILE.py:CLASS$"):
        reproduce.main(["p4inc", "fig8"])


def test_an_old_distribution_of_the_name_hides_no_paper(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A checkout that comes first on the path may have an optinc.egg-info from before there were papers, and
    another one that names the same papers.
    """
    (tmp_path / "shelf").mkdir()
    (tmp_path / "shelf" / "far.py").write_text(EXTRA + "FIGURES = [Answer()]\n")
    points = f"[{papers.GROUP}]\nfar = shelf.far:FIGURES\n"
    folders = {
        "checkout/optinc.egg-info": "[console_scripts]\ntestbed = testbed.__main__:main\n",
        "environment/optinc-0.1.0.dist-info": points,
        "other/optinc.egg-info": points,
    }
    for folder, text in folders.items():
        (tmp_path / folder).mkdir(parents=True)
        facts = "METADATA" if folder.endswith("dist-info") else "PKG-INFO"
        (tmp_path / folder / facts).write_text("Metadata-Version: 2.1\nName: optinc\nVersion: 0.1.0\n")
        (tmp_path / folder / "entry_points.txt").write_text(text)
    monkeypatch.setattr(
        sys, "path", [*(str((tmp_path / folder).parent) for folder in folders), str(tmp_path)]
    )
    papers.installed.cache_clear()
    try:
        ((paper, (figure,)),) = papers.installed()
    finally:
        papers.installed.cache_clear()
        for name in ("shelf", "shelf.far"):
            sys.modules.pop(name, None)
    assert (paper, figure.name) == ("far", "fig42")


@pytest.mark.parametrize("points", [(), ("p4inc = gone.p4inc:FIGURES", "trio = gone.trio:FIGURES")])
def test_without_the_package_of_the_papers_a_line_says_so(
    points: tuple[str, ...],
    installed: Callable[..., None],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """No entry points; and those of a package that is gone. A figure of a user's file needs none."""
    installed(*points)
    line = r"^no paper's figures are installed: this project's are its package reproductions, .* make setup$"
    for words in (["p4inc", "fig8"], ["nowhere", "fig1"]):
        with pytest.raises(HostError, match=line):
            reproduce.main(words)
    with pytest.raises(SystemExit):
        reproduce.main(["--help"])
    assert " ".join(capsys.readouterr().out.split()).count("no paper's figures are installed: ") == 1
    assert main([]) == 0
    assert capsys.readouterr().out.count("figures: none\n") == len(registry.systems())
    (tmp_path / "mine.py").write_text(EXTRA)
    words = [f"{tmp_path / 'mine.py'}:Extra", "fig42", "--out", str(tmp_path / "out")]
    assert reproduce.main(words) == 0


@pytest.mark.parametrize(
    ("point", "code", "message"),
    [
        ("far = shelf.far:FIGURES", "1 / 0", "import shelf.far:FIGURES: ZeroDivisionError: division by zero"),
        ("far = shelf.far:FIGURES", "", "import shelf.far:FIGURES: AttributeError: .*'FIGURES'"),
        ("far = shelf.near:FIGURES", "", "import shelf.near:FIGURES: ModuleNotFoundError: No module .*near"),
        ("far = shelf.far:FIGURES", "import gone", "import shelf.far:FIGURES: ModuleNotFoundError: .*'gone'"),
        (
            "far = shelf.far:FIGURES",
            EXTRA + "FIGURES = [Answer(), Answer()]",
            "paper far: two figures have the name 'fig42'",
        ),
    ],
)
def test_what_is_wrong_with_an_installed_package_is_a_line(
    point: str, code: str, message: str, installed: Callable[..., None]
) -> None:
    installed(point, code=code)
    with pytest.raises(TestbedError, match=f"^{message}") as error:
        main([])
    assert "\n" not in str(error.value)


PROGRAM = """
from testbed.aggregation.slots import SlotProgram

class Halves(SlotProgram):
    name = "halves"

PROGRAMS = (Halves(),)
"""


def test_a_package_brings_a_data_plane_program(registered: Registered) -> None:
    registered(EXTRA + PROGRAM)
    assert set(registry.programs()) == {"sum", "halves", "blocks", "owned"}


def test_two_data_plane_programs_of_one_name_are_refused(registered: Registered) -> None:
    registered(EXTRA + PROGRAM.replace("halves", "blocks"))
    with pytest.raises(TestbedError, match=r"^program .blocks.: two have this name, the second in testbed\."):
        registry.programs()


def own(path: Path, **changes: str) -> str:
    """A program of a configuration's, in a file of its own, with these words in the place of others."""
    (path / "mine.h").write_text("")
    text = OWN
    for old, new in changes.items():
        assert old in text
        text = text.replace(old, new)
    (path / "mine.py").write_text(text)
    return f"{path / 'mine.py'}:Mine"


OWN = """
from pathlib import Path
from testbed.aggregation.slots import SlotProgram

class Mine(SlotProgram):
    name = "mine"
    sources = {"xdp": Path(__file__).with_name("mine.h")}
"""


def test_a_configuration_brings_data_plane_programs(tmp_path: Path) -> None:
    name = own(tmp_path)
    with registry.with_programs([name]):
        assert list(registry.programs()) == ["sum", "owned", "blocks", "mine"]
        assert registry.programs_for("xdp")[-1] == "mine" != registry.programs_for("bmv2")[-1]
        numbers = {source.name: source.number for source in registry.sources("xdp")}
        assert numbers == {"blocks": 1, "owned": 2, "mine": 3}
        assert registry.sources("xdp")[-1].path == tmp_path / "mine.h"
    assert "mine" not in registry.programs()


def test_a_program_that_an_engine_lacks_cannot_be_chosen_for_it() -> None:
    wrong = pytest.raises(RequestError, match=r"^bmv2\.programs: vote; accepted are blocks, owned$")
    with wrong, registry.with_programs([], {"bmv2": ["owned", "vote"]}):
        pass
    assert registry.programs_for("bmv2") == ["sum", "blocks", "owned"]


def test_a_part_whose_class_raises_is_an_error_in_a_line() -> None:
    assert registry.made_part("mine", lambda cells, ifindex: (cells, ifindex), 1, 2) == (1, 2)
    for error, kind, text in (
        (
            ZeroDivisionError("by\nzero"),
            TestbedError,
            "program 'mine': its part of a place: ZeroDivisionError: by",
        ),
        (OSError(12, "no memory"), OSError, r"\[Errno 12\] no memory"),
        (RequestError("no"), RequestError, "no"),
    ):
        with pytest.raises(kind, match=f"^{text}") as raised:
            registry.made_part("mine", MagicMock(side_effect=error), 1, 2)
        assert "\n" not in str(raised.value)


def test_a_configuration_chooses_the_programs_of_an_engine() -> None:
    every = registry.programs_for("bmv2")
    with registry.with_programs([], {"bmv2": ["owned"]}):
        assert registry.programs_for("bmv2") == ["sum", "owned"]
        assert registry.programs_for("xdp") == every
        assert registry.available({"xdp": "blocks", "bmv2": "blocks"}) == {"xdp": "blocks"}
        said = "; a testbed has it with bmv2: {programs: [owned, blocks]} in its configuration"
        assert registry.where_to_have("bmv2", "blocks") == said
        for engine, name in (("bmv2", "owned"), ("xdp", "blocks"), ("bmv2", "vote"), ("none", "blocks")):
            assert registry.where_to_have(engine, name) == ""
    assert registry.programs_for("bmv2") == every


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"Mine": "Other"}, "AttributeError: module 'program_mine' has no attribute 'Mine'"),
        ({"SlotProgram)": "1 / 0)"}, "ZeroDivisionError: division by zero"),
        ({"(SlotProgram)": ""}, "it has no 'shares'; a class with all of DataPlaneProgram is accepted"),
        ({'"mine"': '"sum"'}, "there is a program 'sum' already"),
        ({'"mine"': '"blocks"'}, "there is a program 'blocks' already"),
        ({'"mine"': '"Mine; x"'}, "its name 'Mine; x'; up to 31 small letters, digits and _ are accepted"),
        ({"xdp": "bmv2"}, "a source for 'bmv2'; xdp is accepted"),
        (
            {"mine.h": "yours.h"},
            "its source for xdp, .*yours.h, is no file; a whole pathlib.Path is accepted",
        ),
        ({"Path(__file__).with_name": "Path"}, "its source for xdp, mine.h, is no file; .* is accepted"),
        ({'Path(__file__).with_name("mine.h")': '"/mine.h"'}, "its source for xdp, /mine.h, is no file; .*"),
        ({'"mine"': '"questions"'}, "its name 'questions'; accepted is any but calendar, control, copy, .*"),
        ({'"mine"': "3"}, "its name 3; up to 31 small letters, digits and _ are accepted"),
        (
            {"class Mine(SlotProgram):": "class Mine(SlotProgram):\n    parts = None"},
            "its parts None; a mapping of engines to MODULE:CLASS is accepted",
        ),
        (
            {"class Mine(SlotProgram):": 'class Mine(SlotProgram):\n    parts = {"xdp": "json:loads"}'},
            "its part for 'xdp', 'json:loads'; program_mine:CLASS, and MODULE:CLASS of testbed.systems are "
            "accepted",
        ),
        (
            {"class Mine(SlotProgram):": 'class Mine(SlotProgram):\n    parts = {"xdp": "program_mine:No"}'},
            "AttributeError: module 'program_mine' has no attribute 'No'",
        ),
        (
            {"class Mine(SlotProgram):": 'class Mine(SlotProgram):\n    maps = {"mine": 8}'},
            "its maps {'mine': 8}; a mapping of maps' names to Record is accepted",
        ),
        ({"class Mine": "raise SystemExit(7)\nclass Mine"}, "SystemExit: 7"),
        ({"class Mine": "class Mine:\n"}, "IndentationError: .*"),
    ],
)
def test_a_program_that_is_none_is_refused_in_one_line(
    tmp_path: Path, changes: dict[str, str], message: str
) -> None:
    name = own(tmp_path, **changes)
    before = set(registry.programs())
    wrong = pytest.raises(RequestError, match=f"^programs: {re.escape(name)}: {message}$")
    with wrong, registry.with_programs([name]):
        raise AssertionError("it was accepted")
    assert set(registry.programs()) == before


def test_a_program_that_inherits_a_part_has_the_same_one(tmp_path: Path) -> None:
    """So a place has one table for both, as admission shares out one."""
    blocks = "from testbed.systems.trio.program import BlockProgram as SlotProgram"
    name = own(tmp_path, **{"from testbed.aggregation.slots import SlotProgram": blocks})
    with registry.with_programs([name]):
        assert registry.part_class("mine", "xdp") is registry.part_class("blocks", "xdp") is not None


@pytest.mark.parametrize("file", ["mine.py", "mine.h"])
@pytest.mark.parametrize("mode", [0o602, 0o620])
def test_a_program_that_others_may_write_is_refused(tmp_path: Path, file: str, mode: int) -> None:
    name = own(tmp_path)
    os.chmod(tmp_path / file, mode)
    if mode & 0o020 and Path(registry.__file__).stat().st_mode & 0o020:
        os.chown(tmp_path / file, -1, 65_534)  # the checkout is writable by its own group, too
    wrong = pytest.raises(RequestError, match=rf"{file} is of user \d+, mode {mode:o}, and root is to run")
    with wrong, registry.with_programs([name]):
        raise AssertionError("it was accepted")


def test_a_program_in_a_folder_that_others_may_write_is_refused(tmp_path: Path) -> None:
    """They could put another in its place; but in one such as /tmp what is root's stays."""
    folder = tmp_path / "open"
    folder.mkdir()
    name = own(folder)
    os.chmod(folder, 0o777)
    wrong = pytest.raises(RequestError, match=r"open is of user \d+, mode 777, and root is to run mine.py")
    with wrong, registry.with_programs([name]):
        raise AssertionError("it was accepted")
    os.chmod(folder, 0o1777)
    with registry.with_programs([name]):
        assert "mine" in registry.programs()


def test_a_program_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name, usual = own(tmp_path), Path.stat

    def stat(path: Path, **words: bool) -> os.stat_result:
        fields = list(usual(path, **words))
        fields[4] = 65_534 if path.name == "mine.h" else fields[4]
        return os.stat_result(fields)

    monkeypatch.setattr(Path, "stat", stat)
    wrong = pytest.raises(RequestError, match=r"mine.h is of user 65534, mode \d+, and root is to run mine.h")
    with wrong, registry.with_programs([name]):
        raise AssertionError("it was accepted")


def test_nothing_kept_and_no_other_file_is_run(tmp_path: Path) -> None:
    """Neither bytecode that lies beside it, nor what its C file includes."""
    name = own(tmp_path)
    (tmp_path / "mine.h").write_text('int a;\n# include "other.h"\n')
    wrong = pytest.raises(RequestError, match=r'mine.h has # include "other.h": the core.s headers are there')
    with wrong, registry.with_programs([name]):
        raise AssertionError("it was accepted")
    (tmp_path / "mine.h").write_text("")
    before = list(sys.path)
    with registry.with_programs([name]):
        assert (sys.path, list(tmp_path.glob("__pycache__"))) == (before, [])


def test_names_of_the_core_s_programs_are_reserved() -> None:
    names = {name.removesuffix("_port") for name in (*PORTS, *called([])[QUESTIONS])}
    assert {*names, QUESTIONS} == registry.RESERVED


def test_a_program_is_named_once(tmp_path: Path) -> None:
    name = own(tmp_path)
    wrong = pytest.raises(RequestError, match=r"there is a program 'mine' already$")
    with wrong, registry.with_programs([name, name]):
        raise AssertionError("it was accepted")


def test_another_system_with_instead_changes_no_policys_choice(registered: Registered) -> None:
    before = policies.choice("inc-tw"), policies.choice("mine.py:Own"), policies.usual()
    registered(EXTRA)
    names = list(registry.systems())
    assert names.index("extra") < names.index("inc"), "one that says instead comes first"
    after = policies.choice("inc-tw"), policies.choice("mine.py:Own"), policies.usual()
    assert [(c.with_inc.name, c.without_inc.name) for c in after[:2]] == [("inc", "ps")] * 2
    assert after[2] == before[2] == "inc-tw"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "SYSTEMS =",
            "1 / 0\nSYSTEMS =",
            "import testbed.systems.aaextra: ZeroDivisionError: division by zero",
        ),
        ("SYSTEMS =", "SYSTEM =", "import testbed.systems.aaextra: AttributeError: module .*SYSTEMS"),
        ('name = "extra"', 'name = "ring"', "system 'ring': two have this name, "),
        ('{"idle": Idle}', '{"inc-tw": Idle}', "policy 'inc-tw': two systems have one, the second is inc"),
        ('with_inc="inc"', 'with_inc="ink"', "system 'extra': its policies choose 'ink'; there are .*inc, "),
        ('without_inc="ps"', 'without_inc="pc"', "system 'extra': its policies choose 'pc'; there are "),
        ("(Answer(),)", "(Answer(), Answer())", "paper deep: two figures have the name 'fig42'"),
        (
            'without_inc="ps"',
            'without_inc="ps", usual="idle"',
            "the usual policy: one is needed, .*idle, inc-tw",
        ),
    ],
)
def test_what_is_wrong_with_a_plug_in_is_a_line(
    registered: Registered, old: str, new: str, message: str
) -> None:
    assert old in EXTRA
    registered(EXTRA.replace(old, new))
    with pytest.raises(TestbedError, match=f"^{message}") as error:
        main([])
    assert "\n" not in str(error.value)


def test_a_users_file_brings_a_figure_and_a_policy(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(EXTRA)
    words = ["reproduce", "mine.py:Extra", "fig42", "--out", "out"]
    ended = subprocess.run(
        [sys.executable, "-m", "testbed", *words],
        cwd=tmp_path,
        env={"PYTHONPATH": str(CHECKOUT), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (ended.returncode, ended.stdout.splitlines()[0]) == (0, "ours is 42"), ended.stderr
    assert policy_of(f"{tmp_path}/mine.py:Extra/idle", 3).name == "idle"
    for name, message in (
        ("mine.py:Extra/busy", "its system has no policy 'busy'; it has idle"),
        ("mine.py:Idle/idle", "missing 1 required positional argument"),
    ):
        with pytest.raises(RequestError, match=message):
            policy_of(f"{tmp_path}/{name}", 3)
    (tmp_path / "other.py").write_text(EXTRA.replace('with_inc="inc"', 'with_inc="switches"'))
    with pytest.raises(RequestError, match="it chooses between switches and ps; a policy of a file can"):
        policy_of(f"{tmp_path}/other.py:Extra/idle", 3)


def reproduced(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "testbed.reproduce", "mine.py:Extra", "fig42", "--out", "out"],
        cwd=folder,
        env={
            "PYTHONPATH": str(CHECKOUT),
            "PATH": "/usr/bin:/bin",
            "HOME": str(folder),
            "OPTINC_RUNS": "off",
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


@pytest.mark.parametrize(
    ("old", "new", "answers"),
    [
        ('return {"answers"', '1 / 0; return {"answers"', None),
        ("ours = sum", "1 / 0; ours = sum", [42]),
        ("console.print", "1 / 0; console.print", [42]),
        ('path.write_bytes(b"drawn")', 'path.write_bytes(b"dra"); 1 / 0', [42]),
    ],
    ids=["run", "claims", "show", "draw"],
)
def test_what_a_users_figure_raises_is_a_line_and_loses_no_runs(
    tmp_path: Path, old: str, new: str, answers: list[int] | None
) -> None:
    assert old in EXTRA
    (tmp_path / "mine.py").write_text(EXTRA.replace(old, new))
    ended = reproduced(tmp_path)
    line = r"testbed reproduce: mine.py:Extra fig42: ZeroDivisionError: division by zero \(mine.py:\d+\)\n"
    assert re.fullmatch(line, ended.stderr), ended.stderr
    assert ended.returncode == RequestError.exit_code
    written = {path.name: path for path in (tmp_path / "out").iterdir()}
    assert set(written) == (set() if answers is None else {"fig42.json"})
    if answers is not None:
        assert json.loads(written["fig42.json"].read_text())["answers"] == answers


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["nowhere", "fig1"],
            "^no paper 'nowhere'; accepted: aleph, p4inc, luwu, trio, rotor, FILE.py:CLASS$",
        ),
        (["nowhere.py:Own", "fig1"], "^nowhere.py:Own: FileNotFoundError: "),
    ],
)
def test_a_paper_that_is_not_there_is_a_line(words: list[str], message: str) -> None:
    with pytest.raises(RequestError, match=message):
        reproduce.main(words)


@pytest.mark.parametrize("words", [["--help"], ["systems"], ["run", "--help"], ["reproduce", "--help"]])
def test_what_figures_and_policies_need_is_imported_when_they_run(words: list[str]) -> None:
    code = (
        "import sys\nfrom testbed.__main__ import main\n"
        f"try:\n    main({words!r})\nexcept SystemExit:\n    pass\n"
        "heavy = {'scipy', 'highspy', 'matplotlib', 'torch', 'rich'} & set(sys.modules)\n"
        "assert not heavy, heavy\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], cwd=CHECKOUT, capture_output=True, text=True, timeout=120
    )
    assert ended.returncode == 0, ended.stderr
