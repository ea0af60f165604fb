"""One `simple_switch` process: its command line, its start and its end. Owns a thread for it, and its log
files.
"""

from __future__ import annotations

import functools
import shutil
import socket
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path

from testbed.emulation.namespaces import die_with_parent
from testbed.emulation.sockets import shared_sockets
from testbed.errors import HostError, TestbedError
from testbed.topology.addresses import Dpid, tor_name

BINARY = "simple_switch"
INSTALL = "sudo make p4-tools"
THRIFT_BASE = 9090
HELP_S = 10.0
END_S = 5.0


def thrift_port(dpid: Dpid) -> int:
    """Return the Thrift port of a switch, at 127.0.0.1 in the testbed's root network namespace."""
    return THRIFT_BASE + dpid


def ended_words(dpid: Dpid, how: str) -> str:
    """Describe that a switch ended, and how."""
    return f"{tor_name(dpid)}'s {BINARY} ended ({how})"


def binary() -> str:
    """Return the path of simple_switch. HostError if there is none."""
    path = shutil.which(BINARY)
    if path is None:
        raise HostError(f"{BINARY} (BMv2) is not installed, and the engine bmv2 is it; run: {INSTALL}")
    return path


class SwitchProcess:
    """The process of a switch. One thread starts it and waits for its end.

    The kernel ends the process with the thread that started it (PR_SET_PDEATHSIG), so that thread lives as
    long as the process.
    """

    def __init__(self, dpid: Dpid, ports: Mapping[str, int], program: Path, log: Path, verbose: bool) -> None:
        """Start the process. `ports`: device -> number. `log` is a folder; with `verbose`, the path of every
        packet is logged there too. TestbedError if the start fails.
        """
        self._name, self._argv = tor_name(dpid), _arguments(dpid, ports, program, log, verbose)
        self._log = log / f"{self._name}-bmv2.log"
        self._process: subprocess.Popen[bytes] | None = None
        self._failure: Exception | None = None
        self._why: str | None = None
        self._started = threading.Event()
        with socket.socket() as other:
            if (
                other.connect_ex(("127.0.0.1", thrift_port(dpid))) == 0
            ):  # which would answer instead of this switch
                raise TestbedError(
                    f"start {self._name}'s {BINARY}: another program listens at 127.0.0.1:{thrift_port(dpid)}"
                )
        self._thread = threading.Thread(target=self._run, name=f"{self._name}-bmv2", daemon=True)
        self._thread.start()
        self._started.wait()
        if self._failure:
            raise TestbedError(f"start {self._name}'s {BINARY}: {self._failure}") from self._failure

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def ended(self, within_s: float = 0.0) -> str | None:
        """Describe how it ended: "signal 9", "exit code 1: " and its last words, or the reason passed to
        `stop`. None while it runs.
        """
        assert self._process is not None
        self._thread.join(within_s)
        if self._why:
            return self._why
        code = self._process.returncode
        if code is None:
            return None
        if code < 0:
            return f"signal {-code}"
        return f"exit code {code}: {self.last_words()}"

    def last_words(self) -> str:
        """Return the last line of its log."""
        lines = self._log.read_text(errors="replace").split("\n") if self._log.exists() else []
        return next((line.strip() for line in reversed(lines) if line.strip()), "it said nothing")

    def stop(self, why: str | None = None) -> None:
        """Kill it, if it runs, and wait for its end; it has no state worth saving. `ended` will
        return `why`.
        """
        assert self._process is not None
        if self._process.returncode is None:
            self._why = why
            with shared_sockets(self._process.pid):
                self._process.kill()
                self._thread.join(END_S)
        if self._thread.is_alive():
            raise TestbedError(f"end {self._name}'s {BINARY}: still there {END_S:g} s after SIGKILL")

    def _run(self) -> None:
        try:
            with self._log.open("ab") as output:
                self._process = subprocess.Popen(
                    self._argv,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    preexec_fn=die_with_parent,
                )
        except (OSError, subprocess.SubprocessError) as error:
            self._failure = error
            return
        finally:
            self._started.set()
        self._process.wait()


def _arguments(dpid: Dpid, ports: Mapping[str, int], program: Path, log: Path, verbose: bool) -> list[str]:
    interfaces = [part for device, number in ports.items() for part in ("-i", f"{number}@{device}")]
    arguments = [binary(), *interfaces, "--thrift-port", str(thrift_port(dpid)), "--device-id", str(dpid)]
    if _has_notifications(arguments[0]):
        # in-process: the default is a socket in /tmp, which all switches of this number on the machine would
        # share
        arguments += ["--notifications-addr", "inproc://notifications"]
    if verbose:
        arguments += [
            "--log-level",
            "debug",
            "--log-file",
            str(log / f"{tor_name(dpid)}-bmv2-packets"),
            "--log-flush",
        ]
    else:
        arguments += ["--log-level", "off"]
    return [*arguments, str(program)]


@functools.cache
def _has_notifications(path: str) -> bool:
    """Return whether BMv2 was built with nanomsg; without it, it refuses the option."""
    try:
        ended = subprocess.run([path, "--help"], capture_output=True, text=True, check=False, timeout=HELP_S)
    except subprocess.TimeoutExpired as error:
        raise TestbedError(f"{path} --help: no answer within {HELP_S:g} s") from error
    except OSError as error:
        raise TestbedError(f"{path} --help: {error.strerror}") from error
    return "--notifications-addr" in ended.stdout
