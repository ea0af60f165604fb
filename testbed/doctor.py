"""`testbed doctor`: tries each feature of this host, and names a remedy for each lack. Also runs before
set-up.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from testbed.client import environment
from testbed.errors import HostError

if TYPE_CHECKING:
    from testbed.host_checks.features import ProbeResult


def main(argv: list[str]) -> int:
    """Return 0 if everything that the testbed requires works; otherwise raise HostError, after the table."""
    from testbed.errors import TestbedError
    from testbed.host_checks import trials
    from testbed.host_checks.features import FEATURES, lacks

    parser = environment.Parser(
        prog="testbed doctor",
        description="Try each feature of this host that a testbed uses, and name the remedy for each lack.",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    as_json = parser.parse_args(argv).json
    findings = []
    for finding in trials.findings([feature.name for feature in FEATURES]):
        findings.append(finding)
        if not as_json:
            print(row(finding), flush=True)
    broken = [finding.name for finding in findings if finding.broken]
    lacking = lacks(findings)
    if as_json:
        print(json.dumps(report(findings), indent=2))
    elif not lacking and not broken:
        print("\nThis host can run testbeds.")
    if broken:
        raise TestbedError(
            f"a fault of the testbed's own, not of this host, in what tries {', '.join(broken)}"
        )
    if lacking:
        raise HostError(f"this host lacks {', '.join(finding.name for finding in lacking)}")
    return 0


def row(finding: ProbeResult) -> str:
    """Format a line of the table; below it the remedy, if the feature was tried and does not work."""
    from testbed.host_checks.features import BY_NAME, remedy_of

    feature = BY_NAME[finding.name]
    if finding.works:
        state = "works"
    elif finding.broken:
        return f"{finding.name:<14}{'BROKEN':<9}{feature.what}: {finding.detail}"
    elif not finding.tried:
        state = "untried"
    else:
        state = "LACKING" if feature.required else "absent"
    line = f"{finding.name:<14}{state:<9}{feature.what}: {finding.detail}"
    return (
        f"{line}\n{'':<23}-> {remedy_of(finding, environment.is_checkout())}"
        if finding.tried and not finding.works
        else line
    )


def report(findings: Sequence[ProbeResult]) -> dict[str, object]:
    """Return the data for --json."""
    from testbed.host_checks.features import BY_NAME, remedy_of

    features = []
    for finding in findings:
        feature = BY_NAME[finding.name]
        entry = {**asdict(finding), "what": feature.what, "required": feature.required}
        del entry["remedy"]
        features.append(
            entry
            if finding.works or not finding.tried or finding.broken
            else {**entry, "remedy": remedy_of(finding, environment.is_checkout())}
        )
    ok = all(finding.works or not (finding.broken or BY_NAME[finding.name].required) for finding in findings)
    return {"ok": ok, "features": features}


def _enter_if_set_up() -> None:
    """Enter the environment, or go on without it: the doctor reports its lack."""
    try:
        environment.interpreter()
    except HostError:
        return
    environment.ensure()


if __name__ == "__main__":
    _enter_if_set_up()
    environment.command_main(main)
