"""LuWu commits no NaN and no infinity, and scales float16's gradients as torch does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from tests.unit.luwu_world import SHAPES, Network, Reference, World, adamw, same, small
from tests.unit.test_luwu_training import WORDS, Case, Mixed, built, groups, refused, started
from workloads.luwu.errors import NotFiniteError
from workloads.luwu.layout import Layer, Tensor
from workloads.luwu.rule import check_finite, views
from workloads.luwu.scaler import GradScaler
from workloads.luwu.training import initialize

STRANGE = (float("nan"), float("inf"), -float("inf"))
KINDS = (torch.float32, torch.bfloat16, torch.float16)


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


# ---------------------------------------------------------------- the rule


@given(st.integers(1, 3000), st.sampled_from(KINDS), st.sampled_from(STRANGE), st.data())
def test_a_strange_value_is_seen_wherever_it_is(
    count: int, kind: torch.dtype, strange: float, data: st.DataObject
) -> None:
    layer = Layer("layer", (Tensor("first", (1,)), Tensor("second", (count,))))
    largest = torch.finfo(kind).max
    second = (torch.rand(count) * 2 - 1).to(kind) * largest
    check_finite("gradients", layer, [torch.zeros(1, dtype=kind), second])
    second[data.draw(st.integers(0, count - 1))] = strange
    with pytest.raises(NotFiniteError, match=r"^gradients of tensor second have NaN or infinity$"):
        check_finite("gradients", layer, [torch.zeros(1, dtype=kind), second])


# ---------------------------------------------------------------- the node


class Spoiled(Network):
    """Workers whose gradients of a layer have a strange value in one iteration."""

    def __init__(self, iteration: int, layer: int, value: float) -> None:
        super().__init__(small(shapes=SHAPES[:3]))
        self._place, self._value = (iteration, layer), value

    def _fill(self, iteration: int, number: int, gradients: memoryview) -> None:
        super()._fill(iteration, number, gradients)
        if (iteration, number) == self._place:
            views(self._model.layers[number], gradients, torch.float32)[-1].view(-1)[-1] = self._value


@pytest.mark.parametrize("clip", [None, 0.5], ids=["unclipped", "clipped"])
@pytest.mark.parametrize("value", [*STRANGE, 1e30])
def test_a_node_commits_nothing_that_is_not_finite(tmp_path: Path, clip: float | None, value: float) -> None:
    """The square of 1e30 is none in binary32; where it is clipped, its norm is none."""
    model = small(shapes=SHAPES[:3])
    reference = Reference(model, adamw, None, clip)
    with World([tmp_path], model=model, clip=clip) as world:
        world.node._network = Spoiled(2, 1, value)
        world.node.iterate()
        if value != 1e30 or clip is None:
            part = "updated moments" if value == 1e30 else "gradients"
            with pytest.raises(NotFiniteError, match=f"^{part} of tensor block1.3 have NaN or infinity$"):
                world.node.iterate()
    reference.iterate()
    with World([tmp_path], model=model, clip=clip, resume=True) as world:
        assert (world.node.iteration, world.store.notice) == (1, "")
        assert same(world.states(), reference.states())
        reference.iterate()
        assert world.node.iterate() == 2
        assert same(world.states(), reference.states())


# ---------------------------------------------------------------- a loop with a node in its process


@pytest.mark.parametrize("update", ["step", "backward"])
@pytest.mark.parametrize("value", [*STRANGE, 1e30])
def test_a_step_commits_nothing_that_is_not_finite(tmp_path: Path, update: str, value: float) -> None:
    """It costs its iteration alone: the run goes on after zero_grad(), or from the disks."""
    model, optimizer = started(tmp_path, Case(update=update))
    other, plainly = started(_made(tmp_path / "other"), Case(update=update))
    strange = [value]

    def spoil(_: nn.Module, gradients: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
        return tuple(each.fill_(strange[0]) if strange else each for each in gradients)

    model.head.register_full_backward_pre_hook(spoil)
    words = torch.zeros(2, 16, dtype=torch.long)
    model(words).backward()
    message = refused(optimizer.step)
    assert message.startswith("iteration 1 is not committed: ")
    assert message.endswith(" have NaN or infinity; zero_grad() begins it again")
    assert optimizer.iteration == 0
    if update == "step":
        assert refused(optimizer.step) == message  # as long as the gradients are there
    strange.clear()
    for _ in range(2):
        for net, handle in ((model, optimizer), (other, plainly)):
            handle.zero_grad()
            net(words).backward()
            handle.step()
    assert optimizer.iteration == 2
    strange.append(value)
    optimizer.zero_grad()
    model(words).backward()
    refused(optimizer.step)
    optimizer.close()
    again = built(Case())
    _, resumed = initialize(again, torch.optim.AdamW(groups(again), lr=0.01), [tmp_path], resume=True)
    assert resumed.iteration == 2
    with resumed.gathered(), plainly.gathered():
        assert all(torch.equal(value, other.state_dict()[name]) for name, value in again.state_dict().items())
    resumed.close()
    plainly.close()


def test_a_sum_of_gradients_that_overflows(tmp_path: Path) -> None:
    model, optimizer = started(tmp_path)
    words = torch.zeros(2, 16, dtype=torch.long)
    for _ in range(2):
        loss = model(words) * 1e-30
        model.head.weight.register_hook(lambda gradient: torch.full_like(gradient, 3e38))  # type: ignore[no-untyped-call]
        loss.backward()
    assert "gradients of tensor head.weight have NaN or infinity" in refused(optimizer.step)
    assert optimizer.clip_grad_norm_(1.0).isnan()
    optimizer.close()


@pytest.mark.parametrize("value", [*STRANGE, 1e30])
def test_first_values_that_are_not_finite(tmp_path: Path, value: float) -> None:
    """Also those that the parameters' format has no number for."""
    model = built(Case(kind=torch.float16))
    with torch.device("meta"):
        empty = built(Case(kind=torch.float16))
    values = {name: each.detach().float() for name, each in model.named_parameters()}
    values["norm.bias"][3] = value
    message = refused(
        lambda: initialize(empty, torch.optim.AdamW(groups(empty)), [tmp_path], values=values.__getitem__)
    )
    assert message == "first values of tensor norm.bias have NaN or infinity"
    assert [path.name for path in tmp_path.iterdir()] == ["lock"]


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


# ---------------------------------------------------------------- GradScaler


def scaled(
    model: nn.Module,
    scaler: torch.amp.GradScaler,
    optimizer: torch.optim.Optimizer,
    step: Callable[[], object],
    clip: Callable[[], torch.Tensor] | None,
    clear: Callable[[], None],
) -> list[object]:
    """The loop of torch's documentation. Return losses, norms, scales and the schedule's rates."""
    said: list[object] = []
    for iteration in range(20):
        clear()
        words = torch.randint(WORDS, (4, 16), generator=torch.Generator().manual_seed(iteration % 4))
        loss = model(words)
        scaler.scale(loss).backward()
        said.append(float(loss.detach()).hex())
        if clip is not None:
            scaler.unscale_(optimizer)
            norm = float(clip())
            said.append(norm.hex() if torch.tensor(norm).isfinite() else "none")
        step()
        scaler.update()
        said.append(scaler.get_scale())
    return said


@pytest.mark.parametrize("clip", [None, 0.3], ids=["unclipped", "clipped"])
@pytest.mark.parametrize("first", [2.0**24, 2.0**20 * 1.1], ids=["power", "none"])
def test_a_loop_with_a_scaler_is_torchs_to_the_last_bit(
    tmp_path: Path, clip: float | None, first: float
) -> None:
    """Scales overflow at first, and again whenever they have grown."""
    case = Case(kind=torch.float16)
    settings = {"init_scale": first, "growth_factor": 2.0**7, "backoff_factor": 0.25, "growth_interval": 3}
    wanted = built(case)
    mixed = Mixed(groups(wanted), lr=0.01)
    masters = [mixed.masters[each] for each in wanted.parameters()]
    theirs = torch.amp.GradScaler("cpu", **settings)  # type: ignore[arg-type]

    def step() -> None:
        if clip is None:
            theirs.unscale_(mixed.real)
        theirs.step(mixed.real)
        for parameter, master in mixed.masters.items():
            parameter.data.copy_(master.data)

    def cut() -> torch.Tensor:
        assert clip is not None
        return nn.utils.clip_grad_norm_(masters, clip)

    expected = scaled(wanted, theirs, mixed.real, step, cut if clip else None, mixed.zero_grad)
    own = built(case)
    model, optimizer = initialize(own, torch.optim.AdamW(groups(own), lr=0.01), [tmp_path])
    ours = GradScaler(**settings)  # type: ignore[arg-type]

    def cut_ours() -> torch.Tensor:
        assert clip is not None
        return optimizer.clip_grad_norm_(clip)

    said = scaled(
        model, ours, optimizer, lambda: ours.step(optimizer), cut_ours if clip else None, optimizer.zero_grad
    )
    assert said == expected
    assert ours.state_dict() == theirs.state_dict()
    assert 5 < optimizer.iteration < 18
    with optimizer.gathered():
        held = model.state_dict()
        assert all(torch.equal(value, held[name]) for name, value in wanted.state_dict().items())
    optimizer.close()


def test_a_scaler_that_is_disabled_does_nothing(tmp_path: Path) -> None:
    case = Case(iterations=4)
    model, optimizer = started(tmp_path)
    scaler = GradScaler(enabled=False)
    for iteration in range(4):
        optimizer.zero_grad()
        words = torch.randint(WORDS, (4, 16), generator=torch.Generator().manual_seed(iteration))
        scaler.scale(model(words)).backward()
        scaler.unscale_(optimizer)
        scaler.step(optimizer)
        scaler.update()
    assert optimizer.iteration == case.iterations
    optimizer.close()


def test_scalers_that_cannot_work(tmp_path: Path) -> None:
    words = torch.zeros(2, 16, dtype=torch.long)
    model, optimizer = started(tmp_path)
    theirs = torch.amp.GradScaler("cpu")
    theirs.scale(model(words)).backward()
    assert "scale by workloads.luwu.scaler.GradScaler" in refused(lambda: theirs.step(optimizer))
    ours = GradScaler()
    ours.scale(torch.zeros(()))
    assert "step() comes before it" in refused(ours.update)
    other = torch.optim.AdamW([nn.Parameter(torch.zeros(1))])
    assert "GradScaler of AdamW: accepted is the optimizer of initialize()" in refused(
        lambda: ours.step(other)
    )
    assert "accepted is the optimizer alone" in refused(lambda: ours.step(optimizer, lambda: None))
    ours.unscale_(optimizer)
    assert "call update() after each step()" in refused(lambda: ours.unscale_(optimizer))
    optimizer.close()
    _, within = started(_made(tmp_path / "within"), Case(update="backward"))
    message = refused(lambda: GradScaler().step(within))
    assert message == "scaling needs all gradients before the first update: accepted with update='step'"
    within.close()
