"""List papers and their figures by name: the figures that systems bring, and those that installed packages
declare by entry points. Owns no figure.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from importlib.metadata import EntryPoint, distributions

from testbed.aggregation.figure import Figure
from testbed.aggregation.system import System
from testbed.errors import HostError, RequestError, TestbedError
from testbed.plugins.registry import simulations, systems
from testbed.plugins.user_class import in_a_line, is_users, load

Figures = Mapping[str, Figure]
GROUP = "testbed.papers"
"""The entry points of packages: PAPER = MODULE:NAME, the paper's figures."""
NONE = (
    "no paper's figures are installed: this project's are its package reproductions, which set-up installs; "
    "run: sudo make setup"
)


def papers() -> dict[str, Figures]:
    """Return each paper's figures by name, by paper. TestbedError if one paper has two figures of the same
    name, or a package cannot be imported.
    """
    by_paper: dict[str, list[Figure]] = {}
    for system in systems().values():
        if system.paper is not None:
            by_paper.setdefault(system.paper, []).extend(system.figures)
    for paper, figures in simulations():
        by_paper.setdefault(paper, []).extend(figures)
    for paper, figures in installed():
        by_paper.setdefault(paper, []).extend(figures)
    return {paper: _by_name(paper, figures) for paper, figures in by_paper.items() if figures}


@functools.cache
def installed() -> tuple[tuple[str, tuple[Figure, ...]], ...]:
    """Load the figures that installed packages declare by entry points: (paper, figures). An entry point
    whose package is not installed is skipped. TestbedError names a package whose import fails for any other
    reason.
    """
    brought: list[tuple[str, tuple[Figure, ...]]] = []
    for point in _points():
        try:
            brought.append((point.name, tuple(point.load())))
        except Exception as error:  # a third party's package may raise anything
            if isinstance(error, ModuleNotFoundError) and error.name == point.module.partition(".")[0]:
                continue
            raise TestbedError(f"import {point.value}: {in_a_line(error)}") from error
    return tuple(brought)


def _points() -> list[EntryPoint]:
    """Return the entry points of all distributions on the path, without duplicates. entry_points() would read
    only the first distribution of a name, which may be an old optinc.egg-info in a checkout.
    """
    points = [point for each in distributions() for point in each.entry_points if point.group == GROUP]
    return list({(point.name, point.value): point for point in points}.values())


def figures_of(paper: str) -> Figures:
    """Return a paper's figures by name; for FILE.py:CLASS, those of the user's own system. RequestError lists
    the known papers, or says what is wrong with the user's class. HostError if no paper is installed.
    """
    if is_users(paper):
        return _by_name(paper, _users(paper))
    known = papers()
    if not known:
        raise HostError(NONE)
    if paper not in known:
        raise RequestError(f"no paper {paper!r}; accepted: {', '.join(known)}, FILE.py:CLASS")
    return known[paper]


def _users(name: str) -> tuple[Figure, ...]:
    try:
        system: System = load(name)()
        figures = tuple(getattr(system, "figures", ()))
    except Exception as error:  # a user's code may raise anything
        raise RequestError(f"{name}: {in_a_line(error)}") from error
    if not figures:
        raise RequestError(f"{name}: its system says no figures")
    return figures


def _by_name(paper: str, figures: list[Figure] | tuple[Figure, ...]) -> dict[str, Figure]:
    named: dict[str, Figure] = {}
    for figure in figures:
        if figure.name in named:
            raise TestbedError(f"paper {paper}: two figures have the name {figure.name!r}")
        named[figure.name] = figure
    return named
