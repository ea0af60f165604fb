"""The options of jobs that are summed by block records: choices, and how other programs refuse them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from testbed.aggregation.slots import SlotProgram
from testbed.aggregation.system import Layout
from testbed.errors import RequestError
from testbed.jobs.option_table import OF_PROGRAMS, OPTIONS
from testbed.jobs.options import CommonOptions, options_of
from testbed.systems.job_options import JobOptions
from testbed.systems.luwu.program import OwnedProgram
from testbed.systems.trio.options import BlockChoices
from testbed.wire.transports import PACKETS

LAYOUT = Layout("inc", ((1, 1),), PACKETS)
WAITS = "inc does not sum by block records, so sums wait for every worker"


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (JobOptions(age_out_ms=5.0), f"--age-out 5: {WAITS}"),
        (JobOptions(age_out_ms=0.0), f"--age-out 0: {WAITS}"),
        (JobOptions(leave_after=1000), f"--leave-after 1000: {WAITS}"),
        (
            JobOptions(window=16384),
            "--window 16384: inc does not sum by block records; its window is half of its segment",
        ),
        (JobOptions(window=3, leave_after=2), f"--leave-after 2: {WAITS}"),
        (JobOptions(window=3, leave_after=2, age_out_ms=1.5), f"--age-out 1.5: {WAITS}"),
    ],
)
def test_slots_refuse_them_in_the_words_of_their_declaration(options: JobOptions, line: str) -> None:
    with pytest.raises(RequestError) as refused:
        SlotProgram().check(LAYOUT, options.packets, {1: "xdp"})
    assert str(refused.value) == line


def test_the_first_is_refused_where_an_owner_has_the_sums() -> None:
    because = "luwu sends by acknowledgements and credit, and sums wait for every worker; it is accepted"
    for options, option in (
        (JobOptions(window=3, leave_after=2), "--window 3"),
        (JobOptions(leave_after=2, age_out_ms=5.0), "--age-out 5.0"),
    ):
        with pytest.raises(RequestError) as refused:
            OwnedProgram().check(replace(LAYOUT, system="luwu"), options.packets, {1: "xdp"})
        assert str(refused.value) == f"{option}: {because} where workers have the sums"


def test_a_job_s_choice_precedes_the_usual_one() -> None:
    usual = {"age_out_ms": 10.0}
    assert BlockChoices.of(replace(JobOptions().packets, usual=usual)) == BlockChoices(10.0, None, None)
    never = replace(JobOptions(age_out_ms=0.0, window=7).packets, usual=usual)
    assert BlockChoices.of(never) == BlockChoices(0.0, 7, None)
    assert BlockChoices.of(JobOptions(leave_after=4).packets) == BlockChoices(None, None, 4)


def test_the_core_declares_none_of_them_and_the_table_has_them_in_their_places() -> None:
    assert OF_PROGRAMS == ("age_out_ms", "window", "leave_after")
    assert not {*OF_PROGRAMS} & options_of(CommonOptions).keys()
    names = list(OPTIONS)
    assert [name for name in names if name not in OF_PROGRAMS] == list(options_of(CommonOptions))
    assert names[names.index("recovery") :][1:4] == list(OF_PROGRAMS)
    assert list(JobOptions().as_json()) == names


def test_all_options_are_frozen_and_have_slots() -> None:
    assert not hasattr(JobOptions(), "__dict__")
    with pytest.raises(AttributeError):
        JobOptions().window = 3  # type: ignore[misc]
