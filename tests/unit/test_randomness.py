"""A fork of the process with torch loaded draws what a process of its own draws: of all generators that are
there, whatever library made them, those that differ between two processes differ between two forks.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.limits import CALL_S

ROOT = Path(__file__).resolve().parents[2]
# Prints one line: of each process, the states of all generators, and what is drawn without one's own seed.
PROGRAM = r"""
import gc, hashlib, importlib, json, os, pickle, random, secrets, sys, tempfile, uuid, warnings
from workloads.randomness import Unseeded
from workloads.template import LOADED

warnings.simplefilter("ignore")
seeded = random.Random(5)  # by a library, with a seed of its own
with Unseeded() as unseeded:
    for name in LOADED:
        importlib.import_module(name)
    unnamed = {"somewhere": [random.Random()]}
    seeded_now = random.Random(6)
    seeded_later = random.Random()
    seeded_later.seed(7)
import numpy, torch

def state(it):
    if isinstance(it, torch.Generator):
        return it.get_state().numpy().tobytes()
    return pickle.dumps(it.getstate() if isinstance(it, random.Random) else it.get_state(legacy=False))

def told():
    kinds = (random.Random, numpy.random.RandomState)
    system = random.SystemRandom  # which has no state
    there = [it for it in gc.get_objects() if issubclass(type(it), kinds) and type(it) is not system]
    modules = [value for module in list(sys.modules.values()) for value in list(vars(module).values())]
    there += {id(it): it for it in modules if type(it) is torch.Generator}.values()
    states = [hashlib.sha256(state(it)).hexdigest() for it in there]
    drawn = {
        "torch": torch.rand(1).item(), "torch seed": torch.initial_seed(),
        "numpy": float(numpy.random.rand()),
        "default_rng": float(numpy.random.default_rng().random()), "random": random.random(),
        "Random": random.Random().random(), "uuid": uuid.uuid4().hex, "secrets": secrets.token_hex(),
        "tempfile": tempfile.mktemp(), "urandom": os.urandom(8).hex(),
        "permutation": torch.randperm(1000).tolist(), "linear": torch.nn.Linear(2, 2).weight.tolist(),
    }
    return {"states": states, "drawn": drawn}

if sys.argv[1] == "process":
    print(json.dumps([told()]))
    sys.exit()
said = []
for draws in (True, True, False, False):
    reader, writer = os.pipe()
    if os.fork() == 0:
        if draws:
            unseeded.draw()
        os.write(writer, json.dumps(told()).encode())
        os._exit(0)
    os.close(writer)
    said.append(json.loads(open(reader).read()))
    os.wait()
print(json.dumps(said))
"""


def told(how: str) -> list[dict[str, Any]]:
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    argv = [sys.executable, "-c", PROGRAM, how]
    ended = subprocess.run(argv, env=env, capture_output=True, check=True, timeout=CALL_S)
    processes: list[dict[str, Any]] = json.loads(ended.stdout)
    return processes


def same(a: dict[str, Any], b: dict[str, Any]) -> tuple[set[str], set[str]]:
    """The states that both have, and the names of draws that are equal."""
    return {*a["states"]} & {*b["states"]}, {
        name for name, value in a["drawn"].items() if b["drawn"][name] == value
    }


def test_forks_differ_in_what_processes_differ_in() -> None:
    in_processes, drawn_alike = same(*told("process"), *told("process"))
    assert len(in_processes) == 3, "of generators with a seed: those of this test"
    assert drawn_alike == set()
    fork, other, *undrawn = told("forks")
    assert same(fork, other) == (in_processes, set())
    states, drawn_alike = same(*undrawn)
    assert len(states) > 3, "forks that draw nothing are told from those that do"
    assert drawn_alike >= {"torch", "torch seed", "numpy", "permutation", "linear"}
