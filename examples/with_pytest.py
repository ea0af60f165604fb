"""Test a training script with pytest: a fixture brings a testbed up once, and every test runs a job on it.

If it is run as a program, the file passes itself to pytest. In your project it would be an ordinary test
file.

Prints "2 passed in ...s".
"""

import sys
from collections.abc import Iterator

import pytest

from testbed import JobResult, Testbed

RACK = {"units": [{"hosts": 2}], "scale": 1, "host_rate_mbps": 100}


@pytest.fixture(scope="module")
def testbed() -> Iterator[Testbed]:
    with Testbed(RACK) as made:
        yield made


def summed(testbed: Testbed) -> JobResult:
    return testbed.run("examples/jobs/sums.py", 50_000, 10, place="u1:2", preload=True)


def test_sums_are_exact(testbed: Testbed) -> None:
    assert ("u1h1", "10 sums of 50000 values by 2 workers, all exact") in summed(testbed).output


def test_sums_are_exact_when_frames_are_lost(testbed: Testbed) -> None:
    testbed.faults.set("all", loss="1%")
    assert summed(testbed).failure is None


if __name__ == "__main__":
    sys.exit(pytest.main([__file__, "-q", "-p", "no:cacheprovider"]))
