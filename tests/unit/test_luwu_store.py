"""LuWu's store: what is wrong with a folder is one line, and a broken iteration leaves the one before."""

from __future__ import annotations

import errno
import json
import os
import random
import re
import struct
import subprocess
import sys
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.limits import CALL_S
from tests.unit.luwu_world import SHAPES, Reference, World, adamw, flip, same, small
from workloads.luwu import commits, record
from workloads.luwu.checksum import checksum
from workloads.luwu.commits import Commit, facts_of
from workloads.luwu.errors import DiskError, LuwuError, RuleError, StoreError
from workloads.luwu.layout import PAGE, Layer, Model, Tensor
from workloads.luwu.rates import Rates
from workloads.luwu.rule import Norm, Rule, placeholders, rule_name
from workloads.luwu.store import Store

Fail = Callable[..., object]


@pytest.fixture
def folders(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / "a", tmp_path / "b"]
    for path in paths:
        path.mkdir()
    return paths


@pytest.fixture
def trained(folders: list[Path]) -> list[Path]:
    """Folders with a store of iteration 2, in copy 2."""
    with World(folders) as world:
        world.node.iterate()
        world.node.iterate()
    return folders


def refused(kind: type[LuwuError], function: Callable[[], object]) -> str:
    with pytest.raises(kind) as caught:
        function()
    message = str(caught.value)
    assert "\n" not in message
    return message


def resume(folders: list[Path], model: Model | None = None, rule: str = "AdamW") -> None:
    Store.resume(folders, model or small(), rule).close()


# ---------------------------------------------------------------- folders


def test_a_folder_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "no such folder" in refused(StoreError, lambda: World([tmp_path / "absent"]))
    assert "is not a folder" in refused(StoreError, lambda: World([tmp_path / "file"]))
    assert "named twice" in refused(StoreError, lambda: World([tmp_path, tmp_path / "." / ""]))
    assert "at least one folder" in refused(StoreError, lambda: World([]))
    assert "holds no model" in refused(StoreError, lambda: resume([tmp_path]))


def test_a_folder_in_use(trained: list[Path]) -> None:
    with World(trained, resume=True):
        program = (
            "import sys; from pathlib import Path; from workloads.luwu.store import Store\n"
            "from workloads.luwu.layout import Model, Layer, Tensor\n"
            "from workloads.luwu.errors import StoreError\n"
            "try: Store.resume([Path(sys.argv[1])], Model([Layer('a', (Tensor('a', (1,)),))]), 'AdamW')\n"
            "except StoreError as problem: print(problem)"
        )
        other = subprocess.run(
            [sys.executable, "-c", program, str(trained[1])],
            capture_output=True,
            text=True,
            check=True,
            timeout=CALL_S,
        )
        assert other.stdout.strip() == f"{trained[1]}: in use by another process"
    resume(trained)  # the lock went with who held it


@pytest.mark.parametrize("clip", [None, 0.5], ids=["unclipped", "clipped"])
@pytest.mark.parametrize("name", ["parameters.2", "states.2"])
def test_a_flipped_bit_is_seen_before_it_is_used(trained: list[Path], name: str, clip: float | None) -> None:
    """One bit of every second page or so, one after the other; and a copy of before. The iteration before is
    whole all the time, also when the next one was half written.
    """
    file = trained[1] / name
    content = file.read_bytes()
    flipped = [offset + offset // 7 % 4096 for offset in range(0, len(content), 8192)]
    old = (trained[1] / name.replace("2", "1")).read_bytes()
    reference = Reference(small(), adamw, None, None)
    reference.iterate()
    for offset in [*flipped, None]:
        damaged = bytearray(content if offset is not None else old)
        if offset is not None:
            damaged[offset] ^= 1 << offset % 8
        with World(trained, resume=True, clip=clip) as world:
            file.write_bytes(damaged)
            message = refused(DiskError, world.node.iterate)
        bounds = re.search(rf"read {file}: damaged between bytes (\d+) and (\d+), ", message)
        assert bounds is not None, message
        assert offset is None or int(bounds[1]) <= offset < int(bounds[2])
        with World(trained, resume=True, clip=clip) as world:
            assert world.node.iteration == 1
            assert f"read {file}: damaged between bytes " in world.store.notice
            assert same(world.states(), reference.states())
        file.write_bytes(content)
    with World(trained, resume=True, clip=clip) as world:
        assert world.node.iterate() == 3


@given(st.integers(), st.integers(1, 5), st.data())
def test_two_flipped_bits_change_a_checksum(seed: int, pages: int, data: st.DataObject) -> None:
    content = bytearray(random.Random(seed).randbytes(PAGE) * pages)
    before = checksum(memoryview(content))
    bit = st.integers(0, len(content) * 8 - 1)
    first, second = data.draw(bit), data.draw(bit)
    content[first // 8] ^= 1 << first % 8
    assert checksum(memoryview(content)) != before
    content[second // 8] ^= 1 << second % 8
    assert (checksum(memoryview(content)) == before) == (first == second)


def test_a_store_is_not_made_over_another(trained: list[Path]) -> None:
    for paths in (trained, trained[:1], trained[1:], trained[::-1]):
        assert "holds a model already" in refused(StoreError, partial(World, paths))
    with World(trained, resume=True) as world:
        assert world.node.iteration == 2


def test_disks_are_those_of_one_store(trained: list[Path], tmp_path: Path) -> None:
    assert "is disk 1 of 2" in refused(StoreError, lambda: resume(trained[::-1]))
    assert "is disk 0 of 2" in refused(StoreError, lambda: resume(trained[:1]))
    others = [tmp_path / "c", tmp_path / "d"]
    for path in others:
        path.mkdir()
    World(others).__exit__()
    message = refused(StoreError, lambda: resume([trained[0], others[1]]))
    assert "is of another store than" in message


def test_what_another_run_left(trained: list[Path]) -> None:
    assert "the optimizer is Adam" in refused(StoreError, lambda: resume(trained, rule="Adam"))
    assert "the model's are float16" in refused(StoreError, lambda: resume(trained, small("float16")))
    wider = small(shapes=[*SHAPES[:-1], ("head", ((17, 132), (131,)))])
    message = refused(StoreError, lambda: resume(trained, wider))
    assert "its tensor head.0 of shape [17, 131] is head.0 of shape [17, 132] here" in message
    assert "of 4 layers, this one has 3" in refused(
        StoreError, lambda: resume(trained, small(shapes=SHAPES[:3]))
    )
    named = small(shapes=[("other", SHAPES[0][1]), *SHAPES[1:]])
    assert "its layer embed is other here" in refused(StoreError, lambda: resume(trained, named))
    fewer = small(shapes=[*SHAPES[:-1], ("head", ((17, 131),))])
    assert "has 2 tensors, 1 here" in refused(StoreError, lambda: resume(trained, fewer))


def opened(folders: list[Path], reference: Reference | None = None) -> tuple[int, str]:
    """Return the iteration that is opened and what is said, once in a line; a second opening says it no more
    where the first has mended it.
    """
    with World(folders, resume=True) as world:
        assert "\n" not in world.store.notice
        assert reference is None or same(world.states(), reference.states())
        return world.node.iteration, world.store.notice


def test_a_damaged_commit_is_on_the_other_disk(trained: list[Path]) -> None:
    for folder in trained:
        commit = folder / "commit.2"
        content = commit.read_bytes()
        other = content.replace(b'"iteration": 2', b'"iteration": 5')
        for broken in (content[:-1], content[:20], b"", content[:-9] + b"x" + content[-8:], other):
            commit.write_bytes(broken)
            said = f"{trained[0]}: opened at iteration 2, which is whole: {commit}: damaged"
            assert opened(trained) == (2, said)
            assert commit.read_bytes() == content
            assert opened(trained) == (2, "")
        commit.unlink()
        assert opened(trained) == (2, "")
        assert commit.read_bytes() == content


def test_a_commit_that_no_disk_has_whole_is_left_for_the_one_before(trained: list[Path]) -> None:
    reference = Reference(small(), adamw, None, None)
    reference.iterate()
    for folder in trained:
        (folder / "commit.2").write_bytes(b"x")
    iteration, said = opened(trained, reference)
    assert iteration == 1
    assert all(f"{folder / 'commit.2'}: damaged" in said for folder in trained)
    with World(trained, resume=True) as world:
        reference.iterate()
        assert world.node.iterate() == 2
    assert opened(trained, reference) == (2, "")


def test_where_nothing_is_whole(trained: list[Path]) -> None:
    for number in range(3):
        flip(trained[number % 2] / f"states.{number}", 5000, 3)
    message = refused(StoreError, lambda: resume(trained))
    assert message.startswith(f"{trained[0]}: no iteration is whole: iteration 2 is not whole: read ")
    assert all(f"iteration {number} is not whole" in message for number in range(3))
    for folder in trained:
        for number in range(3):
            (folder / f"commit.{number}").write_bytes(b"x")
    assert "no iteration is whole: " in refused(StoreError, lambda: resume(trained))
    assert "holds a model already" in refused(StoreError, lambda: World(trained))


def test_a_file_that_is_cut_or_lost_is_made_again(trained: list[Path]) -> None:
    reference = Reference(small(), adamw, None, None)
    reference.iterate()
    states = trained[1] / "states.2"
    length = states.stat().st_size
    os.truncate(states, length - 4096)
    iteration, said = opened(trained, reference)
    assert iteration == 1
    assert f"{states}: has {length - 4096} bytes, a whole one has {length}" in said
    states.unlink()
    iteration, said = opened(trained, reference)
    assert iteration == 1
    assert f"{states}: No such file" in said
    with World(trained, resume=True) as world:
        reference.iterate()
        assert world.node.iterate() == 2
    assert opened(trained, reference) == (2, "")


def test_a_commit_lies_on_a_disk_as_it_always_did(tmp_path: Path) -> None:
    """Stores outlive versions: the line is what json wrote of a dictionary."""
    model = small()
    commit = Commit(4, facts_of(model, "Adam", "a1", 2), (7, 8), b"settings")
    commit.write(tmp_path, 1)
    line, _, blob = (tmp_path / "commit.1").read_bytes().partition(b"\n")
    layers = [
        [layer.name, [[each.name, list(each.shape)] for each in layer.tensors]] for layer in model.layers
    ]
    facts = {"format": 2, "store": "a1", "disks": 2, "rule": "Adam", "dtype": "bfloat16", "layers": layers}
    facts |= {"disk": 1, "iteration": 4, "sums": 2}
    crc32 = zlib.crc32(blob, zlib.crc32(json.dumps(facts).encode()))
    assert line == json.dumps({"facts": facts, "blob_bytes": len(blob), "crc32": crc32}).encode()
    assert blob == struct.pack("<2I", 7, 8) + b"settings"
    (_, own) = commits.read([tmp_path / "none", tmp_path], model, "Adam").by_disk
    assert own == {4: commit}


def test_a_store_of_the_former_format(folders: list[Path]) -> None:
    for folder in folders:
        record.write(folder, "model", '{"format": 1}')
    assert "is of format 1, accepted is 2: " in refused(StoreError, lambda: resume(folders))
    assert "holds a model already" in refused(StoreError, lambda: World(folders))


# ---------------------------------------------------------------- optimizers and models


def test_an_optimizer_that_is_not_kept(folders: list[Path]) -> None:
    model = small()
    parameters = placeholders(model)
    every = list(parameters.values())
    assert "accepted are Adam, AdamW" in refused(RuleError, lambda: rule_name(torch.optim.SGD(every, lr=1)))
    amsgrad = torch.optim.AdamW(every, amsgrad=True)
    assert "amsgrad=True: accepted is False" in refused(RuleError, lambda: Rule(amsgrad, model, parameters))
    part = torch.optim.AdamW(every[1:])
    assert "tensor embed.0 is in no group" in refused(RuleError, lambda: Rule(part, model, parameters))
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(torch.optim.AdamW(every))
    message = refused(RuleError, lambda: Rule(plateau.optimizer, model, parameters, plateau))
    assert message.startswith("ReduceLROnPlateau needs the loss")
    assert "accepted is a number above 0" in refused(RuleError, lambda: Norm(0.0))


def test_another_schedule_or_other_groups(trained: list[Path]) -> None:
    def cosine(optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LRScheduler:
        return torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 5)

    message = refused(RuleError, lambda: World(trained, resume=True, schedule=cosine))
    assert message == "the states were trained with schedule none, this one is CosineAnnealingLR"
    merged = refused(
        RuleError,
        lambda: World(
            trained,
            resume=True,
            make=lambda groups: torch.optim.AdamW([p for g in groups for p in g["params"]]),  # type: ignore[attr-defined]
        ),
    )
    assert "other groups" in merged


def test_a_model_that_is_none() -> None:
    tensor = Tensor("a", (2, 3))
    assert "twice" in refused(LuwuError, lambda: Model([Layer("x", (tensor,)), Layer("y", (tensor,))]))
    assert "no elements" in refused(LuwuError, lambda: Model([Layer("x", (Tensor("a", (0, 3)),))]))
    assert "at least one" in refused(LuwuError, lambda: Model([Layer("x", ())]))
    message = refused(LuwuError, lambda: Model([Layer("x", (tensor,))], "float32"))
    assert message == "parameters in float32: accepted are bfloat16, float16"


def test_memory_that_no_layer_fits(folders: list[Path]) -> None:
    message = refused(LuwuError, lambda: World(folders, memory_bytes=60_000))
    assert message == "memory_bytes 60000: layer embed needs at least 73728 for its buffers"


def test_a_rate_that_is_none() -> None:
    for rate in (0, -1.0, float("inf"), float("nan")):
        assert "rate reads" in refused(LuwuError, partial(Rates, reads=rate))


# ---------------------------------------------------------------- a full disk


class Full:
    """A disk that takes no more after some operations."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left = 10**9
        self.refuses = ""
        for name in ("pwritev", "write", "posix_fallocate", "fsync", "fdatasync", "rename"):
            monkeypatch.setattr(os, name, self._failing(name, getattr(os, name)))

    def _failing(self, name: str, function: Fail) -> Fail:
        def call(*arguments: object) -> object:
            self.left -= 1
            if self.left < 0 or name == self.refuses:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return function(*arguments)

        return call


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> Full:
    return Full(monkeypatch)


def test_a_store_that_finds_no_room_leaves_nothing(folders: list[Path], full: Full) -> None:
    messages: list[str] = []
    while True:
        full.left = len(messages)
        try:
            world = World(folders)
            break
        except (DiskError, StoreError) as problem:
            messages.append(str(problem))
        full.left = 10**9
        assert {path.name for folder in folders for path in folder.iterdir()} <= {"lock"}
    world.__exit__()
    assert len(messages) > 20
    assert all("No space left on device" in each and "\n" not in each for each in messages)


@pytest.mark.parametrize("clip", [None, 0.5], ids=["unclipped", "clipped"])
def test_a_disk_full_at_any_operation_loses_nothing(
    folders: list[Path], full: Full, clip: float | None
) -> None:
    """An iteration is tried with one more operation than before, until it succeeds; so is the next."""
    reference = Reference(small(), adamw, None, clip)
    World(folders, clip=clip).__exit__()
    whole = 0
    for iteration in (1, 2):
        reference.iterate()
        messages: list[str] = []
        while whole < iteration:
            with World(folders, resume=True, clip=clip) as world:
                full.left = len(messages)
                try:
                    whole = world.node.iterate()
                except DiskError as problem:
                    messages.append(str(problem))
                full.left = 10**9
            with World(folders, resume=True, clip=clip) as world:  # after the rename it may be whole already
                assert whole <= world.node.iteration <= iteration
                whole = world.node.iteration
        assert len(messages) > 8
        assert all("No space left on device" in each and "\n" not in each for each in messages)
        with World(folders, resume=True, clip=clip) as world:
            assert same(world.states(), reference.states())


def test_a_schedule_does_not_go_on_without_its_commit(folders: list[Path], full: Full) -> None:
    rates: list[float] = []
    with World(folders, schedule=partial(torch.optim.lr_scheduler.StepLR, step_size=1, gamma=0.5)) as world:
        for group in world.rule.optimizer.param_groups:
            rates.append(group["lr"])
        full.refuses = "rename"
        with pytest.raises(DiskError, match="commit iteration 1"):
            world.node.iterate()
        assert [group["lr"] for group in world.rule.optimizer.param_groups] == rates
        assert world.rule.scheduler is not None
        assert world.rule.scheduler.last_epoch == 0


def test_a_record_is_whole_or_as_before(tmp_path: Path, full: Full) -> None:
    record.write(tmp_path, "it", '{"number": 1}', b"one")
    for operations in range(3):
        full.left = operations
        with pytest.raises(OSError, match="No space left"):
            record.write(tmp_path, "it", '{"number": 2}', b"two")
        read = record.read(tmp_path, "it")
        assert read is not None
        assert read == ('{"number": 1}', b"one")
        assert [path.name for path in tmp_path.iterdir()] == ["it"]


# ---------------------------------------------------------------- the network's failures


def test_a_network_that_fails_ends_the_iteration(trained: list[Path]) -> None:
    with World(trained, resume=True) as world:
        world.network.close()
        with pytest.raises(RuntimeError, match="shutdown"):
            world.node.iterate()
        assert "has failed" in refused(LuwuError, world.node.iterate)
    with World(trained, resume=True) as world:
        assert world.node.iteration == 2
        world.node.iterate()
