"""The reference aggregator: the table of packet vectors, and what is its own."""

from __future__ import annotations

import numpy as np
import pytest

from testbed.aggregation.entries import Sender
from testbed.errors import RequestError
from testbed.reference_model.aggregator import Aggregator
from testbed.reference_model.optics import CrossConnect
from testbed.wire import frame, spec
from tests.vectors import lights, spread
from tests.vectors.build import (
    BASE,
    SIZE,
    SLOTS,
    TOR_IP,
    Leaves,
    Vector,
    job_in_unit,
    push,
    result,
    sum_of,
    workers_at_ports,
)
from tests.vectors.run import Model, play
from tests.vectors.table import TABLE

VERDICTS = {
    "asked",
    "capped",
    "tick_early",
    "answered",
    "aggregated",
    "completed",
    "resent",
    "duplicate",
    "stale",
    "mismatch",
    "malformed",
    "corrupt",
    "bad_sender",
    "bad_job",
    "bad_generation",
    "bad_worker",
    "bad_slot",
    "result",
    "notice",
    "forwarded",
    "to_ovs",
    "pulled",
    "pull_duplicate",
    "passed",
    "late",
    "ticked",
    "tick_late",
    "beat",
    "handed",
}


def model(vector: Vector) -> Model:
    return Model(vector.ip, SLOTS, is_host=vector.is_host)


@pytest.mark.parametrize("name", TABLE)
def test_vector(name: str) -> None:
    assert play(TABLE[name], model(TABLE[name])) == []


@pytest.mark.parametrize("name", lights.TABLE)
def test_lights(name: str) -> None:
    assert lights.play(lights.TABLE[name], CrossConnect(range(1, 9))) == []


@pytest.mark.parametrize("name", spread.TABLE)
def test_spread(name: str) -> None:
    assert spread.play(spread.TABLE[name], Model(TOR_IP, SLOTS)) == []


def test_the_table_has_every_verdict() -> None:
    said = {step.verdict for vector in TABLE.values() for step in vector.steps if hasattr(step, "verdict")}
    assert said == VERDICTS


def test_a_departure_is_found() -> None:
    vector = Vector("wrong on purpose", senders=workers_at_ports([0]))
    vector.admit(job_in_unit(1))
    right = result(0, sum_of(0, 0), 1, slot=BASE)
    assert right.fields
    vector.push(
        0, 0, "aggregated", Leaves(right.to, {**right.fields, "ttl": 63, "gradients": [0] * spec.LANES})
    )
    vector.push(0, 0, "resent")
    wrong = play(vector, model(vector))
    assert wrong[0] == "step 1: verdict completed, expected aggregated"
    assert wrong[1] == "step 1: ttl 64, expected 63"
    assert "360 lanes, expected 360; different: [0, 1, 2, 3, 4]" in wrong[2]
    assert wrong[3] == "step 2: 1 frames left, expected 0"


def test_a_departure_by_another_port_is_found() -> None:
    vector = Vector("wrong on purpose", senders=workers_at_ports([0]))
    vector.admit(job_in_unit(1))
    vector.push(0, 0, "completed", result(0, sum_of(0, 0), 1, slot=BASE))
    astray = model(vector)
    astray.set_group = lambda number, tree, ports: Model.set_group(astray, number, tree, ports[:-1])  # type: ignore[method-assign]
    assert play(vector, astray) == ["step 1: left by the ports (1, 201), expected (1, 201, 202)"]


def test_segments_do_not_meet() -> None:
    tor = Aggregator(TOR_IP, SLOTS)
    tor.admit(7, job_in_unit(2))
    with pytest.raises(RequestError, match="job 8: slots 63 to 78 meet those of job 7"):
        tor.admit(8, job_in_unit(2, base=BASE + SIZE - 1))
    with pytest.raises(RequestError, match="job 8: slots 500 to 515; there are 512"):
        tor.admit(8, job_in_unit(2, base=500))
    tor.admit(8, job_in_unit(2, base=BASE + SIZE))


def test_other_packet_sizes() -> None:
    for lanes in (1, 735):
        tor = Aggregator(TOR_IP, SLOTS, lanes)
        tor.admit(7, job_in_unit(1, lanes=lanes))
        tor.bind(1, [Sender(7, 0)])
        verdict, (sent,) = tor.receive(push(0, 0, data=np.full(lanes, 2, np.uint32), count=1), 1)
        assert verdict == "completed"
        assert frame.Frame.parse(sent.data, lanes).lanes.tolist() == [2] * lanes
        assert tor.receive(push(0, 0), 1)[0] == "malformed"
