"""Try features in the order of their needs, with whichever module has the probe. Used by `testbed doctor` and
the tests.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from testbed.host_checks import host, kernel
from testbed.host_checks.features import BY_NAME, ProbeFailure, ProbeResult, broken, with_needs


def findings(names: Sequence[str]) -> Iterator[ProbeResult]:
    """Yield the results of `names` and of everything that they need, as they become known. A feature whose
    needs fail is not tried.
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
    except Exception as error:  # our own defect, which must not be reported as a lack of the host
        return [broken(names[0], error)]
