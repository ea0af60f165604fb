"""Torch's tests that pass by gloo and not by `inc`, each with a reason."""

from __future__ import annotations

# tests that branch on the names gloo, mpi and nccl, and do nothing for another: for them inc has gloo's name
CALLED_GLOO = frozenset(
    {
        "test_accumulate_gradients_no_sync",
        "test_accumulate_gradients_no_sync_allreduce_hook",
        "test_accumulate_gradients_no_sync_allreduce_with_then_hook",
        "test_accumulate_gradients_no_sync_grad_is_view",
    }
)

_NAME = (
    "torch.distributed.monitored_barrier refuses every backend but gloo by its name; the group's own works"
)

EXCEPTIONS: dict[str, str] = {
    "test_monitored_barrier_failure_order": _NAME,
    "test_monitored_barrier_gloo": _NAME,
    "test_monitored_barrier_gloo_subgroup": _NAME,
    "test_monitored_barrier_wait_all_ranks": _NAME,
    "test_ddp_logging_data_cpu": "DDP's log has torch's one name of all plugins, custom, for the backend",
}

_LISTS = (
    "gloo adds the tensors of one call's list up, which no function of torch.distributed asks for, and NCCL "
    "refuses; inc sums each by itself"
)

_UNEVEN = "inc gathers and exchanges parts of unequal sizes, as NCCL does, which gloo refuses"
_WORDS = "the error of a sum whose time is over says who is behind, and not `Timed out waiting 1ms`"
_CLASSES = ("ProcessGroupGlooTest", "ProcessGroupGlooLazyInitTest", "ProcessGroupGlooFRTest")

# tests of PyTorch's test modules (tests/torch/sources.py), by `suite/module::Class.test`
SUITE_EXCEPTIONS: dict[str, str] = {
    f"gloo/test_c10d_gloo::{of}.{test}": why
    for of in _CLASSES
    for test, why in (
        ("test_allreduce_basics", _LISTS),
        ("test_allreduce_checks", _LISTS),
        ("test_allgather_checks", _UNEVEN),
        ("test_alltoall_checks", _UNEVEN),
        ("test_allreduce_op_timeout", _WORDS),
        ("test_allreduce_overall_timeout", _WORDS),
        ("test_gloo_set_pg_timeout_api", _WORDS),
    )
} | {
    "gloo/test_c10d_gloo::GlooProcessGroupWithDispatchedCollectivesTests.test_all_to_all_single": (
        "inc exchanges tensors that are not contiguous, which gloo refuses"
    ),
    "checkpoint/test_state_dict::TestStateDict.test_ddp": (
        "it compares Adam's steps with those of the model alone: a gradient too small for its block's scale "
        "is 0 here, and makes no step, where Adam makes one as large as any there"
    ),
}
