"""Write an optical model: a class that says how long each change of circuits is dark.

Here mirrors move one after the other, 25 ms each (examples/parts/slow_mirrors.py), so that two new circuits
take longer than one. The testbed measures the dark time of the last one.

Prints "1 new circuits: dark for ... ms, 25 ms by the model" and "2 new circuits: dark for ... ms, 50 ms by
the model".
"""

from testbed import Testbed

RACKS = {
    "units": [{"hosts": 1}, {"hosts": 1}],
    "ocs": {"model": "examples/parts/slow_mirrors.py:SlowMirrors", "each_ms": 25, "circuits": []},
}

with Testbed(RACKS) as testbed:
    for circuits in (["u1o1-u2o1"], ["u1o1-u2o2", "u1o2-u2o1"]):
        event = testbed.circuits.set(*circuits)["event"]
        assert event is not None
        print(
            f"{len(event['added'])} new circuits: dark for {event['measured_ms']:.1f} ms, "
            f"{event['asked_ms']:g} ms by the model"
        )
