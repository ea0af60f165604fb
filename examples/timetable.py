"""Run a timetable of three matchings, so that each two of three racks are joined in turn, and see when each
pair is lit.

The data plane switches circuits by its own clock. A frame that comes while its circuit is not lit is lost,
and counted.

Prints "u1-u2 lit from 1 to 20 of each 60 ms", "u2-u3 lit from 41 to 60 of each 60 ms" and "... crossed, ...
came in the guard time, ... found no circuit".
"""

from testbed import Testbed

RACKS = {"units": [{"hosts": 1}, {"hosts": 1}, {"hosts": 1}], "optical_ports": 1}
TURN_MS, GUARD_MS = 20, 1
PAIRS = [("u1", "u2"), ("u1", "u3"), ("u2", "u3")]
PERIOD_MS = TURN_MS * len(PAIRS)
MATCHINGS = [
    {"start_ms": turn * TURN_MS, "circuits": [[f"{a}o1", f"{b}o1"]]} for turn, (a, b) in enumerate(PAIRS)
]

with Testbed(RACKS) as testbed:
    timetable = {"period_ms": PERIOD_MS, "guard_ms": GUARD_MS, "matchings": MATCHINGS}
    testbed.circuits.schedule(timetable)
    for turn, (a, b) in enumerate(PAIRS):
        begin = turn * TURN_MS
        print(f"{a}-{b} lit from {begin + GUARD_MS} to {begin + TURN_MS} of each {PERIOD_MS} ms")
    testbed.exec("u1h1", "ping", "-c", 100, "-i", 0.01, "-W", 0.1, "u2h1")
    crossings = testbed.circuits.crossings()
    port, tor = crossings["u1o1"], crossings["u1"]
    print(
        f"100 pings from u1 to u2: {port['lit']} crossed, {port['dark']} came in the guard time, "
        f"{tor['unlit']} found no circuit"
    )
    testbed.circuits.unschedule()
