"""Sweep a parameter: sums by two, three and four workers, how long each takes, and its bound by the links.

A switch takes as long to sum for four workers as for two. The bound next to each time is the time that the
links alone would take.

Prints "workers  ms a sum  bound ms  Mb/s of gradients", "2 ...", "3 ..." and "4 ...".
"""

from testbed import Testbed

RACK = {"units": [{"hosts": 4}], "scale": 1, "host_rate_mbps": 40}
VALUES = 50_000

with Testbed(RACK) as testbed:
    print("workers  ms a sum  bound ms  Mb/s of gradients")
    for workers in (2, 3, 4):
        result = testbed.run("examples/jobs/sums.py", VALUES, 15, place=f"u1:{workers}", preload=True)
        bound = result.bound
        assert bound is not None
        goodput = VALUES * 32 / bound.measured_ms / 1e3
        print(f"{workers:7}  {bound.measured_ms:8.1f}  {bound.bound_ms:8.1f}  {goodput:17.1f}")
