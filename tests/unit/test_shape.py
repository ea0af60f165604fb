"""The shape of classes: constructors that a reader can call by heart, and nothing set from outside afterwards
that is called back.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.sources import ROOT, assert_no_faults

pytestmark = pytest.mark.text

MODULES = sorted(
    path for folder in ("testbed", "controller", "reproductions") for path in (ROOT / folder).rglob("*.py")
)
LIBRARYS = (
    "controller/ryu_api.py",
)  # where a library's module has no other way to name a connection's class
MOST_ARGUMENTS = 6  # more are a frozen dataclass of options


def crowded(tree: ast.Module) -> list[str]:
    """Return the classes whose constructors take more than MOST_ARGUMENTS; fields of dataclasses are
    options.
    """
    classes = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    return [
        f"{node.lineno}: {kind.name} takes more than {MOST_ARGUMENTS} arguments"
        for kind in classes
        for node in kind.body
        if isinstance(node, ast.FunctionDef)
        and node.name == "__init__"
        and len([*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]) - 1 > MOST_ARGUMENTS
    ]


def handed_on(tree: ast.Module) -> list[str]:
    """Return the assignments of something that can be called to an attribute of another object."""
    functions = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}

    def is_called(value: ast.expr) -> bool:
        method = isinstance(value, ast.Attribute) and value.attr in functions
        return (
            method or isinstance(value, ast.Lambda) or (isinstance(value, ast.Name) and value.id in functions)
        )

    return [
        f"{node.lineno}: {ast.unparse(node)}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign) and is_called(node.value)
        for target in node.targets
        if isinstance(target, ast.Attribute) and ast.unparse(target.value) not in ("self", "cls")
    ]


@pytest.mark.parametrize(
    ("source", "number"),
    [
        ("class A:\n    def __init__(self, a, b, c, d, e, f): pass", 0),
        ("class A:\n    def __init__(self, a, b, c, d, e, f, g): pass", 1),
        ("class A:\n    def __init__(self, a, b, *, c, d, e, f, g): pass", 1),
        ("class A:\n    def f(self, a, b, c, d, e, f, g): pass", 0),
    ],
)
def test_a_constructor_of_many_arguments_is_seen(source: str, number: int) -> None:
    assert len(crowded(ast.parse(source))) == number


@pytest.mark.parametrize(
    ("source", "number"),
    [
        ("def f(): pass\njob.on_end = f", 1),
        ("job.on_end = lambda: None", 1),
        ("class A:\n    def f(self): job.on_end = self.f", 1),
        ("class A:\n    def f(self): self.on_end = lambda: None", 0),
        ("job.ended_s = 1.0", 0),
    ],
)
def test_a_call_back_that_is_set_from_outside_is_seen(source: str, number: int) -> None:
    assert len(handed_on(ast.parse(source))) == number


def misshapen(path: Path) -> list[str]:
    """Return the faults of a module's classes."""
    tree = ast.parse(path.read_text())
    return crowded(tree) + (handed_on(tree) if str(path.relative_to(ROOT)) not in LIBRARYS else [])


def test_classes_are_called_by_few_and_call_back_nobody_who_came_later() -> None:
    assert_no_faults(MODULES, misshapen)
