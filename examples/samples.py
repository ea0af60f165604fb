"""Read the samples of a job: ten times a second, how many bytes each link carried.

Samples are NumPy arrays. The rate in an interval is its bytes divided by its length.

Prints "time s u1h1 up Mb/s u1h1 down Mb/s", and a line for each interval with traffic.
"""

import numpy as np

from testbed import Testbed

RACK = {"units": [{"hosts": 2}], "scale": 1, "host_rate_mbps": 50}

with Testbed(RACK) as testbed:
    result = testbed.run("examples/jobs/sums.py", 100_000, 15, place="u1:2", preload=True)
    assert result.samples is not None
    link = result.samples.link["u1h1"]
    lasted_s = np.diff(link["time_s"], prepend=0)
    rates = [link[way] * 8e-6 / lasted_s for way in ("bytes_up", "bytes_down")]
    print("  time s  u1h1 up Mb/s  u1h1 down Mb/s")
    for time_s, up, down in zip(link["time_s"], *rates, strict=True):
        if up + down > 1:
            print(f"{time_s:8.1f}  {up:12.1f}  {down:14.1f}")
