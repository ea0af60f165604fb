"""Complete a command line for a shell, by argcomplete, from the commands' own parsers.

A command makes its parser only when it is called. So the command is called here and its parser intercepted
when it parses: nothing after that in the command runs.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

ASKED = "_ARGCOMPLETE"  # set by argcomplete's shell function
PARSING = ("parse_args", "parse_intermixed_args", "parse_known_args")
Run = Callable[[list[str]], int]
Completer = Callable[..., Sequence[str]]


def is_asked(environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether a shell requests completion."""
    return ASKED in environ


def complete(
    commands: Mapping[str, str], run: Callable[[str], Run], completers: Mapping[str, Completer]
) -> NoReturn:
    """Print the completions and end the process. `run` returns a command's `main`, by the command's name;
    `completers` adds to COMPLETERS, by option or metavar.
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
    """Patch argparse so that the next parser that would parse prints completions instead and ends the
    process.
    """
    import argcomplete

    originals = {name: getattr(argparse.ArgumentParser, name) for name in PARSING}

    def answer(parser: argparse.ArgumentParser, *_: Any, **__: Any) -> NoReturn:
        for name, method in originals.items():  # argcomplete itself parses the incomplete line
            setattr(argparse.ArgumentParser, name, method)
        _name_things(parser, completers)
        argcomplete.autocomplete(parser)
        raise SystemExit(0)

    for name in PARSING:
        setattr(argparse.ArgumentParser, name, answer)


def _name_things(parser: argparse.ArgumentParser, completers: Mapping[str, Completer]) -> None:
    """Attach completers to a parser's options and arguments, such as testbeds' names, hosts and links."""
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
    """Return the topology of the testbed that the line names; None if that does not run."""
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
"""The completers, by option or by the metavar of its value."""
