"""The facts of a record's set-up: the testbed, its network, the sources and the host. A fact that could not
be determined is UNSET. What another user's record says of a testbed, a source or a host is unchecked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from testbed.messages.coding import UNSET, Number, UnsetType


@dataclass(frozen=True, slots=True)
class RecordedTestbed:
    """A testbed: its name, its main process, and its configuration's name."""

    name: Any = UNSET
    pid: Any = UNSET
    configuration: Any = UNSET


@dataclass(frozen=True, slots=True)
class RecordedFault:
    """A fault that was set on one direction of a link; see `FaultStatus`."""

    link: str
    direction: str | UnsetType = UNSET
    loss: Number | UnsetType = UNSET
    duplicate: Number | UnsetType = UNSET
    reorder: Number | UnsetType = UNSET
    corrupt: Number | UnsetType = UNSET
    distance: int | UnsetType = UNSET
    seed: int | UnsetType = UNSET


@dataclass(frozen=True, slots=True)
class RecordedLink:
    """A link that is not as the configuration says; see `LinkSetting`."""

    link: str
    by_hand_mbps: Number | UnsetType | None = UNSET
    up: bool | UnsetType = UNSET
    delay_ms: Number | UnsetType = UNSET
    jitter_ms: Number | UnsetType = UNSET


@dataclass(frozen=True, slots=True)
class RecordedNetwork:
    """A network's circuits, faults, and links that are not as the configuration says."""

    circuits: tuple[tuple[str, str], ...] | UnsetType = UNSET
    faults: tuple[RecordedFault, ...] | UnsetType = UNSET
    links: tuple[RecordedLink, ...] | UnsetType = UNSET


@dataclass(frozen=True, slots=True)
class RecordedSource:
    """The commits of the project and of the script's repository, and whether files differ from them; None
    where there is no repository.
    """

    commit: Any = UNSET
    changed: Any = UNSET
    script_commit: Any = UNSET
    script_changed: Any = UNSET


@dataclass(frozen=True, slots=True)
class RecordedHost:
    """The host on which the command ran."""

    name: Any = UNSET
    processor: Any = UNSET
    kernel: Any = UNSET
    cores: Any = UNSET
    memory_bytes: Any = UNSET
    machine: Any = UNSET
