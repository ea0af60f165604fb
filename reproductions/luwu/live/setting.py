"""The setting that the live figures share: the network, the model, the ways of training that are compared,
and the declared computing time of a block. Owns no run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from testbed.systems.luwu.shapes import PARAMETER_BYTES
from testbed.topology import catalogue
from testbed.topology.yaml_text import written

LINK_BYTES_S = 100e9 / 8
"""The rate of the paper's links, bytes a second, before scaling."""
SCALE = 2000
LAYERS, WIDTH, LENGTH = 4, 128, 32
MICRO_BATCH = 16
"""The micro-batch of the paper's figures 2 and 3."""
FORWARD_OF_PULL = 1.13
"""A block's forward pass divided by the time of its parameters on the link, at a micro-batch of 16:
OPT-175B's ratio on the paper's hardware, 0.33 s at 183 TFLOPS over 0.29 s at 100 Gb/s. Backward takes three
times as long as forward, since activations are computed again.
"""


@dataclass(frozen=True, slots=True)
class TrainingWay:
    """A way of training: its scheme in compared.py, the system and backend that sum, and its name in
    the paper.
    """

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


def network(scale: int) -> str:
    """Return the configuration of the paper's network (`luwu` of the catalogue) at a scale, as YAML."""
    return written({**catalogue.READY["luwu"], "scale": scale})


def link_bytes_s(scale: int) -> float:
    return LINK_BYTES_S / scale


def block_elements(width: int) -> int:
    return 12 * width**2 + 13 * width


def computing_ms(micro_batch: int, width: int, scale: int) -> tuple[float, float]:
    """Return the declared milliseconds of a block's forward and backward pass."""
    pull_s = block_elements(width) * PARAMETER_BYTES / link_bytes_s(scale)
    forward_ms = 1e3 * pull_s * FORWARD_OF_PULL * micro_batch / MICRO_BATCH
    return forward_ms, 3 * forward_ms
