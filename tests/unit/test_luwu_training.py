"""An unchanged training loop over LuWu's `initialize` has plain torch's losses, to the last bit."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from tests.unit.luwu_world import flip
from workloads.luwu import record
from workloads.luwu.errors import LuwuError
from workloads.luwu.held_layers import Remote
from workloads.luwu.training import NodeOptimizer, initialize

WORDS, WIDTH, BLOCKS = 61, 32, 3


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.attention = nn.MultiheadAttention(WIDTH, 2, batch_first=True)
        self.wide = nn.Linear(WIDTH, 4 * WIDTH)
        self.narrow = nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        y = self.norm(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return {"x": x + self.narrow(functional.gelu(self.wide(x)))}


class Language(nn.Module):
    """A small transformer, whose head has the weights of its embedding where `tied`."""

    def __init__(self, tied: bool = False, saves: bool = False) -> None:
        super().__init__()
        self.saves = saves
        self.positions = nn.Parameter(torch.randn(1, 16, WIDTH) * 0.02)
        self.embedding = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(BLOCKS))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, WORDS, bias=False)
        if tied:
            self.head.weight = self.embedding.weight

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        x = self.embedding(words) + self.positions
        for block in self.blocks:
            x = (checkpoint(block, x, use_reentrant=False) if self.saves else block(x))["x"]
        logits: torch.Tensor = self.head(self.norm(x))
        return functional.cross_entropy(logits[:, :-1].flatten(0, 1).float(), words[:, 1:].flatten())


class Mixed(torch.optim.Optimizer):
    """Plain torch: fused AdamW over master weights in binary32, and gradients summed in that."""

    def __init__(self, groups: list[dict[str, object]], **settings: object) -> None:
        super().__init__(groups, settings)
        self.masters: dict[torch.Tensor, nn.Parameter] = {}
        for group in self.param_groups:
            for each in group["params"]:
                self.masters[each] = nn.Parameter(each.detach().float())
                each.register_post_accumulate_grad_hook(self._add)
        self.real = torch.optim.AdamW(
            [{**group, "params": [self.masters[p] for p in group["params"]]} for group in self.param_groups],
            fused=True,
        )

    def _add(self, parameter: torch.Tensor) -> None:
        master = self.masters[parameter]
        assert parameter.grad is not None
        gradient = parameter.grad.float()
        master.grad = gradient if master.grad is None else master.grad + gradient
        parameter.grad = None

    def step(self, closure: object = None) -> None:  # type: ignore[override]
        for group, real in zip(self.param_groups, self.real.param_groups, strict=True):
            real["lr"] = group["lr"]
        self.real.step()
        for parameter, master in self.masters.items():
            parameter.data.copy_(master.data)

    def zero_grad(self, set_to_none: bool = True) -> None:
        self.real.zero_grad()


@dataclass(frozen=True)
class Case:
    tied: bool = False
    saves: bool = False
    frozen: bool = False
    clip: float | None = None
    pieces: int = 1
    kind: torch.dtype = torch.bfloat16
    iterations: int = 16
    update: str = "step"


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    """Torch's threads wait for each other, which takes long where others compute."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def blocks_of(model: Language) -> list[Block]:
    return [block for block in model.blocks if isinstance(block, Block)]


def built(case: Case) -> Language:
    torch.manual_seed(5)
    model = Language(case.tied, case.saves).to(case.kind)
    if case.frozen:
        model.positions.requires_grad_(False)
        for parameter in blocks_of(model)[1].parameters():
            parameter.requires_grad_(False)
        model.norm.bias.requires_grad_(False)
    return model


def groups(model: nn.Module) -> list[dict[str, object]]:
    trained = [each for each in model.parameters() if each.requires_grad]
    return [
        {"params": [each for each in trained if each.dim() > 1], "weight_decay": 0.1},
        {"params": [each for each in trained if each.dim() == 1], "weight_decay": 0.0},
    ]


def schedule(optimizer: torch.optim.Optimizer, last: int = -1) -> torch.optim.lr_scheduler.LRScheduler:
    return torch.optim.lr_scheduler.StepLR(optimizer, 7, 0.5, last_epoch=last)


def train(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    clip: Callable[[], torch.Tensor] | None,
    case: Case,
    iterations: range,
) -> list[str]:
    """The loop. Return losses, norms and rates."""
    said: list[str] = []
    scheduler = schedule(optimizer, iterations.start - 1)
    for iteration in iterations:
        optimizer.zero_grad()
        words = torch.randint(WORDS, (4, 16), generator=torch.Generator().manual_seed(iteration % 4))
        for piece in words.chunk(case.pieces):
            loss = model(piece) / case.pieces
            loss.backward()
            said.append(float(loss.detach()).hex())
        if clip is not None:
            said.append(float(clip()).hex())
        optimizer.step()
        scheduler.step()
        said.append(str(optimizer.param_groups[0]["lr"]))
        with torch.no_grad():
            said.append(float(model(words)).hex())
    return said


def plain(case: Case) -> tuple[list[str], dict[str, torch.Tensor]]:
    model = built(case)
    optimizer = Mixed(groups(model), lr=0.01)
    masters = [optimizer.masters[each] for each in model.parameters() if each.requires_grad]

    def clip() -> torch.Tensor:
        assert case.clip is not None
        return nn.utils.clip_grad_norm_(masters, case.clip)

    said = train(model, optimizer, clip if case.clip else None, case, range(case.iterations))
    return said, dict(model.state_dict())


def out_of_core(
    case: Case, folder: Path, iterations: range, resume: bool = False
) -> tuple[list[str], dict[str, torch.Tensor]]:
    own = built(case)
    inner = torch.optim.AdamW(groups(own), lr=0.01)
    model, optimizer = initialize(own, inner, [folder], resume=resume, update=case.update)
    try:
        assert optimizer.iteration == iterations.start

        def clip() -> torch.Tensor:
            assert case.clip is not None
            return optimizer.clip_grad_norm_(case.clip)

        said = train(model, optimizer, clip if case.clip else None, case, iterations)
        with optimizer.gathered():
            states = {name: value.clone() for name, value in model.state_dict().items()}
        return said, states
    finally:
        optimizer.close()


@pytest.mark.filterwarnings("error")  # of a schedule that has seen no step
@pytest.mark.parametrize(
    "case",
    [
        Case(iterations=60),
        Case(tied=True),
        Case(saves=True, tied=True),
        Case(frozen=True),
        Case(clip=0.3),
        Case(pieces=4, clip=0.3, saves=True, iterations=8),
        Case(kind=torch.float16),
        Case(update="backward", saves=True, tied=True),
        Case(update="backward", frozen=True),
    ],
    ids=[
        *("plain", "tied", "checkpointed", "frozen", "clipped", "accumulated", "float16"),
        *("checkpointed-within", "frozen-within"),
    ],
)
def test_losses_are_plain_torchs(tmp_path: Path, case: Case) -> None:
    wanted, states = plain(case)
    said, held = out_of_core(case, tmp_path, range(case.iterations))
    assert said == wanted
    assert float.fromhex(said[-1]) < 0.95 * float.fromhex(said[0]) * case.pieces
    assert all(torch.equal(states[name], held[name]) for name in states)


@pytest.mark.parametrize("update", ["step", "backward"])
def test_a_run_goes_on_where_it_was(tmp_path: Path, update: str) -> None:
    case = Case(iterations=10, update=update)
    wanted, _ = plain(case)
    said, _ = out_of_core(case, tmp_path, range(4))
    more, _ = out_of_core(case, tmp_path, range(4, 10), resume=True)
    assert said + more == wanted


def test_a_run_with_a_flipped_bit_goes_on_at_the_iteration_before(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    case = Case(iterations=6)
    wanted, _ = plain(case)
    said, _ = out_of_core(case, tmp_path, range(4))
    assert capfd.readouterr().err == ""
    flip(tmp_path / "states.1", 4321, 6)
    more, _ = out_of_core(case, tmp_path, range(3, 6), resume=True)
    assert said[: 3 * len(said) // 4] + more == wanted
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith(
        f"LuWu: {tmp_path}: opened at iteration 3, which is whole: iteration 4 is not whole: "
    )
    assert f"read {tmp_path / 'states.1'}: damaged between bytes" in line


# ---------------------------------------------------------------- what is held


def started(folder: Path, case: Case | None = None) -> tuple[Language, NodeOptimizer]:
    model = built(case or Case())
    update = case.update if case else "step"
    _, optimizer = initialize(model, torch.optim.AdamW(groups(model), lr=0.01), [folder], update=update)
    return model, optimizer


def here(model: nn.Module) -> set[str]:
    return {name for name, each in model.named_parameters() if not each.isnan().any()}


def test_parameters_are_here_while_their_layer_computes(tmp_path: Path) -> None:
    model, optimizer = started(tmp_path, Case(saves=True))
    seen: list[set[str]] = []
    for block in blocks_of(model):
        block.wide.register_forward_pre_hook(lambda *_: seen.append(here(model)))
        block.wide.weight.register_hook(lambda gradient: seen.append(here(model)))  # type: ignore[no-untyped-call]
    assert here(model) == set()
    model(torch.zeros(2, 16, dtype=torch.long)).backward()
    # the root has the positions, and is called all the time
    for names in seen:
        blocks = {name.split(".")[1] for name in names if name.startswith("blocks")}
        assert len(blocks) == 1
        assert {name for name in names if not name.startswith("blocks")} <= {"positions"}
    assert len(seen) == 3 * BLOCKS  # forward, computed again, backward
    assert here(model) == set()
    assert all(isinstance(each, Remote) for each in model.parameters())
    optimizer.close()


def test_a_model_on_meta_is_never_whole(tmp_path: Path) -> None:
    case = Case(iterations=5)
    values = {name: each.detach() for name, each in built(case).named_parameters()}
    wanted, _ = plain(case)
    with torch.device("meta"):
        empty = Language().bfloat16()
    model, optimizer = initialize(
        empty, torch.optim.AdamW(groups(empty), lr=0.01), [tmp_path], values=values.__getitem__
    )
    assert train(model, optimizer, None, case, range(5)) == wanted
    optimizer.close()


# ---------------------------------------------------------------- refusals


def refused(function: Callable[[], object]) -> str:
    with pytest.raises(LuwuError) as caught:
        function()
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_models_that_cannot_be_cut(tmp_path: Path) -> None:
    def start(model: nn.Module, **settings: object) -> str:
        trained = [each for each in model.parameters() if each.requires_grad] or [nn.Parameter(torch.ones(1))]
        optimizer = torch.optim.AdamW(trained)
        return refused(lambda: initialize(model, optimizer, [tmp_path], **settings))  # type: ignore[arg-type]

    assert "no parameters that are trained" in start(nn.ReLU())
    assert "is in float32: model.bfloat16()" in start(Language())
    shared = Language().bfloat16()
    blocks_of(shared)[1].wide.weight = blocks_of(shared)[0].wide.weight
    assert "blocks.1.wide.weight is shared by layers blocks.0 and blocks.1" in start(shared)
    mixed = Language().bfloat16()
    mixed.norm.half()
    assert "norm.weight is in another format than positions" in start(mixed)
    with torch.device("meta"):
        absent = Language().bfloat16()
    assert "is on device meta" in start(absent)
    model = Language().bfloat16()
    message = refused(lambda: initialize(model, torch.optim.AdamW([model.positions]), [tmp_path]))
    assert "embedding.weight is in no group of the optimizer" in message
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    assert "optimizer SGD: accepted are Adam, AdamW" in refused(lambda: initialize(model, sgd, [tmp_path]))
    assert {path.name for path in tmp_path.iterdir()} <= {"lock"}
    assert all(type(each) is nn.Parameter for each in model.parameters())


def test_what_a_loop_cannot_have(tmp_path: Path) -> None:
    model, optimizer = started(tmp_path)
    words = torch.zeros(2, 16, dtype=torch.long)
    model(words).backward()
    clip = nn.utils.clip_grad_norm_
    assert "clip by model.clip_grad_norm_(max_norm)" in refused(lambda: clip(model.parameters(), 1.0))
    assert "resume=True" in refused(optimizer.state_dict)
    assert "resume=True" in refused(lambda: optimizer.load_state_dict({}))
    assert "initialize() was given" in refused(lambda: optimizer.add_param_group({"params": []}))
    assert "within `with optimizer.gathered()" in refused(model.state_dict)
    optimizer.close()


def test_what_a_loop_cannot_have_whose_layers_are_updated_within_the_backward_pass(tmp_path: Path) -> None:
    """A refusal costs the iteration, and nothing of those before."""
    refused_update = refused(lambda: started(tmp_path, Case(update="early")))
    assert refused_update == "update 'early': accepted are step and backward"
    model, optimizer = started(tmp_path, Case(update="backward"))
    words = torch.zeros(2, 16, dtype=torch.long)

    def backward() -> None:
        model(words).backward()

    backward()
    assert "clipping needs all gradients before the first update" in refused(
        lambda: optimizer.clip_grad_norm_(1.0)
    )
    optimizer.param_groups[1]["lr"] = 0.5
    assert "changed between the first gradients and step(): accepted with update='step'" in refused(
        optimizer.step
    )
    optimizer.zero_grad()
    optimizer.param_groups[1]["lr"] = 0.01
    backward()
    optimizer.step()
    assert "call zero_grad() after each step" in refused(optimizer.step)
    assert optimizer.iteration == 1
    with optimizer.gathered():
        held = {name: value.clone() for name, value in model.state_dict().items()}
    assert "call zero_grad() after each step" in refused(backward)
    optimizer.close()
    (tmp_path / "other").mkdir()
    other, plainly = started(tmp_path / "other")
    other(words).backward()
    plainly.step()
    with plainly.gathered():
        assert all(torch.equal(held[name], value) for name, value in other.state_dict().items())
    plainly.close()


def test_a_second_backward_pass_is_refused_where_the_first_has_updated(tmp_path: Path) -> None:
    model, optimizer = started(tmp_path, Case(update="backward"))
    words = torch.zeros(2, 16, dtype=torch.long)
    model(words).backward()
    message = refused(lambda: model(words).backward())
    assert message == "layer head is updated already: gradients are only added with update='step'"
    optimizer.zero_grad()
    model(words).backward()
    optimizer.step()
    assert optimizer.iteration == 1
    optimizer.close()


def test_a_commit_that_may_be_whole_is_not_written_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder's flush fails after the rename: what is on the disk is the next iteration, maybe."""
    words = torch.zeros(2, 16, dtype=torch.long)
    model, optimizer = started(tmp_path, Case(update="backward"))

    def fail(_: Path) -> None:
        raise OSError(5, "Input/output error")

    model(words).backward()
    monkeypatch.setattr(record, "flush_folder", fail)
    assert "Input/output error" in refused(optimizer.step)
    monkeypatch.undo()
    optimizer.zero_grad()
    assert "a step has failed; resume its store" in refused(lambda: model(words).backward())
    optimizer.close()
    again = built(Case())
    _, resumed = initialize(again, torch.optim.AdamW(groups(again), lr=0.01), [tmp_path], resume=True)
    assert resumed.iteration == 1
    with resumed.gathered():
        assert not any(value.isnan().any() for value in again.state_dict().values())
    resumed.close()


def test_an_update_that_failed_is_told_with_its_cause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, optimizer = started(tmp_path, Case(update="backward"))

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwritev", fail)

    def iterate() -> None:
        model(torch.zeros(2, 16, dtype=torch.long)).backward()
        optimizer.step()

    assert "No space left on device" in refused(iterate)
    optimizer.close()


def test_an_iteration_that_ends_half_way_leaves_the_one_before(tmp_path: Path) -> None:
    """Layers that were updated within its backward pass are as they were, where it is not whole."""
    words = torch.zeros(2, 16, dtype=torch.long)
    model, optimizer = started(tmp_path, Case(update="backward"))
    for _ in range(3):
        optimizer.zero_grad()
        loss = model(words)
        loss.backward()
        if optimizer.iteration < 2:
            optimizer.step()
    optimizer.close()
    again = built(Case())
    inner = torch.optim.AdamW(groups(again), lr=0.01)
    _, resumed = initialize(again, inner, [tmp_path], resume=True)
    assert resumed.iteration == 2
    assert float(again(words).detach()) == float(loss.detach())
    resumed.close()


def test_gradients_that_do_not_come(tmp_path: Path) -> None:
    model, optimizer = started(tmp_path)
    model.blocks[0](torch.zeros(1, 16, WIDTH, dtype=torch.bfloat16))["x"].sum().backward()
    assert "layer model has no gradients" in refused(optimizer.step)
    optimizer.zero_grad()
    optimizer.step()  # without gradients: nothing
    assert optimizer.iteration == 0
    object.__setattr__(blocks_of(model)[0].wide, "forward", lambda x: x.repeat(1, 1, 4))
    model(torch.zeros(2, 16, dtype=torch.long)).backward()
    assert "blocks.0.wide.weight got no gradient: freeze it" in refused(optimizer.step)
    optimizer.close()


def test_parameters_used_outside_of_their_layer(tmp_path: Path) -> None:
    model, optimizer = started(tmp_path)
    block = blocks_of(model)[0]
    loss = block.wide(torch.zeros(1, 16, WIDTH, dtype=torch.bfloat16)).sum()
    assert "used outside of a call of layer blocks.0" in refused(loss.backward)
    optimizer.close()


def test_gradients_last_until_they_are_cleared(tmp_path: Path) -> None:
    """A loop that forgets zero_grad sums them, as torch does; once they are clipped, it is told."""
    model, optimizer = started(tmp_path)
    words = torch.zeros(2, 16, dtype=torch.long)
    for _ in range(2):
        model(words).backward()
        optimizer.step()
    assert optimizer.iteration == 2
    optimizer.zero_grad()
    model(words).backward()
    before = optimizer.clip_grad_norm_(1e9)
    model(words).backward()
    assert optimizer.clip_grad_norm_(1e9) == 2 * before
    optimizer.step()
    assert "call zero_grad() after each step" in refused(lambda: model(words).backward())
    optimizer.close()


def test_the_next_layer_is_asked_for_while_one_computes(tmp_path: Path) -> None:
    """It is from the second iteration on, forward and backward."""
    model, optimizer = started(tmp_path)
    transport = optimizer._worker.transport
    pull, asked = transport.pull, list[int]()
    transport.pull = lambda layer, buffer: (asked.append(layer), pull(layer, buffer))[1]  # type: ignore[method-assign]
    ahead: list[int] = []
    blocks = blocks_of(model)
    for block in blocks[:-1]:
        block.register_forward_pre_hook(lambda *_: ahead.append(asked[-1]))
    for block in blocks[1:]:
        block.wide.weight.register_hook(lambda _: ahead.append(asked[-1]))  # type: ignore[no-untyped-call]
    words = torch.zeros(2, 16, dtype=torch.long)
    numbers = {layer.unit.name: layer.number for layer in optimizer._worker.layers}
    first, second, third = (numbers[f"blocks.{number}"] for number in range(BLOCKS))
    seen = []
    for _ in range(3):
        ahead.clear()
        optimizer.zero_grad()
        model(words).backward()
        optimizer.step()
        seen.append(list(ahead))
    assert seen == [
        [first, second, third, second],
        [second, third, second, first],
        [second, third, second, first],
    ]
    optimizer.close()


def test_what_was_asked_for_before_a_step_is_not_used_after_it(tmp_path: Path) -> None:
    """An iteration that is shorter than the one before asks for a layer that it does not take."""
    pieces = (2, 1, 1, 2, 1)
    case = Case()

    def losses(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[float]:
        said = []
        for iteration, count in enumerate(pieces):
            optimizer.zero_grad()
            words = torch.randint(WORDS, (4, 16), generator=torch.Generator().manual_seed(iteration))
            for piece in words.chunk(count):
                loss = model(piece)
                loss.backward()
                said.append(float(loss.detach()))
            optimizer.step()
        return said

    wanted = built(case)
    own = built(case)
    model, optimizer = initialize(own, torch.optim.AdamW(groups(own), lr=0.01), [tmp_path])
    assert losses(model, optimizer) == losses(wanted, Mixed(groups(wanted), lr=0.01))
    optimizer.close()
