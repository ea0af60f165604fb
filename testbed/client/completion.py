"""Words that a shell completes, by argcomplete, which asks the commands' own parsers.

A command makes its parser only when it is called, so that it is called here, and its parser found when it
parses: nothing of a command that comes after is run.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

ASKED = "_ARGCOMPLETE"  # set by the shell's function, argcomplete's own
PARSING = ("parse_args", "parse_intermixed_args", "parse_known_args")
Run = Callable[[list[str]], int]
Completer = Callable[..., Sequence[str]]


def is_asked(environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether a shell asks for words."""
    return ASKED in environ


def complete(
    commands: Mapping[str, str], run: Callable[[str], Run], completers: Mapping[str, Completer]
) -> NoReturn:
    """Answer the shell, and end. `run` gives the `main` of a command, by its name; `completers` the words of
    what goes by these metavars, beside what is known here.
    """
    import argcomplete
    from argcomplete.lexers import split_line

    line, at = os.environ.get("COMP_LINE", ""), int(os.environ.get("COMP_POINT", "0"))
    words = split_line(line, at)[3]
    if len(words) > 1 and words[1] in commands:
        os.environ[ASKED] = "2"  # the words of that command's parser begin with its name
        _at_parsing({**COMPLETERS, **completers})
        run(words[1])([])
    else:
        parser = argparse.ArgumentParser(prog="testbed")
        parser.add_argument("--version", action="store_true")
        subparsers = parser.add_subparsers()
        for name, what in commands.items():
            subparsers.add_parser(name, help=what)
        argcomplete.autocomplete(parser)
    raise SystemExit(0)


def _at_parsing(completers: Mapping[str, Completer]) -> None:
    """Have the next parser that parses answer the shell in place of that, which ends the process."""
    import argcomplete

    own = {name: getattr(argparse.ArgumentParser, name) for name in PARSING}

    def answer(parser: argparse.ArgumentParser, *_: Any, **__: Any) -> NoReturn:
        for name, method in own.items():  # argcomplete parses what there is of the line
            setattr(argparse.ArgumentParser, name, method)
        _name_things(parser, completers)
        argcomplete.autocomplete(parser)
        raise SystemExit(0)

    for name in PARSING:
        setattr(argparse.ArgumentParser, name, answer)


def _name_things(parser: argparse.ArgumentParser, completers: Mapping[str, Completer]) -> None:
    """Have the parser know the names of things, such as testbeds, and a testbed's hosts and links."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for sub in action.choices.values():
                _name_things(sub, completers)
            continue
        for word in (*action.option_strings, str(action.metavar)):
            if word in completers:
                action.completer = completers[word]  # type: ignore[attr-defined]
                break


def _testbeds(**_: Any) -> Sequence[str]:
    from testbed.client.runtime import running

    return running()


def _configurations(prefix: str, **_: Any) -> Sequence[str]:
    from argcomplete.completers import FilesCompleter

    from testbed.topology.catalogue import READY

    files = FilesCompleter(("yaml", "yml", "py"))(prefix)
    return [*(name for name in READY if name.startswith(prefix)), *files]


def _hosts(parsed_args: argparse.Namespace, **_: Any) -> Sequence[str]:
    topology = _topology(parsed_args)
    return topology.host_names if topology else ()


def _links(parsed_args: argparse.Namespace, **_: Any) -> Sequence[str]:
    topology = _topology(parsed_args)
    return tuple(link for unit in topology.units for link in unit.links) if topology else ()


def _topology(options: argparse.Namespace) -> Any:
    """Return the topology of the testbed that the line is about; None where it does not run."""
    from testbed.client.runtime import Runtime
    from testbed.errors import TestbedError
    from testbed.topology.model import Topology

    try:
        return Topology.from_json(Runtime.meant(getattr(options, "name", None)).topology.read_text())
    except (OSError, json.JSONDecodeError, TestbedError):
        return None


COMPLETERS: dict[str, Completer] = {
    "--name": _testbeds,
    "--config": _configurations,
    "HOST": _hosts,
    "LINK": _links,
}
"""The completers, by an option or by the metavar of its value."""
