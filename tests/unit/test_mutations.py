"""The planted bugs of tests/bench/mutations.py: each can still be planted, and no two are the same."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.bench.host import ROOT
from tests.bench.mutations import copy_of_tree, gathered
from tests.mutants.mutation import Kind, Mutation
from tests.mutants.table import MUTATIONS


def misplaced(mutations: Sequence[Mutation], root: Path) -> list[str]:
    """Return a line for each bug that has not one place in the tree at `root`, or changes nothing there."""
    texts = {file: (root / file).read_text() for file in {mutation.file for mutation in mutations}}
    faults = []
    for mutation in mutations:
        places = texts[mutation.file].count(mutation.old)
        if places != 1:
            faults.append(f"{mutation.file}: {mutation.name}: {places} places with {mutation.old!r}")
        if mutation.new == mutation.old:
            faults.append(f"{mutation.file}: {mutation.name}: changes nothing")
    return faults


def test_a_bug_has_one_place() -> None:
    faults = misplaced(MUTATIONS, ROOT)
    assert not faults, "\n".join(faults)


def test_every_bug_that_has_not_one_place_is_listed(tmp_path: Path) -> None:
    (tmp_path / "program.c").write_text("one two two")
    words = (("fine", "one", "six"), ("twice", "two", "six"), ("gone", "ten", "six"), ("same", "one", "one"))
    planted = [Mutation(Kind.XDP, "program.c", *each) for each in words]
    assert misplaced(planted, tmp_path) == [
        "program.c: twice: 2 places with 'two'",
        "program.c: gone: 0 places with 'ten'",
        "program.c: same: changes nothing",
    ]


def test_bugs_are_in_all_programs_and_named_once() -> None:
    assert len({(mutation.file, mutation.name) for mutation in MUTATIONS}) == len(MUTATIONS)
    assert {mutation.kind for mutation in MUTATIONS} == set(Kind)
    assert len(MUTATIONS) >= 30


def test_a_copy_of_the_tree_is_tried_and_not_the_tree() -> None:
    code = (
        "from testbed.client.environment import data_folder; from workloads import endpoint; "
        "print(data_folder('bpf'), endpoint.__file__)"
    )
    with copy_of_tree() as root:
        said = subprocess.run(
            [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, timeout=60, check=True
        ).stdout.split()
        assert said == [f"{root}/bpf", f"{root}/workloads/endpoint.py"]


def test_a_bug_that_finds_no_place_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "program.c").write_text("one two two")
    Mutation(Kind.XDP, "program.c", "fine", "one", "three").plant(tmp_path)
    assert (tmp_path / "program.c").read_text() == "three two two"
    with pytest.raises(ValueError, match=r"program.c: 2 places with 'two' \(mutation: twice\)"):
        Mutation(Kind.XDP, "program.c", "twice", "two", "four").plant(tmp_path)


def test_what_one_run_left_out_and_another_tried_is_not_left_out(tmp_path: Path) -> None:
    without, with_p4 = tmp_path / "without.json", tmp_path / "with.json"
    tried = {Kind.XDP: {"kind": Kind.XDP.value}, Kind.P4: {"kind": Kind.P4.value}}
    without.write_text(
        json.dumps({"host": {}, "left_out": {Kind.P4.value: "p4c"}, "mutations": [tried[Kind.XDP]]})
    )
    with_p4.write_text(json.dumps({"host": {}, "left_out": {}, "mutations": [tried[Kind.P4]]}))
    assert gathered([without])["left_out"] == {Kind.P4.value: "p4c"}
    assert gathered([without, with_p4])["left_out"] == {}
