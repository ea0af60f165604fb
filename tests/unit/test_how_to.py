"""The form of docs/how-to, and where its pages are listed; tests/privileged/test_how_to.py does them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.how_to import PAGES, Command, Written, is_printed, steps
from tests.sources import ROOT, assert_no_faults

pytestmark = pytest.mark.text
LINES = 70


def test_each_page_is_short_and_has_a_tested_block() -> None:
    def faults(path: Path) -> list[str]:
        text = path.read_text()
        lines = len(text.splitlines())
        long = [f"{lines}: more than {LINES} lines"] if lines > LINES else []
        tested = any(isinstance(step, Command) and step.lines for step in steps(text))
        return long if tested else [*long, "1: no command whose output is shown"]

    assert_no_faults(PAGES, faults)


def test_each_page_is_in_the_site_and_in_the_list_of_documents() -> None:
    site, index = (ROOT / "mkdocs.yml").read_text(), (ROOT / "docs" / "index.md").read_text()
    names = [f"how-to/{path.name}" for path in PAGES]
    assert [name for name in names if f": {name}\n" not in site or f"({name})" not in index] == []


PAGE = """# A page

Write `a.yaml`:

```yaml
a: 1
```

```sh
never run
```

```console
$ one \\
    --long
b 1.5 s
...
$ two &
```
"""


def test_what_a_reader_does_is_read_in_order() -> None:
    assert list(steps(PAGE)) == [
        Written("a.yaml", "a: 1\n"),
        Command("one --long", ("b 1.5 s", "...")),
        Command("two &", ()),
    ]


def test_a_block_that_begins_with_no_command_is_refused() -> None:
    with pytest.raises(ValueError, match="begins with"):
        list(steps("```console\nprinted\n$ one\n```\n"))


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ((), ""),
        (("took ... s (pid ...)",), "took 1.5 s (pid 3)\n"),
        (("a   b",), "a b  \n"),
        (("a", "...", "d"), "a\nb\n\nc\nd\n"),
        (("...", "a", "..."), "a\n"),
    ],
)
def test_what_was_printed_is_accepted(shown: tuple[str, ...], printed: str) -> None:
    assert is_printed(Command("one", shown), printed)


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ((), "a\n"),
        (("a",), ""),
        (("a",), "a\nb\n"),
        (("a", "c"), "a\nb\nc\n"),
        (("...", "b", "...", "a"), "a\nb\n"),
        (("a.c",), "abc\n"),
        (("took ... s",), "took 1.5 ms\n"),
    ],
)
def test_what_was_not_printed_is_seen(shown: tuple[str, ...], printed: str) -> None:
    assert not is_printed(Command("one", shown), printed)


def test_a_command_in_the_background_is_held_to_its_beginning() -> None:
    assert is_printed(Command("one &", ("a ...",)), "a 1\nb\n")
    assert not is_printed(Command("one &", ("b",)), "a 1\nb\n")
