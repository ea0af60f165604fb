"""Mininet's own prompt (mininet.cli.CLI) on a running testbed, and its commands without the prompt.

Failures are counted, so that a script has an exit code; commands that a running testbed does not support name
the alternative.
"""

from __future__ import annotations

import logging
import os
import select
import subprocess
import sys
from collections.abc import Iterable
from typing import Any

from mininet.cli import CLI
from mininet.log import error, lg, output

from testbed.client.environment import typed
from testbed.client.runtime import Runtime
from testbed.emulation.remote import RemoteHost, RemoteNet
from testbed.errors import RequestError, TestbedError

NOT_A_COMMAND = RequestError.exit_code


class Prompt(CLI):  # type: ignore[misc]  # Mininet has no types
    """The commands. `failure` is the exit code of the first that failed, 0 if none did."""

    def __init__(self, net: RemoteNet, testbed: str) -> None:
        self.failure = 0
        self._testbed = testbed
        self._ready = False
        super().__init__(net)
        self._ready = True

    def run(self) -> None:
        """Run the prompt; ignored when Mininet's constructor calls it, before this object is complete."""
        if self._ready:
            super().run()

    @classmethod
    def initReadline(cls) -> None:
        """Set up history, for a terminal only."""
        if os.isatty(0):
            super().initReadline()

    def follow(self, lines: Iterable[str]) -> None:
        """Execute each line as if typed, until a command leaves the prompt."""
        for line in lines:
            if self.onecmd(self.precmd(line.rstrip("\n"))):
                break

    def _failed(self, code: int) -> None:
        self.failure = self.failure or code

    def onecmd(self, line: str) -> Any:
        try:
            return super().onecmd(line)
        except TestbedError as problem:
            error(f"*** {problem}\n")
            self._failed(problem.exit_code)
            return None

    def default(self, line: str) -> None:
        first, _, _ = self.parseline(line)
        if first not in self.mn:
            error(f"*** Unknown command: {line}\n")
            self._failed(NOT_A_COMMAND)
            return
        super().default(line)
        node = self.mn[first]
        if isinstance(node, RemoteHost) and node.shell is not None:
            node.is_kept = True
            code = node.cmd("echo $?").strip()
            self._failed(int(code) if code.isdecimal() else 1)

    def waitForNode(self, node: RemoteHost) -> None:
        """Wait until the node's command has ended. Typed keys go to the command; a script's lines do not."""
        keys = [self.stdin.fileno()] if self.isatty() else []
        if keys:
            subprocess.run(["stty", "-icanon", "min", "1"], check=False)
        while node.waiting:
            try:
                ready = select.select([node.stdout, *keys], [], [])[0]
                if node.stdout in ready:
                    output(node.monitor())
                elif ready:
                    node.write(os.read(ready[0], 1).decode(errors="replace"))
            except KeyboardInterrupt:
                node.sendInt()

    # ------------------------------------------------------------------ commands with exit codes

    def do_pingall(self, line: str) -> None:
        "Ping between all hosts."
        self._failed(int(self.mn.pingAll(line) > 0))

    def do_pingpair(self, _line: str) -> None:
        "Ping between first two hosts, useful for testing."
        self._failed(int(self.mn.pingPair() > 0))

    def do_sh(self, line: str) -> None:
        "Run an external shell command\n           Usage: sh [cmd args]"
        code = subprocess.call(line, shell=True)  # the user's own command, with the user's own rights
        self._failed(code if code >= 0 else 128 - code)

    def do_py(self, line: str) -> None:
        "Evaluate a Python expression.\n           Node names may be used, e.g.: py h1.cmd('ls')"
        self._python(lambda names: eval(line, names))

    def do_px(self, line: str) -> None:
        "Execute a Python statement.\n            Node names may be used, e.g.: px print(h1.cmd('ls'))"
        self._python(lambda names: exec(line, names))

    def _python(self, run: Any) -> None:
        try:
            result = run(self.getLocals())
        except Exception as problem:  # the line may raise anything
            error(f"{type(problem).__name__}: {problem}\n")
            self._failed(1)
        else:
            if result or result == 0:
                output(result + "\n" if isinstance(result, str) else f"{result!r}\n")

    def do_source(self, line: str) -> None:
        "Read commands from an input file.\n           Usage: source <file>"
        try:
            with open(line.strip()) as file:
                self.follow(file)
        except OSError as problem:
            raise RequestError(f"source {line.strip()}: {problem.strerror}") from problem

    # ------------------------------------------------------------------ commands that are refused

    def do_x(self, line: str) -> None:
        "Not here: a terminal of your own with testbed exec is what does it."
        host = line.split()[0] if line.split() else "HOST"
        raise RequestError(f"open a terminal and run there: {typed('exec', self._testbed)} {host}")

    def do_xterm(self, line: str, term: str = "xterm") -> None:
        "Not here: a terminal of your own with testbed exec is what does it."
        self.do_x(line)

    def do_switch(self, _line: str) -> None:
        "Not here: switches are the testbed's; link, and testbed fault, take links down."
        raise RequestError(
            "switch: a running testbed keeps its switches; take links down by: link NODE NODE down"
        )

    def do_dpctl(self, _line: str) -> None:
        "Not here: flows are the controller's; testbed circuits shows and sets what they make."
        words = typed("circuits", self._testbed)
        raise RequestError(f"dpctl: flows are the controller's; see: {words}")


def converse(runtime: Runtime, script: Iterable[str] | None) -> int:
    """Run the prompt, or a script's lines without one; return the exit code."""
    for handler in lg.handlers:  # commands' output goes to standard output, problems do not
        handler.setStream(sys.stdout)
        handler.addFilter(lambda record: record.levelno < logging.WARNING)
    problems = type(lg.ch)(sys.stderr)
    problems.setFormatter(lg.ch.formatter)
    problems.setLevel(logging.WARNING)
    lg.addHandler(problems)
    net = RemoteNet(runtime)
    try:
        prompt = Prompt(net, runtime.name)
        if script is not None:
            prompt.follow(script)
            return prompt.failure
        prompt.run()
        return 0
    finally:
        net.end_shells()
