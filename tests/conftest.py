"""The features that a test may ask for: `@pytest.mark.needs("xdp", ...)`, or the fixture `require` in the
middle of a test.

A feature is tried (testbed/host_checks), once a run; a test that cannot do without one that is lacking is
skipped, and the reason says what is lacking in words. What else a test may find lacking has a name in
CONDITIONS. TESTBED_REQUIRE=all, a list like TESTBED_REQUIRE=xdp,ovs, or all but a few,
TESTBED_REQUIRE=all,-bmv2, turns such skips into failures.
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

# no limit on the time of an example: a busy machine is no failure
# new examples each time, where hypothesis finds the variable CI, too
settings.register_profile("testbed", deadline=None, derandomize=False)
settings.register_profile("gate", deadline=None, derandomize=True)  # the same tree, the same verdict
settings.register_profile("quick", deadline=None, derandomize=False, max_examples=10)  # tests/quick.py
settings.load_profile("testbed")

os.environ["OPTINC_RUNS"] = "off"  # what a test runs is no record of whoever tests

# What some tests need and no probe of a feature tells: a name for TESTBED_REQUIRE, and what it is.
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
    """Refuses a TESTBED_REQUIRE that names nothing, and compiled libraries of other sources than those that
    lie here, which would fail hundreds of tests; hears Ctrl-C as usual.

    A shell starts background jobs with SIGINT and SIGQUIT ignored, which every process that a test starts
    would inherit.
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
    """Skips the test for want of `name`, a feature or one of CONDITIONS, or fails it where TESTBED_REQUIRE
    insists on that.
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
    """Skips the test where a feature is lacking, or fails it where TESTBED_REQUIRE insists on that feature.

    Whatever TESTBED_REQUIRE says it fails where a probe is broken: a fault of the project's own is no lack of
    the host's.
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
    """The broken probe on which `name` depends, if there is one."""
    if _findings[name].broken:
        return _findings[name]
    return next((broken for need in BY_NAME[name].needs if (broken := _broken(need))), None)


@pytest.fixture
def require() -> Require:
    """`require("xdp", "ovs")` goes on only where this host has those features."""
    return require_features


def pytest_runtest_setup(item: pytest.Item) -> None:
    for mark in item.iter_markers("needs"):
        require_features(*mark.args)
