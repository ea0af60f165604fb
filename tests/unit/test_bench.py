"""The benchmarks' pure parts: bounds, samples of a profile, tables in a document."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.goodput import bound_s
from tests.bench.rack import Setup, compiled
from tests.bench.spent import ENDPOINT, IDLE, OTHER, part, samples
from tests.bench.tables import replaced, table

SCRIPT = """python  117.000000251:
\tffffffff81000001 memcpy ([kernel.kallsyms])
\tffffffff81000002 skb_pp_cow_data ([kernel.kallsyms])
\tffffffff81000003 veth_poll ([kernel.kallsyms])
\tffffffff81000004 __x64_sys_sendmsg ([kernel.kallsyms])

python  117.000500000:
\t    7f0000000001 encode (/srv/_endpoint.so)
\t    7f0000000002 main (/usr/bin/python3.11)

swapper  117.001000000:
\tffffffff81000005 pv_native_safe_halt ([kernel.kallsyms])
\tffffffff81000006 do_idle ([kernel.kallsyms])

python  117.002000000:
\tffffffffc0000001 bpf_csum_diff ([kernel.kallsyms])
\tffffffffc0000002 bpf_prog_0123456789abcdef_tor_port (bpf_prog_0123456789abcdef_tor_port)
\tffffffff81000003 veth_poll ([kernel.kallsyms])
"""


def test_the_bound_of_a_link_with_a_rate() -> None:
    assert bound_s(Setup((8,), 100.0), 12_500_000, 1.0) == pytest.approx(1.0)
    assert Setup((8,), 100.0).framing == pytest.approx(1514 / 1440)
    assert bound_s(Setup((8,)), 12_500_000, 1.0) == 0


def test_across_units_the_ps_link_carries_each_units_partial_sum() -> None:
    assert bound_s(Setup((2, 2), 100.0), 12_500_000, 1.0) == pytest.approx(2.0)
    assert bound_s(Setup((1, 1, 1), 100.0), 12_500_000, 1.0) == pytest.approx(3.0)


def test_a_sample_counts_for_the_innermost_function_that_is_known() -> None:
    found = list(samples(SCRIPT))
    assert [at for at, _, _ in found] == pytest.approx([117.000000251, 117.0005, 117.001, 117.002])
    parts = [part(functions, endpoint) for _, functions, endpoint in found]
    assert parts[1:3] == [ENDPOINT, IDLE]
    assert "copy" in parts[0]
    assert "program" in parts[3]
    assert part(["main"], False) == OTHER


def test_a_table_goes_between_its_marks_only() -> None:
    document = "before\n<!-- bench limit -->\nold\n<!-- end -->\nafter\n<!-- bench spent -->\nkept\n<!-- end -->\n"
    assert replaced(document, "limit", table(["a", "b"], [["1", "2"]])) == (
        "before\n<!-- bench limit -->\n| a | b |\n| --- | ---: |\n| 1 | 2 |\n<!-- end -->\nafter\n"
        "<!-- bench spent -->\nkept\n<!-- end -->\n"
    )
    with pytest.raises(SystemExit, match="bench tried: 0 places"):
        replaced(document, "tried", "")


def test_a_constant_that_the_endpoint_has_not_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="0 definitions of NO_SUCH"):
        compiled(tmp_path, {"NO_SUCH": 1})
