"""Systems: layouts as JSON, and a user's own class, which runs in a process of its own and may do
anything.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given

from testbed.aggregation.messages import layout_from_json, layout_to_json, site_from_json, site_to_json
from testbed.aggregation.site import Rack, Site
from testbed.aggregation.system import Layout, Service
from testbed.client.caller import Caller
from testbed.errors import RequestError
from testbed.jobs import user_system
from testbed.jobs.placement import laid_out
from testbed.jobs.user_system import UserSystem
from testbed.plugins.registry import find, systems
from testbed.systems import main
from testbed.topology.places import Host
from testbed.wire.transports import PACKETS
from tests.processes import spawn
from tests.unit.test_forest import Forest, forests

RACKS = (Rack(1, "gpu", 4), Rack(2, "gpu", 4), Rack(3, "cpu", 2))
SITE = Site(RACKS, frozenset({(1, 4)}), frozenset({frozenset({1, 3})}))
WORKERS: list[Host] = [(1, 1), (1, 2), (2, 1)]

GOOD = """
import testbed.aggregation.system as SYSTEM
from testbed.aggregation.forest import Forest, Node, Tree
from testbed.aggregation.system import Layout
from testbed.wire.transports import PACKETS
from testbed.topology.places import Place, at_host, switch

class Own:
    programs = {"xdp": "sum"}

    def lay_out(self, workers, site):
        top = Node(switch(workers[0][0]), tuple(range(len(workers))))
        forest = Forest(tuple(workers), (Tree(top),))
        return Layout("own", tuple(workers), PACKETS, None, forest, forest.demands())
"""


def own(tmp_path: Path, body: str) -> UserSystem:
    (tmp_path / "mine.py").write_text(body)
    caller = Caller.of(os.getuid())
    return UserSystem(spawn, "mine.py:Own", caller, str(tmp_path), dict(os.environ))


@given(forests())
def test_layouts_and_sites_come_back_as_they_were(forest: Forest) -> None:
    layout = Layout("own", forest.workers, PACKETS, (3, 1), forest, forest.demands())
    assert layout_from_json(json.loads(json.dumps(layout_to_json(layout)))) == layout
    assert site_from_json(json.loads(json.dumps(site_to_json(SITE)))) == SITE


def test_what_is_no_layout_is_told_from_one() -> None:
    good = layout_to_json(find("switches").lay_out(WORKERS, SITE))
    layout_from_json(good)
    (tree,) = good["forest"]["trees"]
    top = tree["top"]
    for key, wrong in (
        ("workers", [[1, 1.0]]), ("workers", "u1"), ("server", [1]), ("demands", [[1]]), ("system", 3),
        ("forest", []), ("forest", {}), ("forest", {**good["forest"], "trees": [{}]}),
        ("programs", [["xdp"]]),
        ("forest", {**good["forest"], "trees": [{**tree, "top": {**top, "workers": [True]}}]}),
        ("usual_options", "10"), ("service", {"module": "m"}), ("age", 1.0),
    ):  # fmt: skip
        with pytest.raises(ValueError, match="no layout"):
            layout_from_json({**good, key: wrong})
    deep = {**top, "below": []}
    for _ in range(3000):
        deep = {**top, "below": [deep]}
    with pytest.raises(ValueError, match="no layout: RecursionError"):
        layout_from_json({**good, "forest": {**good["forest"], "trees": [{**tree, "top": deep}]}})


def test_a_users_system_lays_out_in_a_process_of_its_own(tmp_path: Path) -> None:
    system = own(tmp_path, GOOD)
    layout = system.lay_out(WORKERS, SITE)
    assert (layout.system, layout.transport, layout.demands) == ("mine.py:Own", "packets", ((2, 1),))
    assert layout.forest is not None
    assert [str(place) for place in layout.forest.places] == ["u1"]
    assert layout.programs == {"xdp": "sum"}


def test_what_a_users_layout_or_class_says_is_what_the_job_gets(tmp_path: Path) -> None:
    words = 'programs = {"xdp": "sum"}'
    body = GOOD.replace(words, words.replace("sum", "blocks") + '\n    usual_options = {"age_out_ms": 15}')
    layout = laid_out(own(tmp_path, body), WORKERS, SITE, {1: "xdp", 2: "xdp"})
    assert (layout.programs, layout.service) == ({"xdp": "blocks"}, None)
    assert layout.usual_options == {"age_out_ms": 15}
    said = (
        ', programs={"xdp": "blocks"}, usual_options={"age_out_ms": 20.0}, '
        'service=Service("mine", "my server"))'
    )
    body = GOOD.replace("None, forest, forest.demands())", f"(2, 2), forest, forest.demands(){said}")
    body = body.replace("import Layout", "import Layout, Service")
    layout = laid_out(own(tmp_path, body), WORKERS, SITE, {1: "xdp", 2: "xdp"})
    assert (layout.programs, layout.usual_options) == ({"xdp": "blocks"}, {"age_out_ms": 20.0})
    assert layout.service == Service("mine", "my server")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "forest.demands())",
            "forest.demands(), usual_options={'age_out_ms': -1.0})",
            "age_out_ms: -1.0; .* ms are accepted",
        ),
        (
            'programs = {"xdp": "sum"}',
            'programs = {"xdp": "sum"}; age_out_ms = 20.0',
            "age_out_ms: accepted in usual_options, as {'age_out_ms': ...}",
        ),
        (
            "forest.demands())",
            "forest.demands(), usual_options={'lanes': 64})",
            "usual_options: 'lanes'; accepted are age_out_ms, window, leave_after",
        ),
        (
            "forest.demands())",
            "forest.demands(), service=SYSTEM.Service('a', 'b'))",
            "its layout has a service and no server",
        ),
        (
            "def lay_out",
            "def lay_in",
            "its lay_out raised AttributeError: 'Own' object has no attribute 'lay_out'",
        ),
        ("class Own", "class Other", "raised AttributeError: module 'users_mine' has no attribute 'Own'"),
        ("class Own:", "raise SystemExit(3)\nclass Own:", "it ended without an answer"),
        ("class Own:", "1 / 0\nclass Own:", "raised ZeroDivisionError: division by zero"),
        ("return Layout(", "return (", "lay_out returned tuple, which is no Layout"),
        ("range(len(workers))", "range(2)", "tree 0: worker 2 contributes 0 times, not once"),
        ("switch(workers[0][0])", "switch(9)", "its forest names u9, which is not there"),
        ("switch(workers[0][0])", "at_host((3, 3))", "its forest names u3h3, which is not there"),
        ("switch(workers[0][0])", "at_host((1, 4))", "host \\(1, 4\\) is another job's"),
        ("forest.demands())", "((1, 8),))", "its demands name unit 8, which is not there"),
        ("PACKETS, None", '"gloo", None', "transport 'gloo'; 'packets' with a forest"),
        (
            "tuple(workers), PACKETS",
            "tuple(workers[:2]), PACKETS",
            "worker 2; there are 0 to 1|other workers",
        ),
        ("class Own:", "import time\ntime.sleep(60)\nclass Own:", "no layout within 2 s"),
        ("class Own:", "import os\nos.write(3, b'{' * 3000000 + b'\\\\n')\nclass Own:", "answer|JSON"),
    ],
)
def test_a_users_system_that_is_wrong_is_told_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: str, new: str, message: str
) -> None:
    monkeypatch.setattr(user_system, "WITHIN_S", 2.0 if "sleep" in new else 30.0)
    assert old in GOOD
    with pytest.raises(RequestError, match=message) as error:
        own(tmp_path, GOOD.replace(old, new)).lay_out(WORKERS, SITE)
    assert str(error.value).startswith("--sync mine.py:Own: ")
    assert "\n" not in str(error.value)


def test_the_list_names_each_and_what_it_needs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[::5]] == list(systems())
    for at, key in enumerate(("engines: ", "server: ", "policies: ", "figures"), 1):
        assert all(line.strip().startswith(key) for line in lines[at::5]), key
