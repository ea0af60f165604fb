"""The settings of a job's processes: no field of any type is lost on its way to them, and a worker reads them
without msgspec.
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as trials
from hypothesis import strategies as st

from testbed.jobs.option_table import OPTIONS
from testbed.systems.job_options import JobOptions
from testbed.wire import forks, group_messages, node_settings, settings
from testbed.wire.settings import EndpointSettings, WorkerOptions, read, written
from tests.limits import CALL_S
from tests.unit.made_settings import ENDPOINT
from tests.unit.test_messages import fields_of, some

KINDS = {
    name: kind
    for module in (settings, group_messages, node_settings, forks)
    for name, kind in vars(module).items()
    if dataclasses.is_dataclass(kind) and isinstance(kind, type) and kind.__module__ == module.__name__
}


def test_there_are_settings() -> None:
    assert {
        "WorkerSettings",
        "EndpointSettings",
        "GateSettings",
        "GroupAnswer",
        "NodeSettings",
    } <= KINDS.keys()


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@given(data=st.data())
@trials(max_examples=12, deadline=None)
def test_no_field_is_lost_on_the_way(kind: Any, data: st.DataObject) -> None:
    made = data.draw(some(kind))
    text = written(made)
    assert read(kind, text) == made
    assert list(json.loads(text)) == fields_of(kind)
    assert kind.__dataclass_params__.frozen
    assert "__slots__" in vars(kind)


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@given(data=st.data())
@trials(max_examples=12, deadline=None)
def test_a_field_that_is_not_there_is_named_and_so_is_one_too_many(kind: Any, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(fields_of(kind)))
    whole = json.loads(written(data.draw(some(kind))))
    less = {key: value for key, value in whole.items() if key != name}
    with pytest.raises(ValueError, match=f"^{kind.__name__} without '{name}'$"):
        read(kind, json.dumps(less))
    with pytest.raises(ValueError, match=f"^{kind.__name__} has no field 'colour'$"):
        read(kind, json.dumps(whole | {"colour": "red"}))


def test_a_number_that_is_none_is_refused() -> None:
    wrong = json.loads(written(ENDPOINT)) | {"lanes": "360"}
    with pytest.raises(TypeError, match="'360' is no int"):
        read(EndpointSettings, json.dumps(wrong))


def test_the_options_of_workers_are_those_that_are_declared_as_theirs() -> None:
    of_workers = [name for name, option in OPTIONS.items() if option.for_worker]
    assert of_workers == fields_of(WorkerOptions)
    asked = JobOptions(strict_finite=True, fine_sums=True, init_group=True, stragglers="p=0.1")
    assert asked.for_worker() == WorkerOptions(True, False, True, True, "p=0.1")
    assert JobOptions().for_worker() == WorkerOptions()


def test_a_worker_reads_them_without_msgspec() -> None:
    modules = "workloads.job_env, workloads.groups, workloads.endpoint, workloads.waiting"
    code = f"import sys, {modules}; print('msgspec' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=CALL_S, check=True
    )
    assert done.stdout == "False\n"
