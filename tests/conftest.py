"""What every test may ask for: `@pytest.mark.needs("xdp", ...)`, or the fixture `require` in the middle of a test.

A feature is tried (testbed/probing), once a run; a test that cannot do without one that is lacking is skipped, and the
reason says what is lacking in words. TESTBED_REQUIRE=all, or a list like TESTBED_REQUIRE=xdp,ovs, turns such skips into failures.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest
from hypothesis import settings

from testbed.probing import tried
from testbed.probing.features import BY_NAME, Finding

# no limit on the time of an example: a busy machine is no failure
settings.register_profile("testbed", deadline=None)
settings.load_profile("testbed")

Require = Callable[..., None]
_found: dict[str, Finding] = {}


def _finding(name: str) -> Finding:
    if name not in BY_NAME:
        raise pytest.UsageError(f"no feature {name!r}; known: {', '.join(BY_NAME)}")
    if name not in _found:
        _found.update((finding.name, finding) for finding in tried.findings([name]))
    return _found[name]


def insisted_on(name: str, setting: str) -> bool:
    """Whether TESTBED_REQUIRE=`setting` makes the lack of `name` a failure."""
    return bool({"all", name} & {part.strip() for part in setting.split(",")})


def require_features(*names: str) -> None:
    """Skips the test where a feature is lacking, or fails it where TESTBED_REQUIRE insists on that feature."""
    for name in names:
        finding = _finding(name)
        if finding.works:
            continue
        feature = BY_NAME[name]
        reason = f"needs {feature.what}: {finding.detail}; remedy: {feature.remedy}"
        if insisted_on(name, os.environ.get("TESTBED_REQUIRE", "")):
            pytest.fail(f"{reason} (TESTBED_REQUIRE insists on {name})", pytrace=False)
        pytest.skip(reason)


@pytest.fixture
def require() -> Require:
    """`require("xdp", "ovs")` goes on only where this host has those features."""
    return require_features


def pytest_runtest_setup(item: pytest.Item) -> None:
    for mark in item.iter_markers("needs"):
        require_features(*mark.args)
