"""Drop 1 % of the frames on a worker's link, and check that every sum is still exact.

Workers send lost packets again. The testbed counts the frames that it dropped, and a note of the verdict says
how many packets the workers sent again.

Prints "20 sums of 100000 values by 2 workers, all exact", "u1h1 up: ... of ... frames lost" and "workers sent
... packets again".
"""

from testbed import Testbed

RACK = {"units": [{"hosts": 2}], "scale": 1, "host_rate_mbps": 100}

with Testbed(RACK) as testbed:
    testbed.faults.set("u1h1", loss="1%", seed=7)
    result = testbed.run("examples/jobs/sums.py", 100_000, 20, place="u1:2", preload=True)
    for host, line in result.output:
        print(f"{host}: {line}")
    for fault in testbed.faults.now():
        counters = fault["counters"]
        print(f"{fault['link']} {fault['direction']}: {counters['lost']} of {counters['seen']} frames lost")
    for note in result.verdict.notes:
        print(f"note: {note.text}")
