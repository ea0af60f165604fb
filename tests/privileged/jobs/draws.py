"""A job whose workers print the random numbers that each library draws, as one line of JSON; with the
argument `seeded`, after the script has set seeds of its own.
"""

from __future__ import annotations

import json
import os
import random
import secrets
import sys
import tempfile
import uuid

import numpy as np
import torch
import torch.distributed as dist
from sympy.core.random import rng


def main() -> None:
    if sys.argv[1:] == ["seeded"]:
        for seed in (torch.manual_seed, np.random.seed, random.seed):
            seed(3)
    drawn = {
        "torch": torch.rand(1).item(),
        "torch's seed": torch.initial_seed(),
        "numpy": float(np.random.rand()),
        "random": random.random(),
        "model": torch.nn.Linear(4, 4).weight[0, 0].item(),
        "default_rng": float(np.random.default_rng().random()),
        "Random": random.Random().random(),
        "sympy": rng.random(),
        "uuid": uuid.uuid4().hex,
        "secrets": secrets.token_hex(8),
        "tempfile": tempfile.mktemp(),
        "hash": hash("text"),
    }
    dist.init_process_group("inc")
    everyone: list[dict[str, object]] = [{} for _ in range(dist.get_world_size())]
    dist.all_gather_object(everyone, {**drawn, "parent": os.getppid()})
    if dist.get_rank() == 0:
        print("DRAWN " + json.dumps(everyone), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
