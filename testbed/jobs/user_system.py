"""The daemon's side of a user's own system: its class runs in a process of the user, once for each job."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace

from testbed.aggregation.messages import layout_from_json, site_to_json
from testbed.aggregation.site import Site
from testbed.aggregation.system import Layout, System
from testbed.client.caller import Caller
from testbed.errors import RequestError
from testbed.interpreters import isolated
from testbed.jobs.environment import worker_environment
from testbed.jobs.layout_question import LayoutAnswer, LayoutQuestion
from testbed.jobs.option_table import ALL_OPTIONS, OF_PROGRAMS
from testbed.machine.process import Spawned
from testbed.machine.question import ask
from testbed.topology.places import Host
from testbed.wire.transports import GLOO, PACKETS

WITHIN_S = 30.0

Spawn = Callable[..., Spawned]


class UserSystem(System):
    """A system by FILE.py:CLASS. `spawn(argv, **options)` starts a process."""

    summary = "a user's own"

    def __init__(self, spawn: Spawn, name: str, caller: Caller, cwd: str, environ: Mapping[str, str]) -> None:
        self.name, self._spawn, self._caller, self._cwd, self._environ = name, spawn, caller, cwd, environ

    def lay_out(self, workers: Sequence[Host], site: Site) -> Layout:
        """Lay the job out. Raises RequestError, in one line, if the user's code raises, returns no layout in
        time, or names hosts that do not exist or are not free.
        """
        answer = self._ask_process(LayoutQuestion(list(workers), site_to_json(site)))
        if answer.refused is not None:
            raise RequestError(f"--sync {self.name}: {answer.refused}")
        if answer.raised is not None:
            raise RequestError(f"--sync {self.name}: its lay_out raised {answer.raised}")
        try:
            layout = layout_from_json(answer.layout)
        except (ValueError, RequestError) as error:
            raise RequestError(f"--sync {self.name}: {error}") from error
        self._check(layout, workers, site)
        return replace(layout, system=self.name)

    def _check(self, layout: Layout, workers: Sequence[Host], site: Site) -> None:
        hosts = {host for rack in site.racks for host in rack.members()}
        units = {rack.unit for rack in site.racks}
        if layout.workers != tuple(workers):
            raise RequestError(f"--sync {self.name}: its layout has other workers than it was given")
        if layout.transport != (PACKETS if layout.forest else GLOO):
            raise RequestError(
                f"--sync {self.name}: transport {layout.transport!r}; {PACKETS!r} with a forest, and "
                f"{GLOO!r} "
                f"without one are accepted"
            )
        if layout.service and layout.server is None:
            raise RequestError(
                f"--sync {self.name}: its layout has a service and no server; a host for it is accepted"
            )
        if unknown := sorted(layout.usual_options.keys() - {*OF_PROGRAMS}):
            raise RequestError(
                f"--sync {self.name}: usual_options: {unknown[0]!r}; accepted are {', '.join(OF_PROGRAMS)}"
            )
        ALL_OPTIONS.parse(layout.usual_options, f"--sync {self.name}: ")
        if layout.forest and layout.forest.owner:
            raise RequestError(
                f"--sync {self.name}: its tree has an owner, and nothing of it would take the sums there; "
                f"trees without one are accepted"
            )
        places = layout.forest.places if layout.forest else []
        for place in places:
            if place.unit not in units or (place.at and place.at not in hosts):
                raise RequestError(f"--sync {self.name}: its forest names {place}, which is not there")
        for unit in {unit for pair in layout.demands for unit in pair} - units:
            raise RequestError(f"--sync {self.name}: its demands name unit {unit}, which is not there")
        if layout.hosts() - hosts:
            raise RequestError(f"--sync {self.name}: its layout names hosts that are not there")
        if taken := sorted(layout.hosts() & site.busy):
            raise RequestError(f"--sync {self.name}: host {taken[0]} is another job's")

    def _ask_process(self, question: LayoutQuestion) -> LayoutAnswer:
        argv = isolated("-u", "-m", "testbed.jobs.system_host", self.name)

        def start(stdin: int) -> Spawned:
            return self._spawn(
                argv,
                uid=self._caller.uid,
                gid=self._caller.gid,
                groups=self._caller.groups,
                env=worker_environment(self._environ, self._caller),
                cwd=self._cwd,
                stdin=stdin,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                new_session=True,
            )

        try:
            return ask(start, asdict(question), LayoutAnswer, "layout", WITHIN_S)
        except RequestError as error:
            raise RequestError(f"--sync {self.name}: {error}") from error
