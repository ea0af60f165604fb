"""The transports of a job's workers, as in the daemon's settings."""

from __future__ import annotations

PACKETS = "packets"  # gradient packets, to the places of the job's forest
SERVER = "server"  # TCP, to a server process on a host of its own
OWNED = "owned"  # parameters from an owner and gradients to it, by the job's tree
GLOO = "gloo"  # among the workers, by gloo's collectives
