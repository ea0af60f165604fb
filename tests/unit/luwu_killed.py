"""Training that is killed again and again: `python -m tests.unit.luwu_killed FOLDER KILLS CLIP`.

Each life is a process forked from this one, which has imported torch and has no threads (OMP_NUM_THREADS=1:
torch's own threads do not survive a fork). It is killed by SIGKILL at a random operation on its files, or at
a random time. In some lives the disk then also loses everything that was not flushed. After one death a bit
of a file is flipped. Prints JSON: the losses that lives recorded, and the number of lives.
"""

from __future__ import annotations

import json
import math
import mmap
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import torch

from tests.unit.luwu_world import Network, Reference, World, adamw, flip, same, small
from workloads.luwu.layout import Model
from workloads.luwu.rule import views

ITERATIONS = 12
MOST_LIVES = 400


class Losses(Network):
    """Records a loss for each iteration, computed from the parameters of the forward pass."""

    def __init__(self, model: Model, file: Path, iteration: Callable[[], int]) -> None:
        super().__init__(model)
        self._file = file
        self._iteration = iteration

    def push(self, iteration: int, phase: str, layer: int, parameters: memoryview) -> Future[None]:
        if phase == "forward":
            squares = [
                float(each.double().square().sum())
                for each in views(self._model.layers[layer], parameters, torch.bfloat16)
            ]
            loss = math.fsum(squares)
            with self._file.open("a") as file:
                file.write(json.dumps([iteration, layer, loss.hex()]) + "\n")
        return super().push(iteration, phase, layer, parameters)


class Death:
    """Kills the process at its n-th file operation; with `forgets`, unflushed writes are lost with it."""

    def __init__(self, operation: int, forgets: bool) -> None:
        self._left = operation
        self._held: dict[int, list[Callable[[], object]]] = {}
        self._lock = threading.Lock()
        for name in ("rename", "posix_fallocate", "ftruncate"):
            setattr(os, name, self._counted(getattr(os, name)))
        for name in ("fsync", "fdatasync"):
            setattr(
                os, name, self._counted(self._flushing(getattr(os, name)) if forgets else getattr(os, name))
            )
        for name in ("pwritev", "write"):
            setattr(
                os, name, self._counted(self._holding(getattr(os, name)) if forgets else getattr(os, name))
            )

    def _counted(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            with self._lock:
                self._left -= 1
                if self._left < 0:
                    os.kill(os.getpid(), signal.SIGKILL)
            return function(*arguments)

        return call

    def _holding(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(fd: int, data: Any, *offset: int) -> int:
            if os.readlink(f"/proc/self/fd/{fd}").endswith("gradients"):
                return int(function(fd, data, *offset))  # it is read again before any flush
            content = bytes(data[0] if isinstance(data, list) else data)
            copy = mmap.mmap(-1, max(4096, len(content)))
            copy[: len(content)] = content
            view = memoryview(copy)[: len(content)]
            self._held.setdefault(fd, []).append(
                lambda: function(fd, [view] if isinstance(data, list) else view, *offset)
            )
            return len(content)

        return call

    def _flushing(self, function: Callable[[int], None]) -> Callable[[int], None]:
        def call(fd: int) -> None:
            for write in self._held.pop(fd, []):
                write()
            function(fd)

        return call


def live(folders: list[Path], clip: float | None, log: Path) -> None:
    resume = any((folder / f"commit.{copy}").exists() for folder in folders for copy in range(3))
    with World(folders, resume=resume, clip=clip) as world:
        world.node._network = Losses(world.model, log, lambda: world.node.iteration)
        while world.node.iteration < ITERATIONS:
            world.node.iterate()


def rot(folders: list[Path], chance: random.Random) -> str | None:
    """Flip a bit of a file once all disks have two complete iterations. Return the file, or None before
    that.
    """
    if not all((folder / f"commit.{copy}").exists() for folder in folders for copy in (0, 1)):
        return None
    file = chance.choice(
        sorted(each for folder in folders for each in folder.iterdir() if each.stat().st_size)
    )
    flip(file, chance.randrange(file.stat().st_size), chance.randrange(8))
    return str(file)


def main(folder: Path, kills: int, clip: float | None) -> None:
    folders = [folder / "a", folder / "b"]
    for path in folders:
        path.mkdir()
    log = folder / "losses"
    reference = Reference(small(), adamw, None, clip)
    reference.iterate()  # the first step makes torch import more
    for _ in range(ITERATIONS - 1):
        reference.iterate()
    chance = random.Random()
    seed = chance.randrange(1 << 30)
    chance = random.Random(seed)
    killed = 0
    flipped: str | None = None
    for lives in range(MOST_LIVES):
        mortal = killed < kills or flipped is None  # on busy cores lives end before there is a file to flip
        way = chance.choice(["operation", "forgetting", "time"])
        operation, pause_s = chance.randrange(130), chance.uniform(0, 0.15)
        child = os.fork()
        if child == 0:
            try:
                if mortal and way != "time":
                    Death(operation, way == "forgetting")
                live(folders, clip, log)
                os._exit(0)
            except BaseException as problem:
                print(f"seed {seed}, life {lives}: {problem!r}", file=sys.stderr, flush=True)
                os._exit(1)
        if mortal and way == "time":
            time.sleep(pause_s)
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status):
            killed += 1
            if flipped is None and killed > kills // 3:
                flipped = rot(folders, chance)
        elif os.WEXITSTATUS(status) != 0:
            sys.exit(1)
        elif not mortal:
            break
        else:  # it finished alive: start from the beginning
            for path in (file for each in folders for file in each.iterdir()):
                path.unlink()
    with World(folders, resume=True, clip=clip) as world:
        equal = same(world.states(), reference.states())
    losses = [json.loads(line) for line in log.read_text().splitlines() if line.endswith("]")]
    said = {"seed": seed, "killed": killed, "flipped": flipped, "equal": equal, "losses": losses}
    print(json.dumps(said))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]) if sys.argv[3] != "none" else None)
