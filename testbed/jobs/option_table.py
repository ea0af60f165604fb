"""All options of a job: those of any job, and those that data-plane programs declare."""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

from testbed.jobs.options import CommonOptions, options_of
from testbed.plugins.declarations import all_options

ALL_OPTIONS: type[CommonOptions] = all_options()
OPTIONS = options_of(ALL_OPTIONS)
AS_USUAL = ALL_OPTIONS()
DEFAULTS = AS_USUAL.as_json()
OF_PROGRAMS = tuple(name for name, option in OPTIONS.items() if option.elsewhere)
"""The options that only some data-plane programs have."""


def _words(words: tuple[str, ...], **_: Any) -> tuple[str, ...]:
    return words


def add_to(parser: argparse.ArgumentParser) -> None:
    """Add the options to the parser of a command."""
    beside: dict[str, Any] = {}  # groups of two exclusive options, by the first
    for name, option in OPTIONS.items():
        rivals = [other for other, each in OPTIONS.items() if each.not_with == name]
        target: Any = parser
        if rivals:
            target = beside[name] = parser.add_mutually_exclusive_group()
        elif option.not_with:
            target = beside[option.not_with]
        if option.typed is None:
            target.add_argument(*option.flags_of(name), dest=name, action="store_true", help=option.line)
        else:
            action = target.add_argument(
                *option.flags_of(name),
                dest=name,
                type=option.typed,
                default=DEFAULTS[name],
                metavar=option.metavar,
                help=option.line,
            )
            if option.words:
                action.completer = partial(_words, option.words)
