"""The planted bugs of tests/bench/mutations.py: each can still be planted, and no two are the same."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.bench.host import ROOT
from tests.bench.mutations import copy_of_tree, gathered
from tests.mutants.mutation import Kind, Mutation
from tests.mutants.table import MUTATIONS


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: f"{mutation.file}: {mutation.name}")
def test_a_bug_has_one_place(mutation: Mutation) -> None:
    assert (ROOT / mutation.file).read_text().count(mutation.old) == 1
    assert mutation.new != mutation.old


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
