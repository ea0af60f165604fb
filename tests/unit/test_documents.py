"""The things that a document or a program says are elsewhere in the documentation are there."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from testbed.__main__ import COMMANDS
from tests.bench.tour import rewritten
from tests.sources import ROOT, assert_no_faults, line_at

DOCUMENTS = sorted([*ROOT.glob("*.md"), ROOT / "examples/README.md", *ROOT.glob("docs/**/*.md")])
INDEX = ROOT / "docs/index.md"
FOLDERS = (
    "testbed",
    "controller",
    "workloads",
    "reproductions",
    "examples",
    "scripts",
    "tests",
    "bpf",
    "p4",
    "docs",
)
README_LINES = 120
KINDS = frozenset({".py", ".c", ".h", ".p4", ".md", ".yaml"})
NAMING = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.suffix in KINDS)


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def anchors(text: str) -> set[str]:
    """Return the anchors that GitHub makes of headings: in lower case, blanks as hyphens, other signs left
    out.
    """
    headings = re.findall(r"^#+ (.*)$", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def dead(path: Path, text: str) -> list[str]:
    """Return line and text of the relative links of a document at this path that lead nowhere."""
    lost = []
    for match in re.finditer(r"\]\(([^)\s]+)\)", text):
        link = match[1]
        file, _, anchor = link.partition("#")
        if re.match(r"[a-z]+:", file):
            continue
        target = path.parent / file if file else path
        content = (
            text
            if target == path
            else target.read_text()
            if target.suffix == ".md" and target.exists()
            else ""
        )
        if not target.exists() or (anchor and anchor not in anchors(content)):
            lost.append(f"{line_at(text, match.start())}: {link}")
    return lost


def test_no_link_is_dead() -> None:
    assert_no_faults(DOCUMENTS, lambda path: dead(path, path.read_text()))


def test_a_dead_link_is_seen(tmp_path: Path) -> None:
    (tmp_path / "other.md").write_text("# A head: of (two) words\n")
    alive = "[a](other.md) [b](other.md#a-head-of-two-words) [c](#here) [d](https://example.org/x)\n# Here\n"
    text = f"{alive}[e](gone.md) [f](other.md#gone) [g](#gone) ![h](gone.png)\n"
    (tmp_path / "it.md").write_text(text)
    lost = ["3: gone.md", "3: other.md#gone", "3: #gone", "3: gone.png"]
    assert dead(tmp_path / "it.md", text) == lost


def test_a_document_that_is_named_is_there() -> None:
    named = {
        (name(path), document)
        for path in NAMING
        for document in re.findall(r"(?<![\w/.])docs/[\w/-]+\.md\b", path.read_text())
    }
    assert {document for _, document in named} & {"docs/protocol.md", "docs/verdict.md"}
    assert sorted(pair for pair in named if not (ROOT / pair[1]).exists()) == []


NAMES = r"`[A-Za-z_][\w.]*`"
NAMED_AFTER = re.compile(rf"\]\(([^)#\s]+)\)\s*\(((?:{NAMES}(?:,\s*)?)+)")
NAMED_BEFORE = re.compile(rf"\(((?:{NAMES}(?:,\s*)?)+)\s+in\s+\[[^\]]*\]\(([^)#\s]+)\)")


def without_code(text: str) -> str:
    """Return a document whose blocks of code are empty lines."""
    return re.sub(
        r"^ *```.*?^ *```", lambda block: "\n" * block[0].count("\n"), text, flags=re.MULTILINE | re.DOTALL
    )


@cache
def source_of(path: Path) -> str:
    files = [path] if path.is_file() else [file for file in path.rglob("*") if file.suffix in KINDS]
    return "\n".join(file.read_text() for file in files)


def lost_names(path: Path, text: str) -> list[str]:
    """Return the names that a document says are in a linked file, and that are not.

    It says so by `[file](link) (`name`)`, or by `(`name` in [file](link))`.
    """
    plain = without_code(text)
    named = [(match.start(), match[2], match[1]) for match in NAMED_AFTER.finditer(plain)]
    named += [(match.start(), match[1], match[2]) for match in NAMED_BEFORE.finditer(plain)]
    return [
        f"{line_at(plain, start)}: {name} in {link}"
        for start, names, link in named
        for name in re.findall(r"[\w.]+", names)
        if not all(
            re.search(rf"\b{part}\b", source_of(path.parent / link)) for part in name.split(".") if part
        )
    ]


def test_a_name_beside_a_link_is_in_the_file() -> None:
    assert_no_faults(DOCUMENTS, lambda path: lost_names(path, path.read_text()))


def test_a_name_that_is_not_in_the_file_is_seen(tmp_path: Path) -> None:
    (tmp_path / "it.py").write_text("class Job:\n    def live(self): ...\n")
    text = (
        "```\n[a](it.py) (`no`)\n```\n[a](it.py) (`Job.live`, `Job.die`) [b](it.py), (`live` in [c](it.py))"
    )
    text += " (`gone`\nin [d](it.py))"
    assert lost_names(tmp_path / "it.md", text) == ["4: Job.die in it.py", "4: gone in it.py"]


def test_what_the_architecture_names_is_in_the_sources() -> None:
    text = without_code((ROOT / "docs" / "architecture.md").read_text())
    words = {
        word
        for folder in ("testbed", "controller", "workloads", "reproductions", "bpf", "p4")
        for word in re.findall(r"\w+", source_of(ROOT / folder))
    }
    names = {part for name in re.findall(NAMES, text) for part in name.strip("`").split(".")}
    assert len(names) > 30
    assert sorted(names - words) == []


ROOMS = r"(?:testbed|controller|workloads|reproductions|tests|bpf|p4|scripts|wireshark)"
NAMED_PATH = re.compile(rf"(?<![\w/.<-])({ROOMS}/[\w./-]*[\w/])")
NOT_THERE = frozenset(
    {
        "bpf/aggregate.h",  # in a table of bugs planted before it became bpf/sum.h, which says so
        "bpf/systems/",  # where a system's own programs would lie
        "p4/systems/",
    }
)


def lost_files(text: str) -> list[str]:
    """Return line and name of the files of the checkout that a document names, and that are not there."""
    return [
        f"{line_at(text, match.start())}: no {match[1]}"
        for match in NAMED_PATH.finditer(text)
        if match[1] not in NOT_THERE and not (ROOT / match[1]).exists() and not any(ROOT.glob(f"{match[1]}*"))
    ]


def test_a_file_that_is_named_is_there() -> None:
    documents = [path for path in DOCUMENTS if path.name != "CHANGELOG.md"]  # which tells of what was
    assert_no_faults(documents, lambda path: lost_files(path.read_text()))


def test_a_file_that_is_not_there_is_seen() -> None:
    text = "tests/gate.py, bpf/systems/ and\ntests/gates.py, `testbed/topology/` or tests/gat (a beginning)"
    assert lost_files(text) == ["2: no tests/gates.py"]


def test_the_folders_that_are_named_are_those_that_are_there() -> None:
    contributing = (ROOT / "CONTRIBUTING.md").read_text()
    rows = re.findall(r"^\| (`[^|]*/`(?: `[^|]*/`)*) \|", contributing, re.MULTILINE)
    named = set()
    for cell in rows:
        for words in re.findall(r"`([^`]*)`", cell):
            first, *others = words.split()
            named |= {first, *(f"{first.split('/')[0]}/{other}" for other in others)}
    folders = {f"testbed/{init.parent.name}/" for init in (ROOT / "testbed").glob("*/__init__.py")}
    assert folders <= named
    assert sorted(folder for folder in named if not (ROOT / folder).is_dir()) == []


def test_the_readme_is_short_and_leads_to_the_list_of_all_documents() -> None:
    readme = (ROOT / "README.md").read_text()
    assert len(readme.splitlines()) <= README_LINES
    assert {"docs/index.md", "docs/concepts.md", "docs/tour.md"} <= set(re.findall(r"\]\(([^)#]+)", readme))
    linked = {(INDEX.parent / link).resolve() for link in re.findall(r"\]\(([^)#]+)", INDEX.read_text())}
    others = [path for path in DOCUMENTS if path.parent != ROOT and path != INDEX]
    assert [name(path) for path in others if path.resolve() not in linked] == []


WITH_SUDO = {
    r"sudo\s+testbed\b": "the path of sudo has no folder of a checkout's: sudo .venv/bin/testbed",
    r"sudo\s+\S*testbed\s+(?:run|submit|cancel|status|runs|web|down)\b": "what is their user's needs no sudo",
}


def wrong_with_sudo(text: str) -> list[str]:
    """Return line and reason of what a document has typed with sudo, and would not be found or need it."""
    return [
        f"{line_at(text, match.start())}: {' '.join(match[0].split())!r}: {why}"
        for pattern, why in WITH_SUDO.items()
        for match in re.finditer(pattern, text)
    ]


def test_what_is_to_be_typed_with_sudo_is_found_and_needs_it() -> None:
    assert_no_faults(DOCUMENTS, lambda path: wrong_with_sudo(path.read_text()))


def test_what_needs_no_sudo_is_seen() -> None:
    right = "sudo .venv/bin/testbed up\n.venv/bin/testbed run a.py, sudo make test\n"
    wrong = "sudo\ntestbed up, sudo .venv/bin/testbed\nstatus"
    assert [fault[:2] for fault in wrong_with_sudo(right + wrong)] == ["3:", "4:"]


def test_every_command_has_its_line() -> None:
    lines = re.findall(r"^\| `testbed (\w+)", (ROOT / "docs" / "commands.md").read_text(), re.MULTILINE)
    assert sorted(COMMANDS) == sorted(set(lines))


def test_what_a_tour_prints_is_written_into_it() -> None:
    document = "a\n<!-- shown: ^b|e$ -->\n```console\n$ one\nold\n$ two\n```\n```console\n$ three\n```\n"
    printed = {"one": "b\nc\nd \n\ne \n\n", "two": "", "three": "f\n"}
    assert rewritten(document, printed.__getitem__) == (
        "a\n<!-- shown: ^b|e$ -->\n```console\n$ one\nb\n...\n$ two\n```\n```console\n$ three\nf\n```\n"
    )
