"""The setting that the live figures share: network, model, the ways to train that are compared, and what a
block's computing is declared to take. Owns no run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from testbed.systems.luwu.shapes import PARAMETER_BYTES
from testbed.topology import catalogue

LINK_BYTES_S = 100e9 / 8
"""The paper's, before it is scaled."""
SCALE = 2000
LAYERS, WIDTH, LENGTH = 4, 128, 32
MICRO_BATCH = 16
"""The paper's of figures 2 and 3."""
FORWARD_OF_PULL = 1.13
"""A block's forward pass over the time of its parameters on the link, at a micro-batch of 16: what OPT-175B
has on the paper's hardware, 0.33 s of 183 TFLOPS over 0.29 s of 100 Gb/s. Backward takes three times as long,
activations computed again.
"""


@dataclass(frozen=True, slots=True)
class TrainingWay:
    """A way to train that is compared: its scheme in compared.py, who sums, and what the paper calls it."""

    name: str
    title: str
    scheme: str
    sync: str
    backend: str
    paper: str
    colour: str


LUWU = TrainingWay("luwu", "LuWu", "luwu", "luwu", "gloo", "LuWu", "#009E73")
FSDP = TrainingWay("fsdp", "FSDP over gloo", "fsdp", "ring", "gloo", "ZeRO-3", "#0072B2")
TUNED = TrainingWay("fsdp-tuned", "FSDP, tuned", "fsdp-tuned", "ring", "gloo", "ZeRO-3", "#56B4E9")
ON_DISKS = TrainingWay(
    "fsdp-disks", "FSDP, states on disks", "fsdp-disks", "ring", "gloo", "ZeRO-Infinity", "#D55E00"
)
IN_SWITCH = TrainingWay(
    "fsdp-switch", "FSDP by the switch", "fsdp", "inc", "inc", "ZeRO with SHARP", "#A34F8A"
)
DDP = TrainingWay("ddp-switch", "DDP by the switch", "ddp", "inc", "inc", "SwitchML", "#6B7785")
WAYS: Mapping[str, TrainingWay] = {way.name: way for way in (LUWU, FSDP, TUNED, ON_DISKS, IN_SWITCH, DDP)}


def network(scale: int) -> dict[str, Any]:
    """Return the paper's network, the catalogue's, at a scale."""
    return {**catalogue.READY["luwu"], "scale": scale}


def link_bytes_s(scale: int) -> float:
    return LINK_BYTES_S / scale


def block_elements(width: int) -> int:
    return 12 * width**2 + 13 * width


def computing_ms(micro_batch: int, width: int, scale: int) -> tuple[float, float]:
    """Return what a block's passes are declared to take, forward and backward."""
    pull_s = block_elements(width) * PARAMETER_BYTES / link_bytes_s(scale)
    forward_ms = 1e3 * pull_s * FORWARD_OF_PULL * micro_batch / MICRO_BATCH
    return forward_ms, 3 * forward_ms
