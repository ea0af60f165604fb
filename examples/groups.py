"""Sum in groups within a job, as tensor and pipeline parallel training does: the switch sums for each group.

`dist.new_group` makes a group of some workers. The testbed gives each group slots of its own in the switch,
and reports each group's bytes in the result.

Prints "worker 0 summed with [0, 2] and with all", "worker 3 summed with [1, 3] and with all" and "group [0,
2]: ... MB by packets".
"""

from testbed import Testbed

RACK = {"units": [{"hosts": 4}], "scale": 1, "host_rate_mbps": 100}

with Testbed(RACK) as testbed:
    result = testbed.run("examples/jobs/groups.py", place="u1:4", preload=True)
    for host, line in sorted(result.output):
        print(f"{host}: {line}")
    for group in result.data["groups"]:
        print(f"group {group['workers']}: {group['bytes_by']['packets'] / 1e6:.1f} MB by packets")
