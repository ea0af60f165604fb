"""The settings of the process that owns a job's tree: the optimizer node. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OwnerTree:
    """The owner's end of a job's tree: `group` is the address to which its packets for workers go."""

    port: int
    job: int
    generation: int
    workers: int
    lanes: int
    slots: int
    group: str
    rate_mbps: float | None


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """The settings of an optimizer node's process: its tree, the address and port at which it listens, its
    workers' hosts, and the descriptor of its slate (-1: none).
    """

    tree: OwnerTree
    listen: tuple[str, int]
    hosts: tuple[str, ...]
    slate: int
