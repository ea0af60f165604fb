"""DDP communication hooks that recover what rounding leaves out of a sum of gradients.

A switch adds integers, so that a small value beside a large one in its fragment is rounded (docs/training.md,
"Numbers with inc"). `error_feedback_hook` adds what was left out of a gradient to the next one. `fine_hook`
sums it at once, as a second vector with scales of its own, which costs as many bytes again.

    model.register_comm_hook(ErrorFeedback(model), error_feedback_hook)
    model.register_comm_hook(FineSums(), fine_hook)

`testbed run --error-feedback` and `--fine-sums` do that for each DDP model of a script. No `from __future__
import annotations` here: DDP compares a hook's annotations with the types themselves.
"""

import functools
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._C._distributed_c10d import GradBucket
from torch.futures import Future


def _group() -> Any:
    from workloads.hook import _group_for_sums

    return _group_for_sums()


def _begin(vector: Tensor, lost: Tensor) -> Any:
    """Start the sum of a binary32 vector, and return the work. What rounding leaves out is written to `lost`,
    which must hold zeros. Where no switch adds the vector, nothing is rounded, and `lost` stays zero.
    """
    from workloads.sums import native

    group = _group()
    with native.Lost(lost):
        return group.allreduce([vector])


def _averaged(bucket: GradBucket) -> Tensor:
    """Return a bucket's gradients in binary32, divided by the number of workers: the bucket's own memory
    where it has that type.
    """
    buffer = bucket.buffer().mul_(1 / dist.get_world_size())  # not div_: DDP multiplies, too
    return buffer if buffer.dtype == torch.float32 else buffer.to(torch.float32)


def _put(bucket: GradBucket, vector: Tensor, done: Future[Any]) -> Tensor:
    """Copy a sum into its bucket's memory, and return that memory. Raises the sum's error."""
    done.value()
    buffer = bucket.buffer()
    return buffer if buffer.data_ptr() == vector.data_ptr() else buffer.copy_(vector)


def _rounds() -> bool:
    from workloads import backend

    return backend.rounds()


class ErrorFeedback:
    """The part of each parameter's last gradient that rounding left out, on this worker, in binary32.

    It is part of the state of a training. A run resumed from a checkpoint equals the uninterrupted one to the
    bit only if the checkpoint has each worker's own `state_dict()`.
    """

    def __init__(self, model: nn.Module) -> None:
        named = [(name, value) for name, value in model.named_parameters() if value.requires_grad]
        self._names = {id(value): name for name, value in named}
        self._lost = {name: torch.zeros(value.numel()) for name, value in named}

    def state_dict(self) -> dict[str, Tensor]:
        """Return a copy of the state, by the parameters' names."""
        return {name: value.clone() for name, value in self._lost.items()}

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restore the state. Raises KeyError for a model with other parameters."""
        if state.keys() != self._lost.keys():
            raise KeyError(f"error feedback of other parameters: {', '.join(sorted(state)[:4])}")
        for name, value in state.items():
            self._lost[name].copy_(value.view(-1))

    def take(self, bucket: GradBucket) -> Tensor:
        """Return, as one vector, what was left out of the last gradients of a bucket's parameters."""
        return torch.cat([self._lost[name] for name in self._of(bucket)])

    def keep(self, bucket: GradBucket, lost: Tensor) -> None:
        """Store what was left out of a bucket's gradients this time."""
        names = self._of(bucket)
        at = 0
        for name in names:
            kept = self._lost[name]
            kept.copy_(lost[at : at + kept.numel()])
            at += kept.numel()

    def _of(self, bucket: GradBucket) -> list[str]:
        return [self._names[id(parameter)] for parameter in bucket.parameters()]


def error_feedback_hook(state: ErrorFeedback, bucket: GradBucket) -> Future[Tensor]:
    """Average a bucket of gradients over the workers, after adding what was left out of the last
    gradients.
    """
    vector = _averaged(bucket)
    vector.add_(state.take(bucket))
    lost = torch.zeros_like(vector)
    work = _begin(vector, lost)

    def averaged(done: Future[Any]) -> Tensor:
        state.keep(bucket, lost)
        return _put(bucket, vector, done)

    average: Future[Tensor] = work.get_future().then(averaged)
    return average


@dataclass
class _Part:
    """A bucket whose first vector is under way, and what rounding leaves out of that."""

    bucket: GradBucket
    vector: Tensor
    lost: Tensor
    work: Any
    average: Any  # a future of a tensor; torch's type lacks `set_exception`


@dataclass
class FineSums:
    """The bucket of this backward pass whose second vector is still to be summed.

    All workers must ask for sums in one order, independent of when results arrive. So a bucket's second
    vector is asked for after the next bucket's first one, and the last bucket's when the pass ends.
    """

    _waiting: list[_Part] = field(default_factory=list)

    def add(self, part: _Part) -> None:
        """Register a bucket whose first vector is under way; ask for the second vector of the bucket before
        it.
        """
        if self._waiting:
            self.settle()
        else:
            torch.autograd.Variable._execution_engine.queue_callback(self.settle)
        self._waiting.append(part)

    def settle(self) -> None:
        """Wait for the first vector of the waiting bucket, and ask for its second one."""
        part = self._waiting.pop(0)
        try:
            part.work.wait()
        except Exception as error:  # DDP raises it where it waits for the bucket
            part.average.set_exception(error)
            return
        rest = _group().allreduce([part.lost])

        def added(done: Future[Any]) -> None:
            try:
                whole = _put(part.bucket, part.vector.add_(part.lost), done)
            except Exception as error:
                part.average.set_exception(error)
            else:
                part.average.set_result(whole)

        rest.get_future().add_done_callback(added)


def fine_hook(state: FineSums, bucket: GradBucket) -> Future[Tensor]:
    """Average a bucket of gradients over the workers, and add what rounding leaves out as a second sum."""
    vector, group = _averaged(bucket), _group()
    lost = torch.zeros_like(vector)
    if not _rounds():  # a server or a ring adds binary32
        average: Future[Tensor] = (
            group.allreduce([vector]).get_future().then(lambda done: _put(bucket, vector, done))
        )
        return average
    part = _Part(bucket, vector, lost, _begin(vector, lost), Future())
    state.add(part)
    both: Future[Tensor] = part.average
    return both


def install(is_fine: bool) -> None:
    """Register a hook with each DDP model of this worker's script, as the job's options ask: fine sums, or
    error feedback.
    """
    made: Any = nn.parallel.DistributedDataParallel.__init__

    @functools.wraps(made)
    def with_hook(self: Any, *arguments: Any, **options: Any) -> None:
        made(self, *arguments, **options)
        handle: list[Any] = []
        handle.append(
            self.register_forward_pre_hook(lambda module, _inputs: _register(module, is_fine, handle))
        )

    ddp: Any = nn.parallel.DistributedDataParallel
    ddp.__init__ = with_hook


def _register(module: Any, is_fine: bool, handle: list[Any]) -> None:
    """Register a model's hook at its first forward pass: until then the script may register a hook of its
    own, which stays.
    """
    handle.pop().remove()
    if module._comm_hooks:
        option = "--fine-sums" if is_fine else "--error-feedback"
        print(f"inc: {option}: the script has a hook of its own, which stays", file=sys.stderr, flush=True)
    elif is_fine:
        module.register_comm_hook(FineSums(), fine_hook)
    else:
        module.register_comm_hook(ErrorFeedback(module.module), error_feedback_hook)
