"""All planted bugs."""

from __future__ import annotations

from tests.mutants.mutation import Mutation
from tests.mutants.others import ENDPOINT, LINKS, P4, WINDOW
from tests.mutants.python import PYTHON
from tests.mutants.xdp import XDP

MUTATIONS: tuple[Mutation, ...] = (*XDP, *LINKS, *P4, *ENDPOINT, *WINDOW, *PYTHON)
