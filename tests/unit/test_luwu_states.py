"""LuWu's states from and to torch's state_dicts: training goes on in either to the last bit."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.unit.test_luwu_training import Case, Language, Mixed, built, groups, plain, refused, started, train
from workloads.luwu.training import initialize


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def equal(ours: Any, theirs: Any) -> bool:
    """Return whether they are equal to the last bit."""
    if isinstance(ours, torch.Tensor):
        return ours.dtype == theirs.dtype and torch.equal(ours, theirs)
    if isinstance(ours, Mapping):
        return ours.keys() == theirs.keys() and all(equal(ours[key], theirs[key]) for key in ours)
    if isinstance(ours, list | tuple):
        return len(ours) == len(theirs) and all(map(equal, ours, theirs))
    return bool(ours == theirs)


class Run:
    """Plain torch over master weights in binary32, from its beginning or from state_dicts."""

    def __init__(self, case: Case, dicts: tuple[Any, Any] | None = None) -> None:
        self.case, self.model = case, built(case)
        self.optimizer = Mixed(groups(self.model), lr=0.01)
        if dicts is None:
            return
        weights, states = dicts
        self.optimizer.real.load_state_dict(states)
        for group, saved in zip(self.optimizer.param_groups, states["param_groups"], strict=True):
            group.update(lr=saved["lr"], initial_lr=saved["initial_lr"])
        with torch.no_grad():
            for name, parameter in self.model.named_parameters():
                if parameter.requires_grad:
                    self.optimizer.masters[parameter].copy_(weights[name])
                parameter.copy_(weights[name])

    def train(self, iterations: range) -> list[str]:
        masters = [self.optimizer.masters[each] for each in self.model.parameters() if each.requires_grad]
        limit = self.case.clip

        def clip() -> torch.Tensor:
            assert limit is not None
            return nn.utils.clip_grad_norm_(masters, limit)

        return train(self.model, self.optimizer, clip if limit else None, self.case, iterations)

    def dicts(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return them with the master weights as the model's."""
        weights = {
            name: self.optimizer.masters.get(value, value).detach().clone()
            for name, value in self.model.state_dict(keep_vars=True).items()
        }
        states = copy.deepcopy(self.optimizer.real.state_dict())
        for group, saved in zip(self.optimizer.param_groups, states["param_groups"], strict=True):
            saved.update(lr=group["lr"], initial_lr=group["initial_lr"])
        return weights, states


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "case",
    [
        Case(),
        Case(tied=True),
        Case(frozen=True),
        Case(clip=0.3),
        Case(kind=torch.float16),
        Case(update="backward"),
    ],
    ids=["plain", "tied", "frozen", "clipped", "float16", "within"],
)
def test_torch_and_luwu_go_on_from_each_other_to_the_last_bit(tmp_path: Path, case: Case) -> None:
    """Five iterations in torch, five in LuWu, five in torch."""
    whole = Run(case)
    wanted = [whole.train(range(start, start + 5)) for start in (0, 5, 10)]
    before = Run(case)
    assert before.train(range(5)) == wanted[0]
    dicts = before.dicts()
    own = built(case)
    inner = torch.optim.AdamW(groups(own), lr=123.0)  # the states have theirs
    model, optimizer = initialize(own, inner, [tmp_path], states=copy.deepcopy(dicts), update=case.update)
    assert optimizer.iteration == 5
    assert equal(optimizer.export()[0], dicts[0])
    assert equal(optimizer.export()[1]["state"], dicts[1]["state"])

    def clip() -> torch.Tensor:
        assert case.clip is not None
        return optimizer.clip_grad_norm_(case.clip)

    assert train(model, optimizer, clip if case.clip else None, case, range(5, 10)) == wanted[1]
    exported = optimizer.export()
    optimizer.close()
    after = Run(case, exported)
    assert after.train(range(10, 15)) == wanted[2]
    assert equal(after.dicts(), whole.dicts())


def test_an_import_resumes_at_its_step(tmp_path: Path) -> None:
    case = Case(iterations=9)
    wanted, _ = plain(case)
    before = Run(case)
    said = before.train(range(4))
    options: list[dict[str, Any]] = [{"states": before.dicts()}, {"resume": True}]
    for start, option in zip((4, 6), options, strict=True):
        own = built(case)
        model, optimizer = initialize(own, torch.optim.AdamW(groups(own), lr=0.01), [tmp_path], **option)
        assert optimizer.iteration == start
        said += train(model, optimizer, None, case, range(start, start + 2 if start == 4 else 9))
        optimizer.close()
    assert said == wanted


def test_exported_dicts_load_in_plain_torch(tmp_path: Path) -> None:
    """Also into a model on meta; before the first step the optimizer has no states."""
    model, optimizer = started(tmp_path)
    weights, states = optimizer.export()
    assert states["state"] == {}
    words = torch.zeros(2, 16, dtype=torch.long)
    model(words).backward()
    optimizer.step()
    weights, states = optimizer.export()
    with optimizer.gathered():
        rounded = {name: value.clone() for name, value in model.state_dict().items()}
    assert refused(model.state_dict)  # the parameters are not here again
    optimizer.close()
    other = Language()
    adamw = torch.optim.AdamW(groups(other), lr=0.5)
    other.load_state_dict(weights)
    adamw.load_state_dict(states)
    assert adamw.param_groups[0]["lr"] == 0.01
    assert all(value.dtype == torch.float32 for value in weights.values())
    assert all(torch.equal(value.bfloat16(), rounded[name]) for name, value in weights.items())
    assert {float(state["step"]) for state in adamw.state.values()} == {1.0}
    for value in (*weights.values(), *(each["exp_avg"] for each in states["state"].values())):
        assert value.untyped_storage().nbytes() == value.numel() * 4  # nothing beside it is saved
    with torch.device("meta"):
        empty = Language().bfloat16()
    (tmp_path / "meta").mkdir()
    _, again = initialize(
        empty, torch.optim.AdamW(groups(empty), lr=0.5), [tmp_path / "meta"], states=(weights, states)
    )
    assert again.iteration == 1
    assert equal(again.export(), (weights, states))
    again.close()


def test_dicts_of_another_model_or_optimizer(tmp_path: Path) -> None:
    case = Case(frozen=True)
    run = Run(case)
    run.train(range(2))

    def start(change: Callable[[dict[str, Any], dict[str, Any]], object], **options: Any) -> str:
        weights, states = copy.deepcopy(run.dicts())
        change(weights, states)
        model = built(case)
        optimizer = options.pop("make", torch.optim.AdamW)(groups(model), lr=0.7)
        message = refused(
            lambda: initialize(model, optimizer, [tmp_path], states=(weights, states), **options)
        )
        assert {path.name for path in tmp_path.iterdir()} <= {"lock"}
        if not options and message.startswith("import of states: "):
            assert optimizer.param_groups[0]["lr"] == 0.7
            assert equal(model.state_dict(), built(case).state_dict())
        return message

    assert "embedding.weight is not in the states" in start(lambda w, s: w.pop("embedding.weight"))
    assert "positions is not in the states" in start(lambda w, s: w.pop("positions"))
    assert "other is not in the model" in start(lambda w, s: w.update(other=torch.zeros(1)))
    assert "tensor positions has shape (3,), the model's is (1, 16, 32)" in start(
        lambda w, s: w.update(positions=torch.zeros(3))
    )
    assert "parameters, the optimizer's have" in start(lambda w, s: s["param_groups"][0]["params"].pop())
    assert "has none, " in start(lambda w, s: s["state"].pop(2))
    assert "is of step 5, " in start(lambda w, s: s["state"][2].update(step=torch.tensor(5.0)))
    assert "accepted is amsgrad=False" in start(lambda w, s: s["state"][1].update(max_exp_avg_sq=0))
    assert "AdamW with amsgrad=True" in start(lambda w, s: s["param_groups"][1].update(amsgrad=True))
    assert "exp_avg of tensor" in start(lambda w, s: s["state"][1].update(exp_avg=torch.zeros(2)))
    assert "first moments of tensor" in start(lambda w, s: s["state"][1]["exp_avg"].fill_(float("nan")))
    assert "first values of tensor" in start(lambda w, s: w["head.weight"].fill_(float("inf")))
    assert "Adam's states are not AdamW's" in start(lambda w, s: None, make=torch.optim.Adam)
    assert "accepted is one" in start(lambda w, s: None, resume=True)
