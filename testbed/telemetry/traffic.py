"""The traffic on a job's links that is not the job's, by protocol and port. Pure."""

from __future__ import annotations

from dataclasses import dataclass

PROTOCOLS = {1: "ICMP", 6: "TCP", 17: "UDP", 132: "SCTP"}


@dataclass(frozen=True, slots=True)
class OthersTraffic:
    """Bytes that crossed a link of the job's, headers included. `port`: the lower of the two; 0: the protocol
    has none.
    """

    link: str
    protocol: int
    port: int
    bytes: int

    def __str__(self) -> str:
        name = PROTOCOLS.get(self.protocol, f"IP protocol {self.protocol}")
        port = f", port {self.port}" if self.port else ""
        return f"{self.bytes / 1e6:.3g} MB on {self.link} ({name}{port})"
