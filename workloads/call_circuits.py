"""Get circuits for a worker's calls as its policy says: before a call starts, and ahead of the next.

All members of a call ask together, so that no circuit is taken for a call that has to wait for a worker which
waits for other circuits. Each releases it when its call has ended: when the last has, all bytes have arrived.
Circuits that were asked for ahead are released as soon as others wait for them.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from testbed.plugins.user_class import is_users, line_of, load
from testbed.wire.calls import CollectiveKind
from testbed.wire.circuit_policies import STATIC
from testbed.wire.settings import WorkerSettings
from workloads.circuit_policy import BUILT_IN, Call, CircuitPolicy, Circuits
from workloads.circuits import Asked, CircuitClient, CircuitsBusyError, CircuitsRefusedError, client

WAIT_S = 10.0  # how long a call waits for circuits, before it goes on over what is lit
_SEND, _RECEIVE = 254, 255  # as in workloads/native/circuits.hpp
_NUMBER_BYTES = 8


class CallCircuits:
    """The circuits of one worker's calls. `hosts`: the name of each worker's host, by rank."""

    def __init__(
        self, policy: CircuitPolicy, circuits: CircuitClient, rank: int, hosts: Sequence[str]
    ) -> None:
        self._policy, self._client, self._rank = policy, circuits, rank
        self._units = [host.partition("h")[0].partition("r")[0] for host in hosts]
        self._lock = threading.Lock()  # guards the fields below
        self._under_way: dict[int, tuple[Call, Asked | None]] = {}
        self._expected: dict[str, Asked] = {}  # asked for ahead, by key
        self._calls = 0
        self._calls_of: Counter[tuple[int, ...]] = Counter()  # by members
        self._refused: set[Circuits] = set()
        self.counts: Counter[str] = Counter()
        self.waited_s = 0.0
        circuits.wanted = self._on_wanted
        ends, self.fd = os.pipe()
        threading.Thread(target=self._follow_ends, args=(ends,), name="call-circuits", daemon=True).start()

    def before_in(self, members: Sequence[int]) -> Callable[[int, int, int], int]:
        """Return the function that the backend calls before each call of a group of these ranks."""

        def before(kind: int, size_bytes: int, peer: int) -> int:
            pair = sorted((self._rank, members[peer])) if peer >= 0 else members
            return self._begin(kind, size_bytes, tuple(pair))

        return before

    def _begin(self, kind: int, size_bytes: int, members: tuple[int, ...]) -> int:
        """Wait for the circuits of a call, and return the call's number. A receiver asks and does not wait:
        it may receive without blocking, and its sender waits.
        """
        with self._lock:
            self._calls += 1
            self._calls_of[members] += 1
            units = tuple(self._units[rank] for rank in members)
            call = Call(_name(kind), size_bytes, members, units, self._calls)
            circuits = tuple(self._policy.before(call) or ())
            asked = self._ask("call", circuits, members, self._calls_of[members])
            self._under_way[call.number] = (call, asked)
        if asked is not None and kind != _RECEIVE and not self._is_lit(asked):
            with self._lock:
                self._under_way[call.number] = (call, None)
        with self._lock:  # what was asked for ahead is this call's now, or was wrong
            expected, self._expected = self._expected, {}
        for each in expected.values():
            each.release()
        return call.number

    def _ask(self, purpose: str, circuits: Circuits, members: tuple[int, ...], number: int) -> Asked | None:
        """Ask for circuits, with the members of a call; None if there are none to ask for."""
        if not circuits or circuits in self._refused:
            return None
        self.counts[f"asked_{purpose}"] += 1
        key = f"{purpose}:{','.join(map(str, members))}:{number}"
        return self._client.ask(circuits, members, ahead=True, wait_s=WAIT_S, key=key)

    def _is_lit(self, asked: Asked) -> bool:
        """Wait for the light. Return False if there is none: the call goes on over what is lit."""
        began = time.monotonic()
        try:
            light = asked.wait(WAIT_S)
        except (CircuitsRefusedError, TimeoutError) as error:
            with self._lock:
                self.counts["went_on_without"] += 1
                if not isinstance(error, CircuitsBusyError | TimeoutError):
                    self._refused.add(asked.circuits)
                    print(f"inc: {error}; calls go on over what is lit", file=sys.stderr, flush=True)
            asked.release()
            return False
        finally:
            self.waited_s += time.monotonic() - began
        with self._lock:
            self.counts["waited_for_a_change"] += light.is_changed
        return True

    def _on_wanted(self, key: str) -> None:
        """Release circuits that were asked for ahead, and that others wait for."""
        with self._lock:
            asked = self._expected.pop(key, None)
        if asked is not None:
            asked.release()

    # ------------------------------------------------------------------ its thread

    def _follow_ends(self, ends: int) -> None:
        """Read the numbers of calls that ended, and ask for the circuits of what follows them."""
        while data := os.read(ends, _NUMBER_BYTES):
            try:
                self._end(int.from_bytes(data, sys.byteorder))
            except CircuitsRefusedError:
                return  # the testbed ended
            except Exception as error:  # a user's policy may raise anything
                print(f"inc: the policy of circuits, after a call: {error}", file=sys.stderr, flush=True)
                traceback.print_exc()

    def _end(self, number: int) -> None:
        with self._lock:
            call, asked = self._under_way.pop(number)
            if asked is not None:
                asked.release()
            expected = self._policy.after(call)
            if expected is not None:
                members = expected.members or (self._rank,)
                following = self._ask("ahead", expected.circuits, members, self._calls_of[members] + 1)
                if following is not None:
                    self._expected[following.key] = following


def _name(kind: int) -> str:
    if kind in (_SEND, _RECEIVE):
        return "send" if kind == _SEND else "recv"
    return CollectiveKind(kind).name.lower() if kind else "call"


_instances: dict[int, CallCircuits] = {}  # by process id


def of_worker(settings: WorkerSettings) -> CallCircuits | None:
    """Return this worker's claims for its calls, made at the first call; None if its job's circuits are
    static. Raises CircuitsRefusedError with one line if a user's policy cannot be loaded.
    """
    if settings.options.circuits == STATIC:
        return None
    if os.getpid() not in _instances:
        _instances[os.getpid()] = _of_options(settings)
    return _instances[os.getpid()]


def summary() -> dict[str, float]:
    """Return this worker's counts, for its statistics; {} if its job's circuits are static."""
    made = _instances.get(os.getpid())
    return {} if made is None else {**made.counts, "waited_s": round(made.waited_s, 6)}


def _of_options(settings: WorkerSettings) -> CallCircuits:
    name = settings.options.circuits
    policy: CircuitPolicy = _made(name, settings.asked_in) if is_users(name) else BUILT_IN[name]()
    return CallCircuits(policy, client(os.getpid(), settings.circuits), settings.rank, settings.hosts)


def _made(name: str, folder: str | None) -> Any:
    try:
        policy = load(name, folder)()
    except Exception as error:  # a user's module may raise anything
        place = line_of(error, name)
        raise CircuitsRefusedError(f"circuits {name}{place}: {type(error).__name__}: {error}") from error
    for method in ("before", "after"):
        if not callable(getattr(policy, method, None)):
            raise CircuitsRefusedError(f"circuits {name}: it has no method {method}(call)")
    return policy
