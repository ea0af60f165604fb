"""Delay a worker by a second, and see which ways to sum wait for it.

Trio-ML's switches send a sum without a worker that is later than the age-out, so that the others go on.
Switches that wait for all workers make each worker as slow as the slowest.

Prints "switches: 0 sums lacked a worker, the longest took ... ms" and "trio: ... sums lacked a worker, the
longest took ... ms".
"""

from testbed import Testbed

RACK = {"units": [{"hosts": 3}], "scale": 1, "host_rate_mbps": 100}
AGE_OUT_MS = {"switches": None, "trio": 20}

with Testbed(RACK) as testbed:
    for sync, age_out_ms in AGE_OUT_MS.items():
        result = testbed.run(
            "examples/jobs/late.py", place="u1:3", sync=sync, age_out_ms=age_out_ms, preload=True
        )
        print(
            f"{sync}: {result.data['workers'][0]['stats']['degraded_sums']} sums lacked a worker, "
            f"the longest took {result.reported['longest_ms']:.0f} ms"
        )
