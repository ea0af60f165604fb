"""Request a circuit between two racks from the optical switch, and measure how long its ports are dark.

A change of circuits takes as long as mirrors move and transceivers lock; the configuration has both times.
The testbed measures the dark time at the ports.

Prints "before: none", "dark for ... ms, 30.000 ms asked for" and "after: u1o1-u2o1".
"""

from testbed import Testbed

RACKS = {
    "units": [{"hosts": 1}, {"hosts": 1}],
    "optical_ports": 1,
    "ocs": {"switch_ms": 20, "lock_ms": 10, "circuits": []},
}


def lit(testbed: Testbed) -> str:
    """Return the present circuits in words."""
    return ", ".join("-".join(circuit) for circuit in testbed.circuits.now()["circuits"]) or "none"


with Testbed(RACKS) as testbed:
    print(f"before: {lit(testbed)}")
    event = testbed.circuits.request(("u1", "u2"))["event"]
    assert event is not None
    print(f"dark for {event['measured_ms']:.3f} ms, {event['asked_ms']:.3f} ms asked for")
    print(f"after: {lit(testbed)}")
