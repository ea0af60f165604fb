"""Bring up a topology that is a class, like Mininet's, and let workers of both its racks sum.

`testbed up --config FILE.py:CLASS` accepts the same (examples/parts/pair.py). The class may compute what a
YAML file would have to list.

Prints "u1: 2 hosts", "u2: 2 hosts", "circuits u1o1-u2o1 u1o2-u2o2" and "10 sums of 20000 values by 4 workers,
all exact".
"""

from testbed import Testbed

with Testbed("examples/parts/pair.py:Pair") as testbed:
    status = testbed.status()
    for unit in status["units"]:
        print(f"{unit['name']}: {unit['hosts']} hosts")
    print("circuits", *("-".join(circuit) for circuit in status["circuits"]))
    result = testbed.run(
        "examples/jobs/sums.py", 20_000, 10, place="u1:2,u2:2", sync="switches", preload=True
    )
    for host, line in result.output:
        print(f"{host}: {line}")
