"""LuWu's iteration as events: by hand where it can be, bounds everywhere, and figures 10 to 15."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from reproductions.luwu import FIGURES
from testbed.errors import RequestError
from testbed.systems.luwu import memory, pipeline, prediction, sharded
from testbed.systems.luwu.hardware import Hardware, gpu_rate
from testbed.systems.luwu.memory import INFINITY, LUWU, SHARP, SWITCHML, ZERO3
from testbed.systems.luwu.pipeline import Layer, OptimizerNode
from testbed.systems.luwu.shapes import SHAPES
from tests.examples import examples

NODE = OptimizerNode(link_bytes_s=1.0, disks_bytes_s=1.0, pool_bytes=100.0, ahead=2)


def test_one_layer_is_counted_by_hand() -> None:
    """Read 1, pushed 1, forward 1; read and pushed again beside, back 3, up 1, updated 1, written 3; and the
    next iteration reads what was written.
    """
    layer = Layer(parameter_bytes=1, gradient_bytes=1, state_bytes=2, forward_s=1, backward_s=3, update_s=1)
    outcome = pipeline.run([layer], NODE)
    assert outcome.iteration_s == pytest.approx(1 + 1 + 1 + 3 + 1 + 1 + 3)
    assert outcome.busy("gpu") == pytest.approx(4 / 11)
    assert outcome.busy("down") == pytest.approx(2 / 11)
    assert outcome.busy("read") == pytest.approx(4 / 11)


def test_two_layers_are_counted_by_hand() -> None:
    """Nothing but computing takes time: the optimizer's tasks are behind it, all but the last layer's."""
    layer = Layer(parameter_bytes=0, gradient_bytes=0, state_bytes=0, forward_s=1, backward_s=3, update_s=0.5)
    assert pipeline.run([layer] * 2, NODE).iteration_s == pytest.approx(2 * (1 + 3) + 0.5)


def test_states_do_not_hold_up_parameters() -> None:
    """A layer's parameters wait for a piece of another's states, not for all of them: with disks that are
    busy for most of the time, the GPU begins to go back no later than with states of no size.
    """
    layer = Layer(parameter_bytes=1, gradient_bytes=1, state_bytes=8, forward_s=0, backward_s=2, update_s=0)
    outcome = pipeline.run([layer] * 3, replace(NODE, link_bytes_s=100.0, ahead=8))
    backs = [span for span in outcome.spans if span.resource == "gpu" and span.end_s > span.begin_s]
    first, second = backs[:2]
    piece = 8 / pipeline.PIECES
    assert second.begin_s - first.end_s <= piece + 1e-9


LAYERS = st.lists(
    st.builds(Layer, *(st.floats(0, 10, allow_subnormal=False) for _ in range(6))), min_size=1, max_size=6
)


@given(LAYERS, st.integers(1, 3), st.floats(40, 200))
@settings(max_examples=examples(100), deadline=None)
def test_no_resource_works_longer_than_an_iteration(
    layers: list[Layer], ahead: int, pool_bytes: float
) -> None:
    """It ends, whatever the layers and the room; an iteration is no shorter than any resource's work, and no
    longer than all work.
    """
    node = replace(NODE, ahead=ahead, pool_bytes=pool_bytes)
    iteration_s = pipeline.run(layers, node).iteration_s
    works = {
        "gpu": sum(layer.forward_s + layer.backward_s for layer in layers),
        "down": sum(2 * layer.parameter_bytes for layer in layers),
        "up": sum(layer.gradient_bytes for layer in layers),
        "read": sum(2 * layer.parameter_bytes + layer.state_bytes for layer in layers),
        "update": sum(layer.update_s for layer in layers),
        "write": sum(layer.parameter_bytes + layer.state_bytes for layer in layers),
    }
    assert max(works.values()) <= iteration_s * (1 + 1e-9) + 1e-9
    assert iteration_s <= sum(works.values()) * (1 + 1e-9) + 1e-9


def test_what_cannot_run_is_refused() -> None:
    layer = Layer(1, 1, 99, 1, 1, 1)
    with pytest.raises(ValueError, match="pool_bytes 100: at least a layer's 101 are accepted"):
        pipeline.run([layer], NODE)
    with pytest.raises(ValueError, match="at least 2"):
        pipeline.run([Layer(1, 1, 1, 1, 1, 1)], NODE, iterations=1)
    with pytest.raises(ValueError, match="accepted are zero-infinity, zero-3, sharp"):
        sharded.run(LUWU, SHAPES["13B"], Hardware(), 8)


def test_the_sizes_are_the_names() -> None:
    for name, shape in SHAPES.items():
        number = float(name[:-1]) * (1e12 if name.endswith("T") else 1e9)
        assert shape.parameters == pytest.approx(number, rel=0.08), name


def test_micro_batches_that_the_paper_tells_are_the_largest_that_fit() -> None:
    """Sections 2.1 and 4.3: 16 for ZeRO-Infinity on 175B, 16 and 8 for LuWu on 505B and 1T."""
    assert memory.largest_micro_batch(INFINITY, SHAPES["175B"], Hardware()) == 16
    assert memory.largest_micro_batch(LUWU, SHAPES["505B"], Hardware()) == 16
    assert memory.largest_micro_batch(LUWU, SHAPES["1.0T"], Hardware()) == 8
    assert memory.largest_micro_batch(SWITCHML, SHAPES["2.7B"], Hardware()) is None
    assert memory.largest_model(ZERO3, Hardware(workers=8, gpu_memory_bytes=1e6)) is None


def test_sharded_passes_by_hand() -> None:
    """Computing that takes no time leaves collectives one after the other; a link that takes none leaves
    computing, and waits for PCIe.
    """
    shape, hardware = SHAPES["13B"], Hardware()
    block_s = 2 * shape.layer_parameters * 7 / 8 / hardware.link_bytes_s
    idle = sharded.run(ZERO3, shape, replace(hardware, link_bytes_s=1e30), 8)
    assert idle.passes_s == pytest.approx(shape.iteration_flop(8) / gpu_rate(shape.hidden))
    slow = sharded.run(ZERO3, shape, replace(hardware, link_bytes_s=hardware.link_bytes_s / 1e6), 1)
    assert slow.passes_s / 1e6 == pytest.approx(3 * shape.layers * block_s, rel=1e-3)
    with_disks = sharded.run(INFINITY, shape, replace(hardware, link_bytes_s=1e30), 64)
    computing = shape.iteration_flop(64) / gpu_rate(shape.hidden)
    assert with_disks.passes_s == pytest.approx(computing * (0.25 + 0.75 / 0.85), rel=0.05)
    update = shape.parameters / 8 * (28 / hardware.worker_disks_bytes_s + 1 / hardware.adam_parameters_s)
    assert with_disks.update_s == pytest.approx(update)


def test_a_bound_is_below_what_it_bounds() -> None:
    for micro_batch in (1, 8, 32):
        shape = SHAPES["30B"]
        bound = prediction.predict(prediction.BOUND, shape, Hardware(), micro_batch)
        whole = prediction.predict(INFINITY, shape, Hardware(), micro_batch)
        assert bound.computing_s <= bound.iteration_s < whole.iteration_s
        assert prediction.predict(SHARP, shape, Hardware(), micro_batch).iteration_s < whole.iteration_s


def run(name: str, tmp_path: Path, *arguments: str) -> dict[str, Any]:
    """A figure's report, as `testbed reproduce` makes it."""
    figure = next(figure for figure in FIGURES if figure.name == name)
    parser = argparse.ArgumentParser()
    figure.options(parser)
    options = parser.parse_args(arguments)
    figure.check(options)
    report: dict[str, Any] = {"figure": name, **figure.run(options, tmp_path)}
    report = json.loads(json.dumps(report))
    report["claims"] = figure.claims(report)
    return report


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., dict[str, Any]]:
    """A figure's report by its name and options, made once for all tests."""
    return cache(lambda name, *arguments: run(name, tmp_path_factory.mktemp(name), *arguments))


@pytest.mark.parametrize("name", [figure.name for figure in FIGURES if not figure.on_testbed])
def test_a_figure_is_run_shown_and_drawn(
    name: str, tmp_path: Path, made: Callable[..., dict[str, Any]]
) -> None:
    report = made(name)
    figure = next(figure for figure in FIGURES if figure.name == name)
    console = Console(width=140, record=True)
    figure.show(report, console)
    shown = console.export_text()
    assert all(claim["text"] in shown for claim in report["claims"])
    figure.draw(report, tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 10_000


def test_claims_follow_the_hardware(made: Callable[..., dict[str, Any]]) -> None:
    """Twelve disks bear a micro-batch of 16; of half the rate they do not, and the claim says so."""
    text = "12 disks, micro-batch 16: computing bounds"
    for options, verdict in (((), "agrees"), (("--disk-gb-s", "1"), "differs")):
        claims = {claim["text"]: claim["verdict"] for claim in made("fig15", *options)["claims"]}
        assert claims[text] == verdict


def test_options_are_checked(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="--link-gbps 0: more than 0"):
        run("fig10", tmp_path, "--link-gbps", "0")
    with pytest.raises(RequestError, match="--disk-gb-s nan"):
        run("fig10", tmp_path, "--disk-gb-s", "nan")
