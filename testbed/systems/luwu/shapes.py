"""The shapes of OPT in table 2, and the parameters and operations of their layers. Pure.

Only transformer blocks count: embeddings, 8 % of the smallest model and below 1 % from 30B on, are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

TOKENS = 1024
"""Tokens of a sequence, in all experiments (section 4.1)."""
PARAMETER_BYTES = 2
"""Bytes of a parameter, and of a gradient: bf16."""
STATE_BYTES = 12
"""Bytes of optimizer state per parameter: a master copy and Adam's two moments, in fp32."""


@dataclass(frozen=True, slots=True)
class Shape:
    """A decoder of equal blocks."""

    name: str
    layers: int
    heads: int
    hidden: int

    @property
    def layer_parameters(self) -> int:
        """The parameters of a block: attention and a feed-forward part four times as wide, with biases and
        norms.
        """
        return 12 * self.hidden**2 + 13 * self.hidden

    @property
    def parameters(self) -> int:
        return self.layers * self.layer_parameters

    def forward_flop(self, micro_batch: int) -> float:
        """Count the forward operations of a block for a micro-batch: products with weights, and attention's
        two products of activations. The backward pass takes twice as many, and recomputing activations as
        many once more.
        """
        products = 24 * TOKENS * self.hidden**2
        attention = 4 * TOKENS**2 * self.hidden
        return float(micro_batch * (products + attention))

    def iteration_flop(self, micro_batch: int) -> float:
        """Count a GPU's operations in an iteration, recomputed activations included."""
        return 4 * self.layers * self.forward_flop(micro_batch)

    def activation_bytes(self, micro_batch: int) -> float:
        """Compute the bytes that a block's backward pass needs, in 16 bits, attention's scores stored
        (Korthikanti et al., Reducing activation recomputation in large transformer models, equation 1).
        """
        return float(micro_batch * (34 * TOKENS * self.hidden + 5 * self.heads * TOKENS**2))


SHAPES: Mapping[str, Shape] = {
    shape.name: shape
    for shape in (
        Shape("1.3B", 24, 32, 2048),
        Shape("2.7B", 32, 32, 2560),
        Shape("6.7B", 32, 32, 4096),
        Shape("13B", 40, 40, 5120),
        Shape("30B", 48, 56, 7168),
        Shape("66B", 64, 72, 9216),
        Shape("175B", 96, 96, 12288),
        Shape("276B", 112, 112, 14336),
        Shape("505B", 124, 144, 18432),
        Shape("1.0T", 172, 172, 22016),
    )
}
