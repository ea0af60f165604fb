"""Bring up one rack of two hosts, let its switch sum a vector over both workers, and read the verdict.

The `with` block brings the testbed up and down. The verdict says whether the links or this machine determined
how long a sum took.

Prints "20 sums of 100000 values by 2 workers, all exact", "a sum took ... ms" and "verdict: ...".
"""

from testbed import Testbed

RACK = {"units": [{"hosts": 2}], "scale": 1, "host_rate_mbps": 100}

with Testbed(RACK) as testbed:
    result = testbed.run("examples/jobs/sums.py", 100_000, 20, place="u1:2", preload=True)
    for host, line in result.output:
        print(f"{host}: {line}")
    assert result.iteration_ms is not None
    print(f"a sum took {result.iteration_ms.mean():.1f} ms")
    print(result.verdict.line)
