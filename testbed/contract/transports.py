"""The ways in which a job's workers speak, as the daemon tells them."""

from __future__ import annotations

PACKETS = "packets"  # gradient packets, to the places of the job's forest
SERVER = "server"  # TCP, to a server process on a host of its own
GLOO = "gloo"  # among themselves, by gloo's collectives
