"""Draw measured iterations: steps and the disks' queues over time, a colour for each layer.

`python -m workloads.luwu.gantt SPANS.json PICTURE.png [ITERATION]`, with a SPANS.json written by
`Spans.write`. Imports matplotlib, and draws without a display.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from workloads.luwu.spans import Span

STEPS = ("buffers", "push", "accept gradients", "norm", "update", "commit")
HATCHES = {"forward": "", "backward": "////", "update": "....", "commit": ""}
_QUEUES = ("read parameters", "read states", "write states")


def places(spans: Sequence[Span]) -> list[str]:
    """Return the rows from the top: the steps that occur, then each disk's queues, the most urgent first."""
    named = {span.place for span in spans}
    disks = sorted(
        named - set(STEPS),
        key=lambda place: (int(place.split()[1]), _QUEUES.index(place.split(maxsplit=2)[2])),
    )
    return [step for step in STEPS if step in named] + disks


def draw(spans: Sequence[Span], picture: Path) -> None:
    """Write the picture. Raises ValueError where there is nothing to draw."""
    if not spans:
        raise ValueError("no spans to draw")
    import matplotlib

    matplotlib.use("agg")
    import matplotlib.pyplot as plt

    rows = places(spans)
    zero = min(span.start_ns for span in spans)
    layers = max(span.layer for span in spans) + 1
    colours = plt.get_cmap("viridis", max(2, layers))
    figure, axes = plt.subplots(figsize=(12, 1.4 + 0.32 * len(rows)))
    for span in spans:
        axes.barh(
            rows.index(span.place),
            (span.end_ns - span.start_ns) / 1e6,
            left=(span.start_ns - zero) / 1e6,
            height=0.8,
            color="0.6" if span.layer < 0 else colours(span.layer),
            hatch=HATCHES.get(span.phase, ""),
            edgecolor="white",
            linewidth=0.3,
            alpha=0.85,
        )
    axes.set_yticks(range(len(rows)), rows)
    axes.invert_yaxis()
    axes.set_xlabel("ms; hatched: backward, dotted: update after clipping; colour: layer, dark is the first")
    axes.grid(True, axis="x", linewidth=0.3)
    figure.tight_layout()
    figure.savefig(picture, dpi=110)
    plt.close(figure)


def read(source: Path) -> list[Span]:
    """Read the spans that `Spans.write` wrote."""
    return [Span(**row) for row in json.loads(source.read_text())]


def main(arguments: Sequence[str]) -> None:
    source, picture, *iteration = arguments
    draw(
        [span for span in read(Path(source)) if not iteration or span.iteration == int(iteration[0])],
        Path(picture),
    )


if __name__ == "__main__":
    main(sys.argv[1:])
