"""Tries features in the order of their needs, whichever module knows how. What `testbed doctor` and the tests
ask.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from testbed.host_checks import host, kernel
from testbed.host_checks.features import BY_NAME, ProbeFailure, ProbeResult, broken, with_needs


def findings(names: Sequence[str]) -> Iterator[ProbeResult]:
    """Yield what became of `names` and of all that they need, as it becomes known. A feature whose needs fail
    is not tried.
    """
    works: dict[str, bool] = {}
    pending = with_needs(names)
    while pending:
        batch = (
            [pending[0]] if pending[0] in host.PROBES else [name for name in pending if name in kernel.PROBES]
        )
        pending = [name for name in pending if name not in batch]
        tried: list[str] = []
        for name in batch:
            if all(works.get(need, need in tried) for need in BY_NAME[name].needs):
                tried.append(name)
        findings_by_name = {finding.name: finding for finding in _try(tried)} if tried else {}
        for name in batch:
            lacking = [need for need in BY_NAME[name].needs if not works.get(need)]
            finding = findings_by_name.get(name) or ProbeResult(
                name, False, f"not tried, for it needs {' and '.join(lacking)}", tried=False
            )
            works[name] = finding.works
            yield finding


def _try(names: Sequence[str]) -> list[ProbeResult]:
    if names[0] in kernel.PROBES:
        return kernel.findings(names)
    try:
        return [ProbeResult(names[0], True, host.PROBES[names[0]]())]
    except ProbeFailure as failure:
        return [ProbeResult(names[0], False, str(failure), remedy=failure.remedy)]
    except Exception as error:  # a fault of ours, which must not pass for a lack of the host's
        return [broken(names[0], error)]
