"""The features that a test may require: `@pytest.mark.needs("xdp", ...)`, or the fixture `require` in the
middle of a test.

A feature is probed by trying it (testbed/host_checks), once in a run. A test whose feature is missing is
skipped, with a reason in words. Other things that a test may lack have names in CONDITIONS. TESTBED_REQUIRE
turns such skips into failures: all of them (all), some (xdp,ovs), or all but some (all,-bmv2).
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import NoReturn

import pytest
from hypothesis import settings

from testbed import native
from testbed.host_checks import trials
from testbed.host_checks.features import BY_NAME, ProbeResult
from tests import costs, gate, lanes

# no time limit for an example: a busy machine is no failure
# new examples each time, even where the environment has CI, for which hypothesis would repeat them
settings.register_profile("testbed", deadline=None, derandomize=False)
# the same examples, so that the same tree has the same verdict
settings.register_profile("gate", deadline=None, derandomize=True)
settings.register_profile("quick", deadline=None, derandomize=False, max_examples=10)  # tests/quick.py
settings.load_profile("testbed")

os.environ["OPTINC_RUNS"] = "off"  # a test's runs do not belong among the user's records

# needs of tests that no feature probe covers: name for TESTBED_REQUIRE -> description
CONDITIONS = {
    "chromium": "a browser without a window, of Debian's package of that name",
    "history": "the commits that documents name, which a shallow clone lacks",
    "kthreads": "the kernel's threads in /proc, which a PID namespace hides",
    "kernels": "an emulator of whole machines, of Debian's package qemu-system-x86",
    "memory": "a memory controller of cgroups that can be written, of version 1 or 2",
    "prometheus": "Prometheus and its promtool, of Debian's package of that name",
    "quiet": "processors that other programs and the hypervisor leave alone while a test measures",
    "tshark": "Wireshark's tshark, of Debian's package of that name",
}
VARIABLE = "TESTBED_REQUIRE"

Require = Callable[..., None]
_findings: dict[str, ProbeResult] = {}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--gate", action="store_true", help="fail what is skipped, but for tests/skips.py's list, and sum up"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Refuse an unknown name in TESTBED_REQUIRE, and compiled libraries that are older than their sources,
    which would fail hundreds of tests; restore the handlers of SIGINT and SIGQUIT.

    A shell starts background jobs with SIGINT and SIGQUIT ignored, and every process that a test starts would
    inherit that.
    """
    for name in _parts(os.environ.get(VARIABLE, "")):
        if (feature := name.removeprefix("-")) != "all" and feature not in BY_NAME | CONDITIONS:
            raise pytest.UsageError(
                f"{VARIABLE}: no {feature!r}; known: all, {', '.join(BY_NAME | CONDITIONS)}"
            )
    for library in native.LIBRARIES:
        if why := library.why_stale(library.path):
            raise pytest.UsageError(why)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGQUIT, signal.SIG_DFL)
    if config.getoption("--gate"):
        settings.load_profile("gate")
        config.pluginmanager.register(gate.Skips(), "skips")
        config.pluginmanager.register(costs.ByFile(), "costs by file")
        if hasattr(config, "workerinput"):  # of pytest-xdist
            config.pluginmanager.register(lanes.Lane.of(config), "lane")
        else:
            config.pluginmanager.register(gate.UnderWay(), "under way")
            config.pluginmanager.register(lanes.Dealer(), "dealer")


def _parts(setting: str) -> list[str]:
    return [part.strip() for part in setting.split(",") if part.strip()]


def insisted_on(name: str, setting: str) -> bool:
    """Return whether TESTBED_REQUIRE=`setting` makes the lack of `name` a failure."""
    parts = _parts(setting)
    return f"-{name}" not in parts and bool({"all", name} & set(parts))


def lacking(name: str, reason: str) -> NoReturn:
    """Skip the test because `name`, a feature or one of CONDITIONS, is missing; fail it where TESTBED_REQUIRE
    requires that.
    """
    assert name in BY_NAME or name in CONDITIONS, name
    if insisted_on(name, os.environ.get(VARIABLE, "")):
        pytest.fail(f"{reason} ({VARIABLE} insists on {name})", pytrace=False)
    pytest.skip(reason)


def _finding(name: str) -> ProbeResult:
    if name not in BY_NAME:
        raise pytest.UsageError(f"no feature {name!r}; known: {', '.join(BY_NAME)}")
    if name not in _findings:
        _findings.update((finding.name, finding) for finding in trials.findings([name]))
    return _findings[name]


def require_features(*names: str) -> None:
    """Skip the test where a feature is missing, or fail it where TESTBED_REQUIRE requires the feature.

    A broken probe always fails the test, whatever TESTBED_REQUIRE says: it is a fault of the project, not of
    the host.
    """
    for name in names:
        finding = _finding(name)
        if finding.works:
            continue
        feature = BY_NAME[name]
        if broken := _broken(name):
            pytest.fail(
                f"needs {feature.what}, and what tries {broken.name} is broken: {broken.detail}",
                pytrace=False,
            )
        lacking(name, f"needs {feature.what}: {finding.detail}; remedy: {feature.remedy}")


def _broken(name: str) -> ProbeResult | None:
    """Return the broken probe that `name` depends on, or None."""
    if _findings[name].broken:
        return _findings[name]
    return next((broken for need in BY_NAME[name].needs if (broken := _broken(need))), None)


@pytest.fixture
def require() -> Require:
    """Return a function that skips or fails the test unless this host has the named features."""
    return require_features


def pytest_runtest_setup(item: pytest.Item) -> None:
    for mark in item.iter_markers("needs"):
        require_features(*mark.args)
