"""Write a scheduling policy: a class that gets the state and decides, slot by slot, which jobs run.

This one runs the latest job, alone (examples/parts/last_first.py). It runs as your user, in a process of its
own, and its decisions are checked.

Prints "third began after ... s", "first began after ... s" and "3 done, 0 failed".
"""

from testbed import Testbed

RACK = {"units": [{"hosts": 6}, {"kind": "cpu", "hosts": 3}], "scale": 1, "host_rate_mbps": 50}
POLICY = "examples/parts/last_first.py:LastFirst"
JOB = {
    "script": "examples/jobs/sums.py",
    "arguments": ["50000", "20"],
    "workers": 2,
    "iterations": 20,
    "megabytes": 0.2,
}

with Testbed(RACK) as testbed:
    jobs = [{**JOB, "name": name} for name in ("first", "second", "third")]
    batch = testbed.submit({"policy": POLICY, "slot_s": 0.2, "jobs": jobs}, preload=True)
    for job in sorted(batch.jobs, key=lambda job: job.waiting_s or 0):
        print(f"{job.name} began after {job.waiting_s:.1f} s")
    print(f"{batch.done} done, {batch.failed} failed")
