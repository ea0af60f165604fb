"""Systems are plug-ins: no module outside a system's own folder names one. Read from the source, by what the
registered systems say of themselves.
"""

from __future__ import annotations

import ast
import pkgutil
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from testbed import systems as package
from testbed.plugins.papers import papers
from testbed.plugins.policies import policies
from testbed.plugins.registry import systems

pytestmark = pytest.mark.text

CHECKOUT = Path(__file__).resolve().parents[2]
FOLDERS = frozenset(info.name for info in pkgutil.iter_modules(package.__path__) if info.ispkg)
NAMES = frozenset(
    name.casefold()
    for name in (*systems(), *FOLDERS, *policies(), *(name for paper in papers().values() for name in paper))
)
PAPERS = frozenset(papers())
OWN = ("testbed/systems", "workloads")
"""A system has its folder in the first, and in the second what runs beside a training script."""
CAPITALS = re.compile(r"\b[A-Z][A-Z0-9+-]*\b")  # a system's name, as prose writes it
# What is called as a system is, and is none: (module, word) and why.
OTHERS = {
    ("testbed/topology/catalogue.py", "aleph"): "the configuration that is its paper's testbed",
    ("testbed/topology/catalogue.py", "trio"): "the configuration that is its paper's testbed",
    ("testbed/topology/catalogue.py", "luwu"): "the configuration that is its paper's testbed",
    ("testbed/topology/load.py", "inc"): "the topology's key of the jobs that a switch sums for",
    ("testbed/topology/load_optical.py", "ring"): "units wired in a ring",
    ("testbed/topology/optical.py", "ring"): "units wired in a ring",
    ("testbed/scheduling/constraints.py", "inc"): "the model's word for computing in the network",
    ("testbed/scheduling/form.py", "inc"): "the model's field of the units whose switches sum",
    ("testbed/scheduling/form.py", "ps"): "the model's field of the unit of a job's parameter server",
    ("testbed/queue/submission.py", "ps"): "the jobs file's key of the unit of a job's parameter server",
    ("testbed/jobs/attempt.py", "ps"): "a worker's key of its parameter server's address",
    ("testbed/wire/places.py", "ring"): "the ring in memory into which results are written",
    ("testbed/dataplanes/xdp/hosts.py", "ring"): "the ring in memory into which results are written",
    ("testbed/emulation/net.py", "switches"): "the word for what is being made, in the progress of `up`",
    ("testbed/host_checks/kernel.py", "latency"): "the parameter of a token bucket",
    ("testbed/ocs/routing.py", "rotor"): "the network that a routing is of",
    ("testbed/webpage/fabric_picture.py", "switches"): "what a trace of the page's picture shows",
    ("testbed/systems/job_options.py", "trio"): "the class of all options has those of its program",
    ("workloads/autoload.py", "inc"): "the backend's name, by which torch finds it",
    ("workloads/hook.py", "inc"): "the backend's name, by which torch finds it",
    ("workloads/jobs/digits.py", "inc"): "the backend's name, by which torch finds it",
    ("workloads/jobs/timed_digits.py", "inc"): "the backend's name, by which torch finds it",
    ("workloads/jobs/layers.py", "inc"): "the backend's name, by which torch finds it",
    ("workloads/jobs/stages.py", "inc"): "the backend's name, by which torch finds it",
    ("workloads/jobs/vectors.py", "inc"): "the backend's name, by which torch finds it",
}


def said(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield line and word of each name of a system, or of what it brings, in code: docstrings aside. A text
    names one that is its name, whatever its letters' case, or has it in capitals among its words.
    """
    prose = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose:
            text = node.value.casefold()
            words = {text, *(word.casefold() for word in CAPITALS.findall(node.value))} & NAMES
            papers_said = {paper for paper in PAPERS if paper in text and text not in NAMES}
            yield from ((node.lineno, word) for word in sorted(words | papers_said))
        elif isinstance(node, ast.Import | ast.ImportFrom):
            modules = (
                [node.module or ""] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names]
            )
            for module in modules:
                parts = module.split(".")
                if parts[:2] == ["testbed", "systems"] and parts[2:3] and parts[2] in FOLDERS:
                    yield node.lineno, parts[2]
        name = next((getattr(node, key) for key in ("id", "attr", "arg", "name") if hasattr(node, key)), None)
        if isinstance(name, str):
            yield from ((getattr(node, "lineno", 0), paper) for paper in PAPERS if paper in name.lower())


@cache
def namings() -> frozenset[tuple[str, int, str]]:
    """Return module, line and word, outside the systems' own folders."""
    files = (
        file for top in ("testbed", "controller", "workloads") for file in (CHECKOUT / top).rglob("*.py")
    )
    return frozenset(
        (str(file.relative_to(CHECKOUT)), line, word)
        for file in files
        if not any(file.is_relative_to(CHECKOUT / top / name) for top in OWN for name in FOLDERS)
        for line, word in said(ast.parse(file.read_text(), str(file)))
    )


def test_no_module_outside_a_systems_folder_names_one() -> None:
    broken = sorted(naming for naming in namings() if (naming[0], naming[2]) not in OTHERS)
    assert not broken, "\n".join(f"{file}:{line} names {word}" for file, line, word in broken)


def test_what_is_excused_is_there() -> None:
    assert set(OTHERS) - {(file, word) for file, _, word in namings()} == set()


def test_a_name_is_found_in_each_kind_of_code() -> None:
    code = '"""Says inc."""\nimport testbed.systems.p4inc.milp\nfrom testbed.systems.p4inc import x\n'
    code += 'SYNC = "inc"\nPOLICY = "inc-tw"\nPATH = "out/p4inc"\nP4INC_DEFAULTS = 1\nf(figure="fig8")\n'
    code += (
        'MODE = "INC"\nPLAIN = "Ring"\nNOTE = f"no INC capacity ({PATH}): sums at {PLAIN}"\nOK = "its ring"\n'
    )
    lines = [line for line, _ in said(ast.parse(code))]
    assert sorted(set(lines)) == [2, 3, 4, 5, 6, 7, 8, 9, 10, 11]
