"""The compiled backend against torch's own headers: no method of c10d::Backend or c10d::Work is left to the
base class by oversight, where it would refuse, or be entered by a thread that holds the interpreter's lock.
"""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from workloads.native.build import SOURCE

C10D = "include/torch/csrc/distributed/c10d"

# Methods of c10d::Backend that `inc` leaves as the base class has them, with the reason.
LEFT = {
    "supportsCoalescing": "false, as gloo: torch then begins sends and receipts one by one",
    "supportsTimeEstimation": "false, as gloo",
    "supportsShrinking": "false, as gloo",
    "supportsTensorAlloc": "false, as gloo",
    "eagerConnectSingleDevice": "nothing to do without a device",
    "setGroupUid": "keeps a name, which gloo does not need",
    "shrink": "refused, naming inc",
    "registerOnCompletionHook": "NCCL's alone",
    "waitForPendingWorks": "NCCL's alone",
    "getError": "refused, naming inc",
    "getMemAllocator": "refused, naming inc",
    "allocateTensor": "refused, naming inc",
    "suspend": "refused, naming inc",
    "resume": "refused, naming inc",
    "getMemoryStats": "refused, naming inc",
    "addEphemeralTimeout": "nothing, as torch has it: a call's own timeout is its options'",
    "clone": "refused, naming inc",
    "getBoundDeviceId": "keeps a device, of which a CPU has none",
    "setBoundDeviceId": "keeps a device, of which a CPU has none",
    "supportsReconfigure": "false: who takes part is set when a group is made",
    "reconfigure": "refused, naming inc",
    "get_reconfigure_handle": "refused, naming inc",
    "supportsWindow": "false, as gloo",
    "new_window": "refused, naming inc",
    "registerAbortHook": "refused, naming inc",
    "unregisterAbortHook": "refused, naming inc",
    "gather_single": "refused, naming inc, as gloo",
    "gather_into_tensor": "refused, naming inc, as gloo",
}
GLOOS = {"clone", "getError", "reconfigure", "get_reconfigure_handle", "supportsReconfigure"}  # since 2.14
# Names that torch 2.14 gave to older methods, and the older one that the base class has each ask.
RENAMED = {
    "all_gather_single": "_allgather_base",
    "all_gather_single_coalesced": "allgather_into_tensor_coalesced",
    "all_to_all_single": "alltoall_base",
    "reduce_scatter_single": "_reduce_scatter_base",
    "reduce_scatter_single_coalesced": "reduce_scatter_tensor_coalesced",
}
# Of c10d::Work, by class.
LEFT_OF_WORKS = {
    "SumWork": {
        "isSuccess": "`finish` says",
        "exception": "`finish` says",
        "sourceRank": "of receiving alone",
        "synchronize": "nothing to do on a CPU",
        "blockCurrentStream": "nothing to do on a CPU",
        "abort": "refused: the others still sum",
        "getFutureResult": "NCCL's alone",
        "getDuration": "NCCL's alone",
        "getSequencenumber": "refused: sums are numbered by the endpoint",
        "getTimeout": "none is known: the line has it",
    },
    "SeenWork": {"getTimeout": "none is known: gloo's work has it"},
    "AfterWork": {"getTimeout": "none is known: gloo's work has it"},
    "TogetherWork": {
        "sourceRank": "of receiving alone",
        "synchronize": "nothing to do on a CPU",
        "blockCurrentStream": "nothing to do on a CPU",
        "abort": "refused, as by each of its works",
        "getFutureResult": "NCCL's alone",
        "getDuration": "NCCL's alone",
        "getSequencenumber": "refused: it is no collective",
        "getTimeout": "none is known: it is no collective",
    },
}


def header(name: str) -> str:
    torch = importlib.util.find_spec("torch")
    assert torch is not None
    assert torch.origin is not None
    text = (Path(torch.origin).parent / C10D / name).read_text()
    return re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL)


def virtual(text: str, of: str) -> set[str]:
    """The virtual methods that a class declares."""
    (body,) = re.findall(rf"\nclass TORCH_API {of} .*?\n}};", text, re.DOTALL)
    return set(re.findall(r"\bvirtual\s[^({};]*?\b(\w+)\(", body))


def overridden(text: str, by: str) -> set[str]:
    """The methods that a class overrides."""
    (body,) = re.findall(rf"\nclass (?:TORCH_API )?{by}\b[^;{{]*\{{.*?\n}};", text, re.DOTALL)
    names = re.findall(r"[\s*&](\w+)\s*\([^{};]*?\)\s*(?:const\s+)?override", body)
    return {name for name in names if not name.startswith(("~", by, "Async"))}


def backend_source() -> str:
    files = (SOURCE, SOURCE.with_name("works.hpp"), SOURCE.with_name("after.hpp"))
    text = "".join(file.read_text() for file in files)
    return re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)


def test_every_method_of_a_backend_is_forwarded_or_left_for_a_reason() -> None:
    ours, all_of_them = overridden(backend_source(), "IncBackend"), virtual(header("Backend.hpp"), "Backend")
    assert len(all_of_them) > 40
    assert set(RENAMED.values()) <= ours
    assert all_of_them - ours - set(LEFT) - set(RENAMED) == set(), "neither in backend.cpp nor in LEFT"
    assert ours & set(LEFT) == set(), "both in backend.cpp and in LEFT"
    assert ours <= all_of_them


def test_what_gloo_does_is_never_left() -> None:
    gloo = overridden(header("ProcessGroupGloo.hpp"), "ProcessGroupGloo")
    assert {"allreduce", "allreduce_coalesced", "monitoredBarrier"} <= gloo
    assert gloo & set(LEFT) <= GLOOS


@pytest.mark.parametrize("work", list(LEFT_OF_WORKS))
def test_every_method_of_a_work_is_forwarded_or_left_for_a_reason(work: str) -> None:
    ours, all_of_them = overridden(backend_source(), work), virtual(header("Work.hpp"), "Work")
    assert {"wait", "getFuture", "sourceRank"} <= all_of_them
    assert all_of_them - ours - set(LEFT_OF_WORKS[work]) == set()
    assert ours & set(LEFT_OF_WORKS[work]) == set()


def test_no_call_of_gloos_is_made_with_the_interpreters_lock() -> None:
    """Each method that enters gloo to wait or to send lets go of the lock before, or goes through `seen`."""
    source = backend_source()
    (body,) = re.findall(r"\nclass IncBackend\b.*?\n};", source, re.DOTALL)
    (seen,) = re.findall(r"WorkPtr seen\(.*?\n\t}", body, re.DOTALL)
    assert "Unlocked unlocked;" in seen
    quick = r"get\w+|setTimeout|enable\w+|supports\w+"
    for method in re.split(r"\n\n\t(?!\t)", body):
        calls = re.findall(r"gloo_(?:->|\.)(\w+)\(", method)
        slow = [name for name in calls if not re.fullmatch(quick, name)]
        assert not slow or "Unlocked unlocked;" in method or "return seen(" in method, method
