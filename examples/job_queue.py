"""Queue three jobs at once, and let a policy decide when each starts and over which circuits.

The rack has hosts for two of them, so that the third waits. The policy is one of P4INC-AOI's, `inc-fcfs`:
first come, first served.

Prints "first: inc, waited ... s, trained ... s", "third: inc, waited ... s, trained ... s" and "3 done, 0
failed".
"""

from testbed import Testbed

RACK = {"units": [{"hosts": 4}, {"kind": "cpu", "hosts": 2}], "scale": 1, "host_rate_mbps": 50}
JOB = {
    "script": "examples/jobs/sums.py",
    "arguments": ["50000", "20"],
    "workers": 2,
    "iterations": 20,
    "megabytes": 0.2,
}

with Testbed(RACK) as testbed:
    jobs = [{**JOB, "name": name} for name in ("first", "second", "third")]
    batch = testbed.submit({"policy": "inc-fcfs", "slot_s": 0.2, "jobs": jobs}, preload=True)
    for job in batch.jobs:
        print(f"{job.name}: {job.mode}, waited {job.waiting_s:.1f} s, trained {job.training_s:.1f} s")
    print(f"{batch.done} done, {batch.failed} failed")
