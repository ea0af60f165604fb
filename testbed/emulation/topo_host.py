"""The process that makes a user's topology: `python -m testbed.emulation.topo_host FILE.py:CLASS`, run as
that user. Its answer, a line on the socket that is its standard input, is a configuration as in a YAML file.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Mapping
from typing import Any

from mininet.topo import Topo

from testbed.emulation.topo import FabricTopo
from testbed.errors import RequestError
from testbed.plugins.user_class import in_a_line, line_of, load
from testbed.topology.model import Topology
from testbed.topology.yaml_form import words

ACCEPTED = "a FabricTopo, a Topology, or the keys and values of a YAML file"


def configuration_of(described: object) -> dict[str, Any]:
    """Convert what a user's class made to the keys and values of a YAML file. RequestError if it is no
    topology.
    """
    if isinstance(described, FabricTopo):
        return described.configuration()
    if isinstance(described, Topology):
        return words(described)
    if isinstance(described, Mapping):
        return dict(described)
    kind = "Topo of Mininet's own" if isinstance(described, Topo) else type(described).__name__
    raise RequestError(f"it made a {kind}; {ACCEPTED} is accepted")


def answer_to(name: str) -> str:
    """Return the answer as JSON: the configuration, or in one line why there is none."""
    try:
        return json.dumps({"configuration": configuration_of(load(name)())})
    except RequestError as error:
        return json.dumps({"refused": str(error)})
    except Exception as error:  # a user's code may raise anything
        return json.dumps({"refused": f"it raised {in_a_line(error)}{line_of(error, name)}"})


def main(argv: list[str]) -> int:
    """Answer once."""
    (name,) = argv
    with socket.socket(fileno=os.dup(0)) as peer:
        with open(os.devnull) as nothing:
            os.dup2(nothing.fileno(), 0)
        peer.sendall(answer_to(name).encode() + b"\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
