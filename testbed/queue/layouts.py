"""How queued jobs are laid out: when they get hosts, and when their policy has a switch sum for them."""

from __future__ import annotations

from random import Random

from testbed.aggregation.registry import policies_choice
from testbed.aggregation.system import Layout, Site
from testbed.jobs.manager import Jobs
from testbed.jobs.placement import draw_server, draw_workers, place_in_queue
from testbed.queue.hub import hub_of, served_where_asked
from testbed.queue.queued import Queued
from testbed.topology.places import Host


def laid_out(jobs: Jobs, one: Queued, busy: frozenset[Host]) -> Layout | None:
    """A job's layout beside others, who have the hosts that are `busy`; None while there are too few hosts.
    RequestError where its system has no layout, or one that policies cannot plan for.
    """
    racks, spec, random = jobs.means.holdings.racks, one.spec, Random(one.seed)
    if spec.sync is None:
        return place_in_queue(racks, busy, spec.workers, spec.place, spec.together, spec.ps, random)
    chosen = draw_workers(racks, busy, spec.workers, spec.place, spec.together, spec.ps, random)
    if chosen is None:
        return None
    kept = draw_server(racks, {*busy, *chosen}, spec.ps, random)
    layout = jobs.lay_out(one.request, chosen, Site(racks, busy, frozenset(), kept))
    hub_of(layout)
    return layout if served_where_asked(layout, spec.ps) else None


def summed_in_unit(layout: Layout) -> Layout:
    """A job's layout when its policy has a switch sum for it, in whose unit all its workers are."""
    summing, _ = policies_choice()
    return summing.lay_out(layout.workers, Site((), frozenset(), frozenset()))
