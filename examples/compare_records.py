"""Compare the records of two runs: which set-up and which results differ.

Every job leaves a record. Here one run has packets of the MTU's size, and one has smaller packets, which need
more bytes for headers.

Prints "option lanes - 64" and "on all links ... MB ... MB".
"""

import subprocess
import sys

from testbed import Testbed

RACK = {"units": [{"hosts": 2}], "scale": 1, "host_rate_mbps": 50}
COMPARE = (sys.executable, "-m", "testbed", "runs", "compare")

with Testbed(RACK) as testbed:
    records = []
    for lanes in (None, 64):
        result = testbed.run("examples/jobs/sums.py", 50_000, 15, place="u1:2", lanes=lanes, preload=True)
        assert result.record is not None
        records.append(str(result.record))
    subprocess.run([*COMPARE, *records], check=True)
