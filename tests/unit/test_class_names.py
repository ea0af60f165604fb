"""One word, one meaning: a public class of the testbed, its controller or the reproductions has a name that
no other has, but for those on a list, each with the reason why both have it.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

pytestmark = pytest.mark.text

CHECKOUT = Path(__file__).resolve().parents[2]
TWICE = {
    "Asked": "what somebody was asked for: a job of a predicted queue, a command whose record is written",
    "Choice": "an enumeration that says what its members mean; the two systems of a policy's choice",
    "Hosts": "views of one thing, a machine's hosts: where processes start, and where rings are",
    "Instance": "what a paper's problem is solved for, as its field says: P4INC-AOI's MILP, ALEPH's clusters",
    "Job": "the table of words in docs/architecture.md has both: alive, and as policies see it",
    "Links": "views of one thing, a machine's links: what a testbed does to them, what telemetry reads",
    "Loops": "a Protocol, and the class that has it, which a data plane may not import",
    "Port": "a kind of neighbour in a record of the data planes; a device of a bridge. Of OpenFlow and of P4",
    "Ring": "a worker's memory of results; the baseline that gloo calls ring. Of the field, both",
    "Record": "the layout of a map's values, and what a command left (docs/records.md): records, both",
    "Role": "the contract's has numbers, the pure one has none, so that a data plane may have others",
    "Run": "of a figure's sweep, and of a record: where there are several, they are repeated runs, both",
    "State": "what a policy is shown, and what a controller knows: the state of a pure decision, both",
    "Stored": "the bits of a stored result's flags, and a stored result, in the model of what reads them",
    "Tors": "the folder of each engine has this class, and is asked for it by name (dataplanes/folders.py)",
    "Verdict": "the table of words in docs/architecture.md has both: of a packet, and of a result",
}


@cache
def _public_classes() -> dict[str, list[str]]:
    """Return the files in which each public class is defined, by its name."""
    files = defaultdict(list)
    for top in ("testbed", "controller", "reproductions"):
        for file in sorted((CHECKOUT / top).rglob("*.py")):
            for node in ast.parse(file.read_text(), str(file)).body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    files[node.name].append(str(file.relative_to(CHECKOUT)))
    return dict(files)


def test_a_class_has_a_name_of_its_own() -> None:
    classes = _public_classes()
    assert len(classes) > 200
    assert {name: files for name, files in classes.items() if len(files) > 1 and name not in TWICE} == {}


def test_the_list_is_of_names_that_two_have() -> None:
    classes = _public_classes()
    assert [name for name in TWICE if len(classes.get(name, ())) < 2] == []
