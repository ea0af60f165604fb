"""Load your own data-plane program into the switches: they find the largest value instead of the sum.

The program is one C function for XDP and a class (docs/examples/largest.h and largest.py). Switches run it
for jobs whose system names it.

Prints "worker 0 has [1.0, 1.0, 1.0, ...", "worker 1 has [0.0, 1.0, 2.0, ..." and "all of them get [1.0, 1.0,
2.0, ...".
"""

from pathlib import Path

from testbed import Testbed

FILE = Path("docs/examples/largest.py").resolve()  # this configuration is no file, so has no folder
RACK = {"units": [{"hosts": 2}], "programs": [f"{FILE}:Program"]}

with Testbed(RACK) as testbed:
    result = testbed.run("examples/jobs/largest.py", place="u1:2", sync=f"{FILE}:Largest", preload=True)
    for _, line in sorted(result.output, key=lambda line: line[1], reverse=True):
        print(line)
