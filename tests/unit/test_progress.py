"""The progress of runs where there is no terminal."""

from __future__ import annotations

import pytest

from reproductions import progress


def test_without_a_terminal_lines_say_what_begins_and_how_far_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "EVERY_S", 0.0)
    with progress.progress("fig8", 2) as on_done:
        assert capsys.readouterr().err == "fig8: 2 runs\n"
        on_done("tw, seed 1")
        assert capsys.readouterr().err == "fig8: 1/2 after 0 s, about 0 s more\n"
    monkeypatch.setattr(progress, "EVERY_S", 1000.0)
    with progress.progress("fig8", 2) as on_done:
        on_done("tw, seed 1")
    assert capsys.readouterr().err == "fig8: 2 runs\n"
    with progress.progress("fig8", 1, lines=True) as on_done:
        on_done("tw, seed 1")
    assert capsys.readouterr().err == "fig8: 1 run\nfig8: 1/1 after 0 s: tw, seed 1\n"
