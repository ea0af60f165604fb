"""The optical model of a configuration that names none: its draws, which are what they always were."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from testbed.errors import RequestError
from testbed.ocs.circuits import circuit
from testbed.optics.delays import Delay
from testbed.optics.model import MOST_DARK_NS, CircuitTurn, DarkTime, DarkTimes, Ends, Settings
from testbed.optics.models.transceivers import Transceivers
from testbed.topology.load import parse
from testbed.topology.model import Topology
from testbed.topology.optical import OcsSpec, with_values
from testbed.topology.yaml_form import words
from tests.vectors.dark_times import TIMES

Group = Mapping[str, Any]
NONE: Group = {}
MADE: list[Ends] = [("u1o1", "u2o1"), ("u3o1", "u4o1")]
BASE = DarkTime(7_000_000, 3_000_000)
SHARED = {"switch_ms": Delay("constant", 7.0), "lock_ms": Delay("constant", 3.0)}
PORTS = {f"u{unit}o{port}": "" for unit in range(1, 5) for port in (1, 2)}


def model(planes: Group = NONE, ports: Group = NONE, seed: int = 1, **values: Any) -> Transceivers:
    return Transceivers(Settings(with_values(**values).values, planes, ports), seed, PORTS)


def turn(number: int, added: list[Ends], removed: list[Ends] | None = None) -> CircuitTurn:
    return CircuitTurn(number, 0.0, frozenset(removed or ()), frozenset(added))


def totals(times: DarkTimes) -> dict[Ends, int]:
    return {ends: time.total_ns for ends, time in times.circuits.items()}


# ---- as before there were models ----


def described(name: str) -> Topology:
    raw = {"units": [{"hosts": 1}] * 4, "optical_ports": TIMES[name]["ports"], "ocs": TIMES[name]["ocs"]}
    return parse(raw, name)


def answered(made: Transceivers, topology: Topology, row: Group, number: int) -> dict[str, Any]:
    before, after = (frozenset(circuit(*pair).ports for pair in row[key]) for key in ("before", "after"))
    times = made.dark_times(CircuitTurn(number, 0.0, before, after))
    return {
        "longest": [times.longest.switch_ns, times.longest.lock_ns],
        "circuits": {"-".join(ends): ns for ends, ns in totals(times).items()},
        "failed": dict(times.failed),
    }


@pytest.mark.parametrize("name", TIMES)
def test_dark_times_are_what_they_always_were(name: str) -> None:
    """One controller answers so, and one that is started again before any change."""
    topology, rows = described(name), TIMES[name]["turns"]
    going_on = Transceivers(topology.ocs.settings, topology.ocs.seed, topology.planes)
    for number, row in enumerate(rows, 1):
        wanted = {key: row[key] for key in ("longest", "circuits", "failed")}
        assert answered(going_on, topology, row, number) == wanted
        again = Transceivers(topology.ocs.settings, topology.ocs.seed, topology.planes)
        assert answered(again, topology, row, number) == wanted, "the sequence goes on after a restart"


@pytest.mark.parametrize("name", TIMES)
def test_means_and_json_are_what_they_always_were(name: str) -> None:
    topology = described(name)
    assert [topology.ocs.mean_ms(plane) for plane in topology.ocs.planes or ("",)] == TIMES[name]["means"]
    data = json.loads(topology.to_json())
    circuits = data["ocs"].pop("circuits")
    assert data["ocs"].pop("calendar_packets") == OcsSpec().calendar_packets
    assert data["ocs"] == TIMES[name]["json"]
    said = json.dumps({**data, "ocs": {**TIMES[name]["json"], "circuits": circuits}})
    assert Topology.from_json(said) == topology
    assert parse(words(topology), name) == topology


def test_a_topology_that_an_earlier_version_wrote_is_read() -> None:
    topology = described("usual")
    data = json.loads(topology.to_json())
    for key in ("lock_failure", "retry_ms", "ports", "planes"):
        del data["ocs"][key]
    assert Topology.from_json(json.dumps(data)) == topology


# ---- what it draws ----


def test_each_plane_draws_its_own_dark_time() -> None:
    fast = {"switch_ms": Delay("constant", 0.05), "lock_ms": Delay("constant", 1.0)}
    made: list[Ends] = [("u1o1", "u2o1"), ("u1o2", "u2o2"), ("u3o1", "u3o2")]
    planes = {"u1o1": "a", "u2o1": "a", "u1o2": "b", "u2o2": "b", "u3o1": "a", "u3o2": "a"}
    slow = {"switch_ms": Delay("uniform", 20.0, 40.0), "lock_ms": Delay("constant", 5.0)}
    said = Settings(with_values(**slow).values, {"a": {}, "b": fast})
    of_planes = Transceivers(said, 1, planes)

    def times(number: int, new: list[Ends], gone: list[Ends] | None = None) -> DarkTimes:
        return of_planes.dark_times(turn(number, new, gone))

    drawn = [totals(times(number, made)) for number in range(1, 21)]
    assert {each[made[1]] for each in drawn} == {1_050_000}
    assert all(25_000_000 <= each[made[0]] == each[made[2]] <= 45_000_000 for each in drawn)
    assert len({each[made[0]] for each in drawn}) > 10
    for number in range(1, 21):
        both, only_slow, only_fast = (times(number, new) for new in (made, made[:1], made[1:2]))
        assert both.longest == only_slow.longest, "that of the circuit that is lit last, in its parts"
        assert only_slow.longest.total_ns == totals(only_slow)[made[0]]
        assert only_slow.longest.lock_ns == 5_000_000
        assert only_fast.longest == DarkTime(50_000, 1_000_000)
        removing: list[tuple[list[Ends], list[Ends], DarkTimes]] = [
            ([], made, only_slow),
            ([], made[1:2], only_fast),
            (made[1:2], made[:1], only_fast),
        ]
        for new, gone, longest in removing:
            assert times(number, new, gone).longest == longest.longest, (new, gone)
    assert of_planes.mean_ms("b") == 1.05
    assert of_planes.mean_ms("a") == 35.0


def drawn_times(count: int, seed: int, **values: Any) -> list[DarkTime]:
    made = model(seed=seed, **values)
    return [made.dark_times(turn(number, MADE)).longest for number in range(1, count + 1)]


def test_latency_is_drawn_from_the_model() -> None:
    draws = drawn_times(101, 3, switch_ms=Delay("constant", 7.0), lock_ms=Delay("uniform", 2.0, 4.0))
    assert {d.switch_ns for d in draws} == {7_000_000}
    assert all(2_000_000 <= d.lock_ns <= 4_000_000 for d in draws)
    assert len({d.lock_ns for d in draws}) > 50
    draws = drawn_times(101, 3, switch_ms=Delay("normal", 1.0, 9.0), lock_ms=Delay("constant", 0.0))
    assert min(d.total_ns for d in draws) == 0
    draws = drawn_times(101, 3, switch_ms=Delay("values", values=(1.0, 5.0)), lock_ms=Delay("constant", 0.0))
    assert {d.total_ns for d in draws} == {1_000_000, 5_000_000}


def test_log_normal_times_have_the_mean_and_the_deviation_that_are_said() -> None:
    draws = drawn_times(20_000, 5, switch_ms=Delay("lognormal", 10.0, 4.0), lock_ms=Delay("constant", 0.0))
    times_ms = np.array([d.total_ns / 1e6 for d in draws])
    assert times_ms.min() > 0
    assert np.isclose(times_ms.mean(), 10.0, rtol=0.02)
    assert np.isclose(times_ms.std(), 4.0, rtol=0.05)
    assert np.isclose(np.log(times_ms).std(), np.sqrt(np.log(1.16)), rtol=0.03), "not a normal one"


def test_no_draw_is_longer_than_a_minute() -> None:
    long = {
        "switch_ms": Delay("lognormal", 60_000.0, 60_000.0),
        "lock_ms": Delay("normal", 60_000.0, 60_000.0),
    }
    draws = [drawn_times(1, seed, **long)[0] for seed in range(101)]
    assert max(max(d.switch_ns, d.lock_ns) for d in draws) == 60_000_000_000


def test_transceivers_that_lock_alike_need_no_times_of_their_own() -> None:
    times = model(**SHARED).dark_times(turn(1, MADE))
    assert times == DarkTimes(BASE)


def test_a_circuit_is_dark_until_its_slower_end_has_locked() -> None:
    own = {"u2o1": {"lock_ms": Delay("constant", 20.0)}, "u3o1": {"lock_ms": Delay("constant", 1.0)}}
    times = model(ports=own, **SHARED).dark_times(turn(1, MADE))
    assert totals(times) == {MADE[0]: 27_000_000, MADE[1]: 10_000_000}
    assert times.failed == {}


def test_attempts_that_fail_take_their_time_and_are_counted() -> None:
    failing = model(lock_failure=0.5, retry_ms=Delay("constant", 2.0), **SHARED)
    failures: Counter[int] = Counter()
    for number in range(1, 2001):
        times = failing.dark_times(turn(number, MADE))
        for made in MADE:
            counts = [times.failed.get(port, 0) for port in made]
            failures.update(counts)
            assert totals(times)[made] == BASE.total_ns + 2_000_000 * max(counts)
    ports = failures.total()
    for count in range(4):
        expected = ports * 0.5 ** (count + 1)
        assert abs(failures[count] - expected) < 5 * np.sqrt(expected)


def test_what_a_port_draws_is_its_own_and_repeats() -> None:
    failing = model(lock_failure=0.7, **SHARED)
    both, second = failing.dark_times(turn(9, MADE)), failing.dark_times(turn(9, MADE[1:]))
    assert totals(second)[MADE[1]] == totals(both)[MADE[1]], "whatever else is turned"
    assert both == failing.dark_times(turn(9, MADE[::-1]))
    assert len({totals(failing.dark_times(turn(number, MADE)))[MADE[0]] for number in range(1, 21)}) > 5
    assert model(seed=2, lock_failure=0.7, **SHARED).dark_times(turn(9, MADE)) != both


def test_a_transceiver_that_has_failed_for_two_minutes_locks() -> None:
    failing = model(lock_failure=0.9, retry_ms=Delay("constant", 50_000.0), **SHARED)
    times = [failing.dark_times(turn(number, MADE)) for number in range(1, 101)]
    assert max(max(totals(each).values()) for each in times) == MOST_DARK_NS
    assert max(max(each.failed.values(), default=0) for each in times) == 3


def test_the_mean_dark_time_is_that_of_the_slowest_port() -> None:
    assert model().mean_ms() == 20.0
    failing = {"lock_failure": 0.5, "retry_ms": Delay("values", values=(2.0, 4.0))}
    assert model(**failing).mean_ms() == 23.0
    slow = {"lock_ms": Delay("lognormal", 40.0, 9.0), "lock_failure": 0.75}
    assert model(ports={"u1o1": slow}, **failing).mean_ms() == 10.0 + 40.0 + 3 * 3.0
    assert model(ports={"u1o1": {"lock_ms": Delay("constant", 1.0)}}, **failing).mean_ms() == 23.0


# ---- what no change can have ----


@pytest.mark.parametrize(
    ("times", "says"),
    [
        (DarkTimes(DarkTime(-1, 5)), "otherwise is -1e-06 ms and 5e-06 ms; 0 to 120000 ms together are"),
        (DarkTimes(DarkTime(MOST_DARK_NS, 1)), "0 to 120000 ms together are accepted"),
        (DarkTimes(circuits={("u1o2", "u2o2"): BASE}), "has u1o2-u2o2, which the change does not make; it "),
        (DarkTimes(circuits={("u2o1", "u1o1"): BASE}), "it makes u1o1-u2o1, u3o1-u4o1$"),
        (DarkTimes(circuits={MADE[0]: DarkTime(0, -5)}), "dark time of u1o1-u2o1 is 0 ms and -5e-06 ms"),
        (DarkTimes(failed={"u9o1": 1}), "1 failed attempts at u9o1; 0 or more are, at a port"),
        (DarkTimes(failed={"u1o1": -1}), "-1 failed attempts at u1o1"),
    ],
)
def test_what_no_change_can_have_is_refused(times: DarkTimes, says: str) -> None:
    with pytest.raises(RequestError, match=says):
        times.check(turn(1, MADE), PORTS)
    replace(times, otherwise=BASE, circuits={MADE[0]: BASE}, failed={"u1o1": 2}).check(turn(1, MADE), PORTS)
