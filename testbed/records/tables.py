"""Format records and comparisons as text; each item is one line, whatever users wrote into it. Pure."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from testbed.client.terminal_text import line
from testbed.messages.coding import UNSET, UnsetType
from testbed.messages.result import MeanResult, RepeatedRuns, RunResult
from testbed.messages.script import DoneStep, ScriptResult, StepOfRun
from testbed.messages.traffic import TrafficResult
from testbed.records.comparison import Comparison, Differing, NumberRow, Side, means_by_name
from testbed.records.facts import RecordedSource
from testbed.records.measures import known
from testbed.records.outcome import Outcome, claims_of, outcomes
from testbed.records.record import Record, Run
from testbed.records.statistics import Difference, Mean, Said
from testbed.records.traffic_table import traffic_lines

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"  # the names of sides
MOST_ROWS = 40
MOST_NAMED = 8
MOST_SIDES = len(LETTERS)


def size(count: float) -> str:
    """Format a number of bytes."""
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:.3g} GB"


def when(seconds: float) -> str:
    """Format a time in the local time zone."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(seconds))


def value(average: Mean, unit: str) -> str:
    """Format a mean with its interval, in as many digits as the interval justifies."""
    after = f" {unit}" if unit else ""
    half = average.half_width
    if half is None or half == 0 or not math.isfinite(half):
        return f"{average.mean:.4g}{after}"
    digits = max(0, 1 - math.floor(math.log10(half)))
    return f"{average.mean:.{digits}f} ± {half:.{digits}f}{after}"


def aligned(rows: Sequence[Sequence[str]], indent: str = "  ") -> list[str]:
    """Format rows as lines with aligned columns."""
    rows = [[line(cell) for cell in row] for row in rows]
    widths = [
        max((len(row[at]) for row in rows if at < len(row)), default=0)
        for at in range(max(map(len, rows), default=0))
    ]
    return [
        (indent + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=False))).rstrip()
        for row in rows
    ]


def listing(records: Sequence[Record]) -> str:
    """Format the records, one a line, in the given order."""
    rows = [("record", "state", "took", "runs", "verdict", "what")]
    rows += [
        (record.name, record.state, _took(record), str(len(record.runs)), _verdicts(record), _what(record))
        for record in records
    ]
    return "\n".join(aligned(rows, ""))


def _took(record: Record) -> str:
    return f"{record.ended - record.began:.1f} s" if record.ended else "-"


def _verdicts(record: Record) -> str:
    good, judged = Side((record,)).verdicts()
    failed = sum(run.failure is not None for run in record.runs)
    if not judged:
        return record.state if failed else "-"
    if judged == 1 and not failed:
        return "trustworthy" if good else "not trustworthy"
    return f"{good} of {judged} trustworthy" + (f", {failed} {record.state}" if failed else "")


def _what(record: Record) -> str:
    text = line(" ".join(record.words[1:]))
    return text if len(text) <= 60 else f"{text[:57]}..."


def page(record: Record) -> str:
    """Format a record in full."""
    set_up = record.set_up
    ended = f", ended {when(record.ended)} after {record.ended - record.began:.1f} s" if record.ended else ""
    lines = [
        f"{record.name}: {record.state}" + (f": {record.failure}" if record.failure else ""),
        f"  testbed {' '.join(record.words)}",
        f"  by {record.user} in {record.cwd or 'a folder that was gone'}",
        f"  began {when(record.began)}{ended}",
    ]
    if set_up.testbed:
        lines.append(f"  on testbed {set_up.testbed.name}, configuration {set_up.testbed.configuration}")
    host = set_up.host
    lines += [
        f"  host {host.name or None}: {host.processor or None}, {host.cores or None} cores, Linux "
        f"{host.kernel or None}",
        f"  versions {', '.join(f'{name} {version}' for name, version in set_up.versions.items())}",
        *_source(set_up.source),
    ]
    if set_up.seeds:
        lines.append(f"  seeds {', '.join(f'{name} {seed}' for name, seed in set_up.seeds.items())}")
    lines += [
        f"  {each.role} {each.path}" + (f" (kept: {each.copy})" if each.copy else "")
        for each in set_up.inputs
    ]
    lines += [f"  note: {note}" for note in record.notes]
    for run in record.runs:
        lines += _run_lines(run, len(record.runs))
    lines += _stacks(record.folder)
    results = outcomes(record)
    if record.command == "script":
        scripts = [result for result in results if isinstance(result, ScriptResult)]
        lines += [_step(step, step.did_s) for script in scripts for step in script.steps]
    lines += [f"  {text}" for result in results for text in _traffic(result)]
    if record.command == "reproduce":
        lines += [claims for result in results for claims in _claims(result)]
    else:
        lines += means_lines(results)
    lines.append(f"  {size(record.size_bytes)} in {record.folder}")
    return "\n".join(map(line, lines))


def _traffic(result: Outcome) -> list[str]:
    """Format the flows of a result; of a job, those that were sent meanwhile."""
    if isinstance(result, TrafficResult):
        return traffic_lines(result)[:-1]  # the verdict is the run's own
    traffic = result.traffic if isinstance(result, RunResult) else UNSET
    return [] if isinstance(traffic, UnsetType) else ["flows sent meanwhile:", *traffic_lines(traffic)]


def _source(source: RecordedSource) -> list[str]:
    commits = (
        ("project", source.commit, source.changed),
        ("script", source.script_commit, source.script_changed),
    )
    return [
        f"  {of} at commit {commit}{', with changes' if changed else ''}"
        for of, commit, changed in commits
        if commit
    ]


def _run_lines(run: Run, runs: int) -> list[str]:
    head = f"run {run.number}: " if runs > 1 else ""
    lines = [f"  {head}did not end well: {run.failure}"] if run.failure and runs > 1 else []
    if run.verdict:
        lines.append(f"  {head}{run.verdict}")
    lines += [_step(step, step.run_s, f"{head}{step.script} ") for step in run.steps]
    return lines


def _stacks(folder: Path) -> list[str]:
    """Format the files with the stacks of failed jobs' workers, a line for each folder of them."""
    by_folder: dict[Path, list[str]] = {}
    for file in sorted(folder.glob("runs/*/logs/**/stacks-*.log")):
        by_folder.setdefault(file.parent, []).append(file.name)
    return [
        f"  stacks of {len(names)} worker{'s' * (len(names) > 1)} as it failed: "
        f"{parent.relative_to(folder) / names[0]}{' ...' * (len(names) > 1)}"
        for parent, names in by_folder.items()
    ]


def _step(step: DoneStep | StepOfRun, at_s: float, head: str = "") -> str:
    failed = f": exit code {step.exit_code}" if step.exit_code else ""
    return f"  {head}at {at_s:.2f} s: {step.command}{failed}"


def _claims(result: Outcome) -> list[str]:
    """Count a figure's claims by verdict."""
    words = Counter(str(claim.get("verdict")) for claim in claims_of(result))
    return [f"  claims: {', '.join(f'{count} {word}' for word, count in words.items())}"] if words else []


def means_lines(results: Sequence[Outcome]) -> list[str]:
    """Format the means of runs, each with its 95 % confidence interval."""
    means = means_by_name(results)
    if not means:
        return []
    count = max(len(each.values) for each in means.values())
    head = f"  means of {count} runs, ± 95 % confidence:" if count > 1 else "  in numbers:"
    rows = [(known(name).title, value(each, known(name).unit)) for name, each in means.items()]
    return [head, *aligned(rows, "    ")]


def means_of(results: Sequence[RunResult]) -> RepeatedRuns:
    """Combine repeated runs: all results, and the means with their intervals."""
    return RepeatedRuns(tuple(results), means_said(means_by_name(results)))


def means_said(means: Mapping[str, Mean]) -> dict[str, MeanResult]:
    """Convert means to their form in a result, by name."""
    return {name: mean_said(each) for name, each in means.items()}


def mean_said(average: Mean) -> MeanResult:
    return MeanResult(average.mean, average.low, average.high, average.values)


# ------------------------------------------------------------------ comparisons


def comparison(compared: Comparison) -> str:
    """Format a comparison: its sides, the set-ups, the results."""
    letters = LETTERS[: len(compared.sides)]
    lines = [
        f"{letter}  {side.name}: {side.ended()}, {_counted(side.runs)}{_trust(side)}"
        for letter, side in zip(letters, compared.sides, strict=True)
    ]
    lines += ["", "Set-up"]
    lines += _differing(compared.set_up, letters) or ["  no difference that is recorded"]
    lines += ["", "Result"]
    if not compared.rows:
        lines.append("  no number that two of them have")
    else:
        shown = _shown(compared.rows)
        lines += aligned([("", *letters, *_heads(letters)), *(_cells(row) for row in shown)])
        if left := len(compared.rows) - len(shown):
            lines.append(f"  and {left} more, which --json has")
        lines += ["", *_summary(compared, letters)]
    if compared.claims:
        lines += ["", "Claims of the paper, ours", *_differing(compared.claims, letters)]
    return "\n".join(map(line, lines))


def _counted(runs: int) -> str:
    return f"{runs} run{'s' * (runs != 1)} with numbers"


def _shown(rows: Sequence[NumberRow]) -> Sequence[NumberRow]:
    """Return the rows to show: if there are more than MOST_ROWS, the first ones that differ."""
    if len(rows) <= MOST_ROWS:
        return rows
    differing = [row for row in rows if any(each and each.said != Said.SAME for each in row.differences)]
    return differing[:MOST_ROWS]


def _trust(side: Side) -> str:
    good, judged = side.verdicts()
    return f", {good} of {judged} trustworthy" if judged else ""


def _differing(parts: Sequence[Differing], letters: str) -> list[str]:
    return aligned([("", *letters), *((part.what, *part.values) for part in parts)]) if parts else []


def _heads(letters: str) -> list[str]:
    return [f"{letter} against {letters[0]}" for letter in letters[1:]]


def _cells(row: NumberRow) -> list[str]:
    means = ["-" if each is None else value(each, row.measure.unit) for each in row.means]
    return [row.measure.title, *means, *(_said(each) for each in row.differences)]


def _said(difference: Difference | None) -> str:
    if difference is None:
        return "-"
    if difference.said == Said.SAME:
        return difference.said
    by = f"{difference.relative:+.1%}" if difference.relative is not None else f"{difference.absolute:+.4g}"
    has_p = difference.p is not None and difference.said != Said.UNJUDGED
    p = f" (p {difference.p:.2g})" if has_p else ""
    return f"{by}, {difference.said}{p}"


def _summary(compared: Comparison, letters: str) -> list[str]:
    """Format a sentence for each further side: the measures that differ by more than the noise, or why none
    can be judged.
    """
    lines = []
    for at, letter in enumerate(letters[1:]):
        judged = [(row.measure.title, row.differences[at]) for row in compared.rows]
        differ = [title for title, each in judged if each is not None and each.said == Said.MORE]
        unknown = any(each is not None and each.said == Said.UNKNOWN for _, each in judged)
        unjudged = any(each is not None and each.said == Said.UNJUDGED for _, each in judged)
        if differ:
            named = (
                ", ".join(differ) if len(differ) <= MOST_NAMED else f"{len(differ)} of {len(judged)} numbers"
            )
            lines.append(f"{letter} differs from {letters[0]} by more than the noise in: {named}")
        elif unknown:
            remedy = "too few runs to know the noise: testbed run --repeat N"
            lines.append(f"{letter} against {letters[0]}: {remedy}")
        elif not unjudged:
            lines.append(f"{letter} differs from {letters[0]} by no more than the noise")
        if unjudged:
            lines.append(
                f"{letter} against {letters[0]}: times are not judged, for not all runs are trustworthy"
            )
    return lines
