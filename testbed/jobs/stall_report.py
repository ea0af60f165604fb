"""Describe a stalled job in one line: the collective that each worker waits for, at which line of its script,
or what it does instead. Pure: all its knowledge comes as arguments.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from testbed.jobs.board import GroupState
from testbed.wire.calls import Call, Tables, sides_in_words, workers_in_words

NOT_THE_SAME = "they do not ask for the same"
THE_NETWORK = "they ask for the same, and wait for the network"
OTHER_GROUPS = "they wait in different groups"
_ACTS = {"stopped": ("is stopped", "are stopped"), "sleeping": ("sleeps", "sleep")}


@dataclass(frozen=True, slots=True)
class Activity:
    """A worker's state: its entry on the job board, and its process's activity (`running`, `sleeping`,
    `stopped`, or empty if unknown).
    """

    rank: int
    phase: GroupState
    asked: int
    waits_for: int
    runs: bool
    acts: str = ""


def account(members: Sequence[Activity], tables: Tables | None) -> str:
    """Describe a stalled job, as in `worker 0 waits in broadcast of 16 float32 (collective 9, val.py:14),
    worker 1 in barrier (collective 8, val.py:15): they do not ask for the same`.
    """
    return _Account(members, tables).in_words()


def gathering(members: Sequence[Activity], tables: Tables | None, waited_s: float) -> str:
    """Describe a job of which some workers wait for their process group: which have joined it, which wait for
    it where, and which have not come.
    """
    joined = [member.rank for member in members if member.phase is GroupState.JOINED]
    who = f"only {workers_in_words(joined)}" if joined else "nobody"
    has = "have" if len(joined) > 1 else "has"
    others = [member for member in members if member.phase is not GroupState.JOINED]
    words = _Account(others, tables, home="it").in_words()
    return f"{who} {has} joined the process group after {waited_s:.0f} s: {words}"


class _Account:
    """The description of these workers; `home` is their process group in words."""

    def __init__(
        self, members: Sequence[Activity], tables: Tables | None, home: str = "the process group"
    ) -> None:
        self._members, self._tables, self._home = members, tables, home
        self._awaited: dict[int, Call] = {}
        for member in members:
            wait = tables.awaited(member.rank) if tables and member.runs else None
            if wait is not None:
                self._awaited[member.rank] = wait[0]
        groups = list(dict.fromkeys(call.group for call in self._awaited.values()))
        # number the groups only if there are several; scripts know no names for them
        self._groups = {group: f"group {at}" for at, group in enumerate(groups, 1) if len(groups) > 1}

    def in_words(self) -> str:
        sides: dict[tuple[str, str, str], list[int]] = {}
        for member in self._members:
            sides.setdefault(self._does(member), []).append(member.rank)
        phrases, before = list[str](), ""
        for (singular, plural, rest), ranks in sides.items():
            verb = "" if singular == before == "waits" else f" {singular if len(ranks) == 1 else plural}"
            before = singular
            phrases.append(f"{workers_in_words(ranks)}{verb} {rest}")
        judgement = self._judgement()
        return sides_in_words(phrases) + (f": {judgement}" if judgement else "")

    def _does(self, member: Activity) -> tuple[str, str, str]:
        """Return a worker's activity in words: the verb in singular and plural, and the rest."""
        line, meets, inside = "", "", ""
        if self._tables:
            tables, rank = self._tables, member.rank
            line, meets, inside = tables.line(rank), tables.meets(rank), tables.inside(rank)
        at = f" ({line})" if line else ""
        call = self._awaited.get(member.rank)
        if not member.runs:
            return "has", "have", "ended"
        if call is not None:
            return "waits", "wait", f"in {call.in_words()} ({self._place(member.rank, call)})"
        if member.waits_for:
            return "waits", "wait", f"in collective {member.waits_for}{at}"
        if member.phase is GroupState.MEETING or meets:
            return "waits", "wait", f"for {self._home}" + (f" at {meets}" if meets else "")
        if member.phase is GroupState.ALONE and not member.asked:
            return "has", "have", f"not joined {self._home}{at}"
        if inside:
            return "waits", "wait", f"in {inside}{at}"
        since = f"since collective {member.asked}{at}" if member.asked else f"before the first collective{at}"
        return *_ACTS.get(member.acts, ("computes", "compute")), since

    def _place(self, rank: int, call: Call) -> str:
        assert self._tables is not None
        line = self._tables.where(rank, call) or self._tables.line(rank)
        parts = (f"collective {call.number}", self._groups.get(call.group, ""), line)
        return ", ".join(part for part in parts if part)

    def _judgement(self) -> str:
        """Return a conclusion that is certain about waiting workers; empty if none is."""
        if self._tables is None or not self._awaited:
            return ""
        ranks = [member.rank for member in self._members]
        places = {(call.group, call.number) for call in self._awaited.values()}
        doubt = self._tables.doubt()
        for group, number in sorted(places | ({doubt} if doubt else set())):
            asked = self._tables.asked(ranks, group, number).values()
            if len({call.asks_for for call in asked}) > 1:
                return NOT_THE_SAME
        if len(self._awaited) < len(self._members):
            return ""
        if len(places) == 1:
            return THE_NETWORK
        return OTHER_GROUPS if len({group for group, _ in places}) > 1 else ""
