"""Set a worker's link down during a job, and up again a second later: the job continues.

`run` is called in a thread, and the link is set meanwhile. A note of the verdict says how long it was down.

Prints "u1h1 is down", "u1h1 is up", "100 sums of 100000 values by 2 workers, all exact" and "u1h1 was down
for ... s".
"""

import time
from concurrent.futures import ThreadPoolExecutor

from testbed import Testbed

RACK = {"units": [{"hosts": 2}], "scale": 1, "host_rate_mbps": 100}

with Testbed(RACK) as testbed, ThreadPoolExecutor() as pool:
    job = pool.submit(testbed.run, "examples/jobs/sums.py", 100_000, 100, place="u1:2", preload=True)
    while testbed.telemetry().links.bytes_up.min() < 1e6 and not job.done():
        time.sleep(0.1)
    for up in (False, True):
        (link,) = testbed.links.set("u1h1", up=up)
        print(f"{link['link']} is {'up' if link['up'] else 'down'}")
        time.sleep(1)
    result = job.result()
    for host, line in result.output:
        print(f"{host}: {line}")
    for note in result.verdict.notes:
        print(f"note: {note.text}")
