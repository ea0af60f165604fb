"""The output of `testbed up`: a line for each phase of bringing up, rewritten in place on a terminal, and a
summary at the end.
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from typing import TextIO

from testbed.client.environment import typed
from testbed.client.terminal_text import line, raw
from testbed.client.up_messages import UpMessage, UpNote, UpPhase, UpReady


class Screen:
    """Prints the daemon's messages. On a terminal, a phase's line is rewritten as it advances; elsewhere it
    is printed once, at its end.
    """

    def __init__(self, stream: TextIO, as_json: TextIO | None = None) -> None:
        """`as_json`: the stream that gets the summary as one JSON object, instead of text on `stream`."""
        self._stream, self._as_json = stream, as_json
        self._rewrite = stream.isatty()
        self._began = self._phase_began = time.monotonic()
        self._phase: str | None = None
        self._text = ""

    def show(self, message: UpMessage) -> None:
        """Print a message of the main process or the daemon if it is for the user."""
        match message:
            case UpPhase(phase, done, total):
                self._show_phase(phase, done, total)
            case UpNote(note):
                self._end_phase()
                self._print(line(note))
            case UpReady():
                self._end_phase()
                took_s = time.monotonic() - self._began
                if self._as_json is None:
                    self._print(summary(message, took_s))
                else:
                    print(json.dumps(described(message, took_s)), file=self._as_json, flush=True)

    def _show_phase(self, phase: str, done: int, total: int) -> None:
        if phase != self._phase:
            self._end_phase()
            self._phase, self._phase_began = phase, time.monotonic()
        self._text = f"{done}/{total}" if total else ""
        if self._rewrite:
            terminal = raw(self._stream)
            terminal.write(f"\r  {phase:<12} {self._text:>9}\033[K")
            terminal.flush()

    def _end_phase(self) -> None:
        if self._phase is not None:
            if self._rewrite:
                raw(self._stream).write("\r")
            took_s = time.monotonic() - self._phase_began
            self._print(f"  {self._phase:<12} {self._text:>9}  {took_s:5.1f} s")
            self._phase = None

    def _print(self, text: str) -> None:
        self._stream.write(text + "\n")
        self._stream.flush()

    def close(self) -> None:
        """End the line that is being rewritten."""
        self._end_phase()


def summary(message: UpReady, took_s: float) -> str:
    """Format the summary of a testbed that is up, with the commands to use it."""
    ready, name = message.ready, message.name
    option = "" if name == "default" else f" --name {name}"
    circuits = ", ".join(f"{a}-{b}" for a, b in ready.circuits) or "none"
    return "\n".join(
        [
            f"testbed {name!r} is up after {took_s:.1f} s (pid {message.pid}): {ready.units} units,"
            f" {ready.hosts} hosts, Open vSwitch datapath {ready.datapath}",
            f"  circuits     {circuits}",
            f"  run a job    {typed('run')}{option} SCRIPT [ARGS...]",
            f"  look at it   {typed('status')}{option}",
            f"  end it       {'' if message.detached else 'Ctrl-C here, or '}{typed('down')}{option}",
        ]
    )


def described(message: UpReady, took_s: float) -> object:
    """Return the summary of a testbed that is up, as JSON data."""
    facts = asdict(message)
    ready = facts.pop("ready")
    return {**facts, "state": "ready", "took_s": round(took_s, 3), **ready}
