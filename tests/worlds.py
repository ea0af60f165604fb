"""Random fabrics and jobs for property tests of policies and the MILP: units differ from each other, and some
rates are bounded.
"""

from __future__ import annotations

import math

from hypothesis import strategies as st

from testbed.scheduling.model import Job, Limits, Pair, load

World = tuple[Limits, tuple[Job, ...], dict[Pair, int]]


@st.composite
def worlds(draw: st.DrawFn, most_units: int = 5, most_jobs: int = 14) -> World:
    """Draw limits, jobs over one or several units that it can run one by one with their PS, and circuits lit
    at the start.
    """
    units = draw(st.integers(2, most_units))

    def each(values: st.SearchStrategy[int]) -> tuple[int, ...]:
        return tuple(draw(st.lists(values, min_size=units, max_size=units)))

    bounds = st.sampled_from((35.0, 100.0, math.inf))
    slot_s = draw(st.sampled_from((0.25, 1.0, 3.0)))
    port_gbps = draw(st.sampled_from((10.0, 40.0)))
    faster = draw(
        st.one_of(st.just(()), st.lists(st.sampled_from((1.0, 1.5, 4.0)), min_size=units, max_size=units))
    )
    limits = Limits(
        ports=each(st.integers(0, 6)),
        inc=each(st.integers(0, 4)),
        switch_gbps=tuple(
            draw(st.lists(st.sampled_from((60.0, 250.0, math.inf)), min_size=units, max_size=units))
        ),
        port_gbps=port_gbps * min(faster, default=1.0),
        host_gbps=draw(bounds),
        ps_gbps=draw(bounds),
        slot_s=slot_s,
        reconfiguration_s=slot_s * draw(st.sampled_from((0.0, 0.02, 0.5, 1.0))),
        step_gbps=draw(st.sampled_from((3.0, 10.0))),
        partial_inc=draw(st.booleans()),
        unit_port_gbps=tuple(port_gbps * each for each in faster),
    )
    jobs = [Job(99, ((0, 1),), 0, 5.0)]
    for number in range(draw(st.integers(0, most_jobs - 1))):
        at = draw(st.lists(st.integers(0, units - 1), min_size=1, max_size=min(units, 3), unique=True))
        job = Job(
            number,
            tuple((unit, draw(st.integers(1, 6))) for unit in sorted(at)),
            draw(st.integers(0, units - 1)),
            draw(st.floats(0.01, 100)),
            draw(st.sampled_from((0.0, 0.2, 5.0))),
            draw(st.sampled_from((0, 0, 1, 2, 9))),
            host_gbps=draw(st.sampled_from((math.inf, math.inf, 12.0, 35.0))),
            ps_gbps=draw(st.sampled_from((math.inf, math.inf, 12.0, 35.0))),
        )
        if load(limits, job, None).limit_gbps > 0:
            jobs.append(job)
    return limits, tuple(jobs), draw(st.sampled_from(({}, limits.full_mesh())))
