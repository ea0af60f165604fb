"""The layers: imports go downward only, packages import each other in no circle, each heavy library has one
importer, and what loads by name is on a list. All of it is read from the source, and nothing is imported.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import networkx as nx
import pytest

from testbed.__main__ import COMMANDS
from tests.imports import import_statements

pytestmark = pytest.mark.text

CHECKOUT = Path(__file__).resolve().parents[2]
CORE = ("testbed", "controller", "workloads")
REPRODUCTIONS = "reproductions"  # above all layers: imports the library, and nothing of the core imports it
OURS = (*CORE, REPRODUCTIONS)

# From the bottom. A module may import its own layer and the ones below it.
LAYERS: tuple[frozenset[str], ...] = (
    frozenset(
        {
            "testbed.errors",
            "testbed.encoding",
            "testbed.interpreters",
            "testbed.keys",
            "testbed.native",
            "testbed.wire",
            "testbed.messages",
        }
    ),
    frozenset(
        {
            "testbed.optics",
            "testbed.topology",
            "testbed.ocs",
            "testbed.aggregation",
            "testbed.scheduling",
            "testbed.reference_model",
            "testbed.linear_programs",
            "testbed.flows",
        }
    ),
    # mechanism
    frozenset({"testbed.plugins"}),
    frozenset({"testbed.cgroups"}),
    frozenset({"testbed.client"}),
    frozenset({"testbed.host_commands", "testbed.host_checks"}),
    frozenset({"testbed.dataplanes.xdp", "testbed.telemetry", "testbed.report", "testbed.records"}),
    frozenset({"testbed.machine"}),
    frozenset({"testbed.emulation", "testbed.dataplanes.folders"}),
    frozenset({"testbed.dataplanes.tors"}),
    frozenset({"testbed.dataplanes.bmv2", "testbed.local", "testbed.jobs"}),
    frozenset({"testbed.queue"}),
    frozenset({"testbed.daemon"}),
    frozenset({"testbed.api"}),
    frozenset({"testbed.figures"}),
    frozenset({"testbed.systems"}),
)
PURE = LAYERS[0] | LAYERS[1]
PURE_CONTROLLER = frozenset({"decide", "flows", "state", "steps"})
# A machine's own code, which a testbed acts on by testbed/machine/interface.py alone.
BELOW_MACHINE = frozenset(
    {
        "testbed.emulation",
        "testbed.dataplanes.xdp",
        "testbed.dataplanes.bmv2",
        "testbed.dataplanes.tors",
        "testbed.dataplanes.folders",
        "testbed.cgroups",
        "testbed.local",
    }
)
ABOVE_MACHINE = frozenset(
    {"testbed.daemon", "testbed.jobs", "testbed.queue", "testbed.telemetry", "testbed.report"}
)
# What looks below it all the same, and why.
LOOKS_BELOW = {
    "testbed/daemon/network.py": "which machine: the one that it is on; and a controller that ends with it",
    "testbed/daemon/process.py": "which machine, and the names of hosts, in this process's own /etc/hosts",
    "testbed/daemon/supervisor.py": "the namespaces and cgroups of the daemon, made before it starts",
}
# What touches the world: processes, devices, sockets, clocks. Time and randomness come in as arguments.
IMPURE = frozenset(
    (
        *(
            "asyncio",
            "ctypes",
            "fcntl",
            "mmap",
            "resource",
            "select",
            "selectors",
            "signal",
            "socket",
            "subprocess",
        ),
        *("tempfile", "threading", "time", "psutil", "torch", "os_ken", "mininet", "bcc"),
        *("bm_runtime", "sswitch_runtime", "thrift"),
    )
)
# What finds modules by names that no import statement has, so that no layer is seen; and what runs code.
LOADING = frozenset({"importlib", "imp", "pkgutil", "runpy"})
READING = ("importlib.metadata", "importlib.resources", "importlib.machinery")  # these load nothing
RUNNING = frozenset({"__import__", "compile", "eval", "exec"})
LOADERS = {
    "testbed/__main__.py": "the command that was typed, alone",
    "testbed/up.py": "loads nothing: asks whether the host has the modules that a testbed needs",
    "testbed/plugins/declarations.py": "what systems declare in modules beside them",
    "testbed/plugins/optical.py": "the optical models, a file each",
    "testbed/plugins/papers.py": "the figures of packages that are installed, above all of the testbed",
    "testbed/plugins/registry.py": "the systems, which are above whoever asks for one by its name",
    "testbed/plugins/user_class.py": "a user's class, in a process of that user's",
    "testbed/dataplanes/folders.py": "an engine's folder, whose libraries need not be there for another's",
    "testbed/emulation/prompt.py": "a line of `py` at the prompt, for the user who typed it",
    "controller/adapter.py": "Ryu or os-ken, whichever the host has",
    "workloads/collectives.py": "a module of torch that has no types",
    "workloads/hook.py": "a module of torch that has no types",
    "workloads/native/build.py": "the backend of the torch that is installed",
    "workloads/template.py": "a worker's script, which becomes the process",
}
ENGINES = frozenset({"xdp", "bmv2"})
"""Folders of testbed/dataplanes/. A system's file, or folder, of such a name has its program's parts of that
engine's places, which act on maps and switches: testbed/plugins/registry.py loads them by name.
"""
# library -> the packages that alone import it
SOLE_IMPORTERS = {
    "mininet": ("testbed.emulation",),
    "bcc": ("testbed.dataplanes.xdp",),
    "os_ken": ("controller",),
    "ryu": ("controller",),
    "eventlet": ("controller",),
    "psutil": ("testbed.local", "testbed.daemon"),  # the main process watches its own children
    "torch": ("workloads",),
    "dash": ("testbed.webpage",),
    "flask": ("testbed.webpage",),
    "werkzeug": ("testbed.webpage",),
    "prometheus_client": ("testbed.webpage",),
    "bm_runtime": ("testbed.dataplanes.bmv2",),
    "sswitch_runtime": ("testbed.dataplanes.bmv2",),
    "thrift": ("testbed.dataplanes.bmv2",),
    "msgspec": ("testbed.messages",),
}
CONTROLLER_MAY = frozenset(
    {
        "testbed.errors",
        "testbed.encoding",
        "testbed.keys",
        "testbed.optics",
        "testbed.ocs",
        "testbed.topology",
        "testbed.wire",
        "testbed.plugins.optical",
        "testbed.plugins.user_class",
        "testbed.client",
        "testbed.dataplanes.folders",
        "testbed.dataplanes.xdp",
    }
)
# Errors, the start of an interpreter, the numbers that jobs share with the data plane, and the loading of a
# user's reducer, alone.
WORKLOADS_MAY = frozenset(
    {
        "testbed.errors",
        "testbed.interpreters",
        "testbed.native",
        "testbed.wire",
        "testbed.plugins.user_class",
    }
)
# The part of the library that the reproductions use as anybody's package may.
OFFERED = frozenset(
    {
        "testbed",
        "testbed.Testbed",
        "testbed.errors",
        "testbed.topology",
        "testbed.aggregation",
        "testbed.scheduling",
        "testbed.plugins",
        "testbed.report",
        "testbed.figures",
        "testbed.systems",
        "workloads",
        REPRODUCTIONS,
    }
)
# Where they reach below it, and for what: each is something that the library does not offer yet.
REACHES = {
    "testbed.client": "files written as the user behind sudo; a testbed for a block's time, and its folder",
    "testbed.wire": "the packets of a worker that pushes its own, and the limits of their numbers",
    "testbed.dataplanes.xdp": "programs of the microbenchmarks' own, compiled and run",
    "testbed.emulation": "namespaces, links and polling threads of their own; processes that end with theirs",
    "testbed.interpreters": "the start of Python in a process of their own",
    "testbed.jobs": "the hosts that a queued job gets, for a prediction of it",
    "testbed.linear_programs": "the most that a rotation of circuits carries",
    "testbed.messages": "the results that `testbed run` and `testbed submit` left in files",
}
# Read by whichever Python comes first, before the project's environment is entered: with all that they import
# at once.
BARE = ("testbed.client.environment", "testbed.__main__", *(f"testbed.{command}" for command in COMMANDS))


@dataclass(frozen=True, slots=True)
class Import:
    """`name` as it is imported in `file`; `deferred` when that happens in a function, or for the type checker
    alone.
    """

    file: Path
    line: int
    name: str
    deferred: bool

    @property
    def importer(self) -> str:
        return _noun(".".join(self.file.relative_to(CHECKOUT).with_suffix("").parts))

    @property
    def imported(self) -> str:
        return _noun(self.name)

    def __str__(self) -> str:
        return f"{self.file.relative_to(CHECKOUT)}:{self.line} imports {self.name}"


def _noun(module: str) -> str:
    """The piece that a module belongs to: `testbed.dataplanes.xdp` of `testbed.dataplanes.xdp.plane`,
    `controller` of `controller.app`.
    """
    parts = module.split(".")
    if parts[:2] == ["testbed", "dataplanes"]:  # each of them by itself
        return ".".join(parts[:3])
    if parts[0] == "testbed" and parts[1:2] != ["__init__"]:
        return ".".join(parts[:2])
    return parts[0]


def _imports(tree: ast.AST, file: Path) -> Iterator[Import]:
    for node, deferred in import_statements(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            assert node.level == 0, f"{file}:{node.lineno}: relative imports hide the layer"
            assert node.module is not None
            whole = node.module in OURS  # `from testbed import rpc` names a module of ours
            names = [f"{node.module}.{alias.name}" for alias in node.names] if whole else [node.module]
        yield from (Import(file, node.lineno, name, deferred) for name in names)


@dataclass(frozen=True, slots=True)
class Sources:
    """The files of ours, and of them: the imports, the files that load by name or run code, and the lines
    that start an interpreter.
    """

    files: list[Path]
    imports: list[Import]
    loading: list[Path]
    starting: list[str]


@cache
def sources() -> Sources:
    """Read and parse each file of ours once. Its tree is dropped before the next: to hold all of them costs
    the collector of garbage three times what it costs to parse them.
    """
    files = [file for top in OURS for file in sorted((CHECKOUT / top).rglob("*.py"))]
    read = Sources(files, [], [], [])
    for file in files:
        tree = ast.parse(file.read_text(), str(file))
        imports = list(_imports(tree, file))
        read.imports.extend(imports)
        if _loads(tree, imports):
            read.loading.append(file)
        read.starting.extend(f"{file.relative_to(CHECKOUT)}:{line}" for line in _starts(tree))
    return read


@pytest.fixture(scope="module")
def imports() -> list[Import]:
    return sources().imports


def _layer(noun: str) -> int:
    """The commands, and what only they use, are above all layers."""
    return next((number for number, layer in enumerate(LAYERS) if noun in layer), len(LAYERS))


def _told(broken: list[Import]) -> str:
    return "\n".join(str(statement) for statement in broken)


def test_the_source_is_found(imports: list[Import]) -> None:
    assert {statement.importer for statement in imports} >= {
        "testbed.wire",
        "testbed.topology",
        "testbed.dataplanes.xdp",
        "controller",
        "workloads",
    }


def test_imports_go_downward(imports: list[Import]) -> None:
    within = [
        statement
        for statement in imports
        if statement.importer.startswith("testbed.") and statement.imported.startswith("testbed.")
    ]
    broken = [statement for statement in within if _layer(statement.imported) > _layer(statement.importer)]
    assert not broken, _told(broken)


def _reproductions_named(file: Path) -> list[str]:
    """Return where a file names the package in a dotted name, such as a loader takes: imports, and texts."""
    tree = ast.parse(file.read_text(), str(file))
    texts = (
        (node.lineno, node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )
    imports = ((each.line, each.name) for each in _imports(tree, file))
    return [
        f"{file.relative_to(CHECKOUT)}:{line} names {text}"
        for line, text in (*imports, *texts)
        if text == REPRODUCTIONS or text.startswith(f"{REPRODUCTIONS}.")
    ]


def test_nothing_of_the_core_imports_a_reproduction() -> None:
    """Neither by a statement, deferred or not, nor by a name that a loader is given."""
    files = [file for top in CORE for file in sorted((CHECKOUT / top).rglob("*.py"))]
    assert [named for file in files for named in _reproductions_named(file)] == []
    assert _reproductions_named(CHECKOUT / REPRODUCTIONS / "p4inc" / "__init__.py"), "it sees none anywhere"


def test_where_the_reproductions_reach_below_the_library_is_on_a_list(imports: list[Import]) -> None:
    reached = {statement.imported for statement in imports if statement.importer == REPRODUCTIONS}
    ours = {noun for noun in reached if noun.split(".")[0] in OURS}
    assert sorted(ours - OFFERED) == sorted(REACHES)


def test_packages_import_each_other_in_no_circle(imports: list[Import]) -> None:
    """Imports inside functions and for the type checker alone count, too."""
    graph = nx.DiGraph((statement.importer, statement.imported) for statement in imports)
    graph.remove_edges_from(list(nx.selfloop_edges(graph)))
    circles = [circle for circle in nx.strongly_connected_components(graph) if len(circle) > 1]
    broken = [
        statement
        for statement in imports
        for circle in circles
        if {statement.importer, statement.imported} <= circle and statement.importer != statement.imported
    ]
    assert not broken, _told(broken)


def test_testbed_imports_neither_its_controller_nor_its_jobs_code(imports: list[Import]) -> None:
    broken = [
        statement
        for statement in imports
        if statement.importer.startswith("testbed.")
        and _layer(statement.importer) < _layer("testbed.systems")
        and statement.name.split(".")[0] in ("controller", "workloads")
    ]
    assert not broken, _told(broken)


def _is_pure(an_import: Import) -> bool:
    of_controller = an_import.file.parent.name == "controller" and an_import.file.stem in PURE_CONTROLLER
    of_system = an_import.importer == "testbed.systems" and not _engine_of(an_import.file)
    return an_import.importer in PURE or of_controller or of_system


def _engine_of(file: Path) -> str | None:
    """Return the engine that a system's part is for; None for a file that is in no such part."""
    return _part_engine(".".join(file.relative_to(CHECKOUT).with_suffix("").parts))


def _part_engine(module: str) -> str | None:
    parts = module.split(".")
    is_part = parts[:2] == ["testbed", "systems"] and len(parts) > 3 and parts[3] in ENGINES
    return parts[3] if is_part else None


def test_pure_packages_touch_nothing(imports: list[Import]) -> None:
    broken = [
        statement for statement in imports if _is_pure(statement) and statement.name.split(".")[0] in IMPURE
    ]
    assert not broken, _told(broken)


def misplaced_parts(imports: list[Import]) -> list[Import]:
    """Return the imports by which a system's file knows an engine that it is no part for, and those by which
    anything but a part itself imports one.
    """
    return [
        statement
        for statement in imports
        if (
            statement.importer == "testbed.systems"
            and statement.imported.startswith("testbed.dataplanes.")
            and statement.imported != f"testbed.dataplanes.{_engine_of(statement.file)}"
        )
        or (
            (engine := _part_engine(statement.name))
            and (engine, "testbed.systems") != (_engine_of(statement.file), statement.importer)
        )
    ]


def test_systems_parts_know_their_engine_alone_and_are_loaded_by_name(imports: list[Import]) -> None:
    broken = misplaced_parts(imports)
    assert not broken, _told(broken)
    assert {_engine_of(statement.file) for statement in imports} == {None, *ENGINES}, "it sees none"


@pytest.mark.parametrize(
    ("file", "name", "is_misplaced"),
    [
        ("testbed/systems/vote/program.py", "testbed.dataplanes.xdp.cells", True),
        ("testbed/systems/vote/bmv2.py", "testbed.dataplanes.xdp.cells", True),
        ("testbed/systems/vote/program.py", "testbed.systems.vote.xdp", True),
        ("testbed/dataplanes/xdp/places.py", "testbed.systems.vote.xdp.table", True),
        ("testbed/systems/vote/xdp.py", "testbed.dataplanes.xdp.cells", False),
        ("testbed/systems/vote/xdp/table.py", "testbed.systems.vote.xdp.timers", False),
    ],
)
def test_a_part_in_the_wrong_place_is_seen(file: str, name: str, is_misplaced: bool) -> None:
    assert bool(misplaced_parts([Import(CHECKOUT / file, 1, name, False)])) is is_misplaced


def _loads(tree: ast.Module, imports: list[Import]) -> bool:
    """Return whether a file imports what loads by name, asks for entry points, or runs code."""
    names = [statement.name for statement in imports if statement.name not in READING]
    called = {
        node.func.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    return bool(
        {name.split(".")[0] for name in names} & LOADING
        or called & (RUNNING | {"entry_points", "distributions"})
    )


def test_a_testbed_acts_on_its_machine_by_the_interface_alone(imports: list[Import]) -> None:
    looking = {
        str(statement.file.relative_to(CHECKOUT))
        for statement in imports
        if statement.importer in ABOVE_MACHINE and statement.imported in BELOW_MACHINE
    }
    assert sorted(looking) == sorted(LOOKS_BELOW)


def test_the_interface_of_a_machine_knows_none(imports: list[Import]) -> None:
    broken = [
        statement
        for statement in imports
        if statement.importer == "testbed.machine" and statement.imported in BELOW_MACHINE
    ]
    assert not broken, _told(broken)


def test_what_loads_by_name_is_on_a_list() -> None:
    loading = {str(file.relative_to(CHECKOUT)) for file in sources().loading}
    assert sorted(loading) == sorted(LOADERS)


@pytest.mark.parametrize(
    ("code", "loads"),
    [
        ("import importlib", True),
        ("from importlib.util import find_spec", True),
        ("from importlib.metadata import version", False),
        ("def f():\n    try:\n        pass\n    finally:\n        import runpy", True),
        ("exec('x')", True),
        ("job.exec('x')", False),
    ],
)
def test_a_file_that_loads_by_name_is_seen(code: str, loads: bool) -> None:
    tree = ast.parse(code)
    assert _loads(tree, list(_imports(tree, CHECKOUT / "testbed/jobs/it.py"))) is loads


def _starts(tree: ast.Module) -> list[int]:
    """Return the lines of the argument vectors that begin with this interpreter."""
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.List | ast.Tuple)
        and node.elts
        and "sys.executable" in ast.unparse(node.elts[0])
    ]


def test_an_interpreter_that_is_started_is_seen() -> None:
    assert _starts(ast.parse("f()\nrun([sys.executable, '-m', x])\nrun((str(sys.executable),))\n[a]")) == [
        2,
        3,
    ]


def test_every_interpreter_is_started_by_one_function() -> None:
    """But a worker's, whose script is to find what lies beside it. api/files.py only looks at files."""
    starts = sources().starting
    files = {start.partition(":")[0] for start in starts}
    assert files == {"testbed/interpreters.py", "testbed/api/files.py"}, starts


def test_nothing_pure_loads_by_name() -> None:
    pure = [file for file in LOADERS if _noun(file.removesuffix(".py").replace("/", ".")) in PURE]
    assert not pure


def elsewhere(imports: list[Import]) -> list[Import]:
    """Return the imports of a library of SOLE_IMPORTERS by another package than its own."""
    return [
        statement
        for statement in imports
        if (library := statement.name.split(".")[0]) in SOLE_IMPORTERS
        and statement.importer not in SOLE_IMPORTERS[library]
    ]


def test_a_library_has_one_importer(imports: list[Import]) -> None:
    broken = elsewhere(imports)
    assert not broken, _told(broken)


@pytest.mark.parametrize("library", SOLE_IMPORTERS)
def test_a_second_importer_of_a_library_is_seen(library: str) -> None:
    first, second = SOLE_IMPORTERS[library][0], "testbed.jobs"
    imports = [
        Import((CHECKOUT / noun.replace(".", "/") / "it.py"), 1, f"{library}.part", True)
        for noun in (first, second)
    ]
    assert elsewhere(imports) == imports[1:]


@pytest.mark.parametrize(("top", "may"), [("controller", CONTROLLER_MAY), ("workloads", WORKLOADS_MAY)])
def test_the_other_processes_import_little_of_testbed(
    imports: list[Import], top: str, may: frozenset[str]
) -> None:
    of_testbed = [
        statement
        for statement in imports
        if statement.importer == top and statement.name.startswith("testbed")
    ]
    broken = [statement for statement in of_testbed if not {statement.imported, statement.name} & may]
    assert not broken, _told(broken)


def beyond(modules: Iterable[str], imports: list[Import]) -> list[Import]:
    """Return the imports, of modules and of what they import at once, outside the standard library."""
    at_once = defaultdict(list)
    for statement in imports:
        if not statement.deferred:
            at_once[statement.file].append(statement)
    pending, broken = list(modules), []
    seen = set(pending)
    while pending:
        path = CHECKOUT.joinpath(*pending.pop().split("."))  # of no file, where it is a name in a module
        for statement in (*at_once[path.with_suffix(".py")], *at_once[path / "__init__.py"]):
            top = statement.name.split(".")[0]
            if top in OURS and statement.name not in seen:
                seen.add(statement.name)
                pending.append(statement.name)
            elif top not in sys.stdlib_module_names and top not in OURS:
                broken.append(statement)
    return broken


def test_the_door_needs_only_the_standard_library(imports: list[Import]) -> None:
    broken = beyond(BARE, imports)
    assert not broken, _told(broken)


def _reached(file: Path) -> Iterator[Path]:
    """Yield the files of ours that importing a file reads, its packages' too; of workloads also what its
    functions import.
    """
    for node in ast.walk(ast.parse(file.read_text())) if "workloads" in file.parts else _statements(file):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        for name in names:
            parts = name.split(".")
            packages = [
                CHECKOUT.joinpath(*parts[:depth], "__init__.py") for depth in range(1, len(parts) + 1)
            ]
            files = (*packages, CHECKOUT.joinpath(*parts).with_suffix(".py"))
            yield from (path for path in files if path.exists())


def _statements(file: Path) -> list[ast.stmt]:
    return ast.parse(file.read_text()).body


def test_what_a_worker_imports_needs_no_msgspec() -> None:
    """A worker runs under its user's interpreter, which need not have it. It loads its user's system by name,
    and with that what such a file imports: all of aggregation, and what the examples have.
    """
    of_workers = ("workloads", "testbed/aggregation", "docs/examples", "examples/parts")
    pending = [file for top in of_workers for file in sorted((CHECKOUT / top).rglob("*.py"))]
    assert CHECKOUT / "docs/examples/largest.py" in pending
    seen = set(pending)
    while pending:
        new = set(_reached(pending.pop())) - seen
        seen |= new
        pending += sorted(new)
    files = {str(file.relative_to(CHECKOUT)) for file in seen}
    assert {"testbed/wire/service_status.py", "testbed/plugins/user_class.py"} <= files
    assert not {file for file in files if file.startswith("testbed/messages/")}


def test_a_door_that_needs_more_is_seen() -> None:
    code = "import sys\nfrom testbed import pods\ndef f():\n    import numpy\n"
    door = list(_imports(ast.parse(code), CHECKOUT / "testbed/up.py"))
    pods = list(_imports(ast.parse("import testbed.up\nimport yaml"), CHECKOUT / "testbed/pods/__init__.py"))
    assert beyond(["testbed.up"], [*door, *pods]) == pods[1:]
    assert beyond(["testbed.up"], door) == []


def test_a_module_of_no_noun_is_not_there() -> None:
    names = {file.stem for file in sources().files}
    assert not names & {"utils", "util", "helpers", "common", "misc"}
