"""Texts of one user, printed to another: without what a terminal would carry out."""

from __future__ import annotations

import io
import json
import sys
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed import status
from testbed.client import environment, rpc, terminal_text
from testbed.client.screen import Screen
from testbed.client.up_messages import UpNote
from testbed.errors import RequestError, TestbedError
from testbed.messages.coding import as_json
from testbed.webpage.source import PageSource
from tests.unit import page_world
from tests.unit.page_world import World

ATTACKS = {
    "CSI": "\x1b[2J\x1b[1;1H",
    "OSC 52": "\x1b]52;c;cm0gLXJmIC8K\x07",
    "title": "\x1b]0;root\x1b\\",
    "return": "ok\rtestbed down: done",
    "backspace": "no\b\byes",
    "C1": "\x9b2J\x9d52;c;AAAA\x9c",
    "DEL": "a\x7fb",
    "override": "a\u202egnp.exe\u202c",
    "isolate": "\u2066x\u2069\u200b\u200f\ufeff",
    "separators": "a\u2028b\u2029c\x85d\x0be\x0cf",
    "NUL": "a\x00b",
    "surrogate": "a\udc9bb",
}
ALL = "".join(ATTACKS.values())


def is_clean(text: str) -> bool:
    bad = {"Cc", "Cf", "Cs", "Zl", "Zp"}
    return not [each for each in text if each not in "\n\t" and unicodedata.category(each) in bad]


@pytest.mark.parametrize("attack", ATTACKS.values(), ids=ATTACKS)
def test_an_attack_is_shown_and_not_carried_out(attack: str) -> None:
    assert is_clean(terminal_text.clean(attack))
    assert "\n" not in terminal_text.line(f"{attack}\nforged: {attack}\t")
    assert terminal_text.clean(terminal_text.clean(attack)) == terminal_text.clean(attack)


def test_what_has_a_shape_stays() -> None:
    for text in ("train.py", "größer — 10 µs ≤ 20", "名前", "a\n\tb", "e\u0301", "│ ─ 🙂"):
        assert terminal_text.clean(text) == text
    assert terminal_text.line("a\nb\tc") == "a\\nb\\tc"


@given(st.text())
def test_any_text_is_clean_afterwards(text: str) -> None:
    assert is_clean(terminal_text.clean(text))
    assert terminal_text.lines({text: [text, {"a": (text)}, 3, None]})


def test_all_that_a_command_prints_is_cleaned(capsys: pytest.CaptureFixture[str]) -> None:
    def run(_: list[str]) -> int:
        print(f"out {ALL}")
        sys.stderr.write(f"note {ALL}\n")
        sys.stderr.writelines([ALL, "\n"])
        terminal_text.raw(sys.stdout).write("own \x1b[K\n")
        raise RequestError(f"job {ALL}\ntestbed run: forged")

    before = sys.stdout, sys.stderr
    assert environment.exit_code("testbed run", run, []) == 2
    assert (sys.stdout, sys.stderr) == before
    out, err = capsys.readouterr()
    assert is_clean(out.replace("own \x1b[K", ""))
    assert "own \x1b[K" in out, "a command's own sequences stay"
    assert is_clean(err)
    assert len(err.splitlines()) == 3, "an error is a line"


def poisoned(data: Any, key: str = "") -> Any:
    """Put the attacks into each text, but for the words that a program looks at."""
    if isinstance(data, dict):
        return {each: poisoned(value, each) for each, value in data.items()}
    if isinstance(data, list):
        return [poisoned(each, key) for each in data]
    fixed = ("state", "kind", "engine", "name", "unit")
    return f"{data}{ALL}\nforged" if isinstance(data, str) and key not in fixed else data


def test_status_shows_no_text_of_a_user_s_as_it_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answer = page_world.status()
    answer["jobs"] = poisoned(answer["jobs"])
    answer["user"], answer["configuration"] = poisoned(["u", "c"])
    text = status.page(terminal_text.lines(page_world.read(answer)))
    assert is_clean(text)
    assert not [row for row in text.splitlines() if row.startswith("forged")]
    world = World(tmp_path)
    world.status = poisoned(world.status)
    source: PageSource = world.source
    look = source.look()
    assert look.status is not None
    written = json.dumps(as_json(look.status), ensure_ascii=False)
    assert is_clean(written)
    assert "\n" not in written


def test_the_screen_of_up_shows_a_note_as_a_line() -> None:
    stream = io.StringIO()
    Screen(stream).show(UpNote(f"scheduler: job 1 ({ALL}\nforged)"))
    assert is_clean(stream.getvalue())
    assert stream.getvalue().count("\n") == 1


def test_errors_of_a_server_are_a_clean_line(tmp_path: Path) -> None:
    def answer(request: Any, peer: Any, emit: Any, gone: Any) -> Any:
        raise TestbedError(f"FILE.py:{ALL}\nforged")

    with rpc.serve(tmp_path / "s", answer), pytest.raises(TestbedError) as raised:
        rpc.call(tmp_path / "s", "run")
    assert is_clean(str(raised.value))
    assert "\n" not in str(raised.value)
