"""The layer tables: against published counts, and what the time scale makes of them; the job that sums them,
on its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from workloads import models

SCRIPT = Path(__file__).resolve().parents[2] / "workloads" / "jobs" / "layers.py"

# but for BERT of torchvision's models, in its documentation; multiply-accumulates in thousand millions
PUBLISHED = {
    # arXiv 1810.04805 and the release: 110 M; multiply-accumulates of 128 tokens
    "bert": (109_482_240, 11.17),
    "densenet161": (28_681_000, 7.73),
    "resnet50": (25_557_032, 4.09),
    "resnet101": (44_549_160, 7.80),
    "resnet152": (60_192_808, 11.51),
    "vgg11": (132_863_336, 7.61),
    "vgg16": (138_357_544, 15.47),
    "vgg19": (143_667_240, 19.63),
}


def test_every_model_is_checked() -> None:
    assert set(PUBLISHED) == set(models.MODELS)


@pytest.mark.parametrize("model", PUBLISHED)
def test_totals_are_the_published_ones(model: str) -> None:
    parameters, giga_macs = PUBLISHED[model]
    assert models.parameters(model) == parameters
    assert sum(layer.macs for layer in models.layers(model)) / 1e9 == pytest.approx(giga_macs, abs=0.005)
    assert models.gigabits(model) == pytest.approx(parameters * 32e-9)


@pytest.mark.parametrize("model", models.MODELS)
def test_a_scale_divides_each_tensor_and_leaves_none_empty(model: str) -> None:
    for layer in models.layers(model):
        scaled = layer.scaled(400)
        assert all(size >= 1 for size in scaled.tensors)
        assert all(
            400 * small <= max(size, 400) for small, size in zip(scaled.tensors, layer.tensors, strict=True)
        )
    # rounding down takes less than 0.5 % of any of them
    assert (
        models.parameters(model) * 0.995
        < 400 * models.parameters(model, 400)
        < models.parameters(model) * 1.005
    )


def test_names_of_vgg16_and_the_largest_layer() -> None:
    layers = models.layers("vgg16")
    assert [layer.name for layer in layers][-4:] == ["conv5_3", "fc6", "fc7", "fc8"]
    assert max(layers, key=lambda layer: layer.parameters).tensors == (25_088 * 4096, 4096)


@pytest.mark.parametrize("model", models.MODELS)
def test_every_model_has_a_profile_and_backward_takes_longer(model: str) -> None:
    of_32 = models.profile("gtx1080ti", model)
    assert 1.5 < of_32.backward_ms / of_32.forward_ms < 2.5
    assert of_32.for_batch(16).total_ms == pytest.approx(of_32.total_ms / 2)
    assert models.profile("none", model).total_ms == 0


def test_the_models_of_trios_table_1_have_times_of_its_gpu() -> None:
    for model, images, train_of_12_ms in (
        ("resnet50", 64, 39.3),
        ("vgg11", 128, 25.3),
        ("densenet161", 64, 107.9),
    ):
        of_batch = models.profile("a100", model).for_batch(images)
        assert of_batch.total_ms == pytest.approx(train_of_12_ms * images / 12)
        assert 1.5 < of_batch.backward_ms / of_batch.forward_ms < 2.8
    assert {name: round(models.parameters(name) * 4 / 2**20) for name in ("resnet50", "vgg11")} == {
        "resnet50": 97,
        "vgg11": 507,
    }, "table 1's MB, but for the statistics of batch normalisation"
    assert round(models.parameters("densenet161") * 4 / 2**20) == 109


def test_what_there_is_not_is_named_with_what_there_is() -> None:
    with pytest.raises(ValueError, match=r"vgg99.*resnet50"):
        models.layers("vgg99")
    with pytest.raises(ValueError, match=r"fast.*gtx1080ti"):
        models.profile("fast", "vgg16")


@pytest.mark.needs("torch")
def test_a_lost_bit_of_a_sum_is_seen() -> None:
    import torch

    from workloads.jobs import layers

    net = layers.emulated("resnet50", models.profile("none", "resnet50"), 400, layers.Step(0))
    assert sum(weight.numel() for weight in net.parameters()) == models.parameters("resnet50", 400)
    total = sum(layers.factor(rank, turn) / 2 for rank in range(2) for turn in range(3))
    with torch.no_grad():
        for layer in net:
            for weight, pattern in zip(layer.weights, layer.patterns, strict=True):
                weight.copy_(-(pattern.double() * total))
        assert 0 < layers.error_over_bound(net, 2, 3) <= 1
        net[7].weights[0][5] += 2e-5
        assert layers.error_over_bound(net, 2, 3) > 1
        net[7].weights[0][5] = float("nan")
        assert layers.error_over_bound(net, 2, 3) > 1
        assert layers.error_over_bound(net, 2, 3, degraded=True) > 1


@pytest.mark.needs("torch")
def test_an_average_of_some_workers_is_right_where_they_may_be_late() -> None:
    import torch

    from workloads.jobs import layers

    net = layers.emulated("resnet50", models.profile("none", "resnet50"), 400, layers.Step(0))
    first, second = ([layers.factor(rank, turn) for rank in range(2)] for turn in range(2))
    for total, is_right in ((first[1] + sum(second) / 2, True), (max(first) + max(second) + 1e-3, False)):
        with torch.no_grad():
            for layer in net:
                for weight, pattern in zip(layer.weights, layer.patterns, strict=True):
                    weight.copy_(-(pattern.double() * total))
            assert (layers.error_over_bound(net, 2, 2, degraded=True) <= 1) is is_right
            assert layers.error_over_bound(net, 2, 2) > 1


@pytest.mark.needs("torch")
def test_a_wrong_sum_ends_the_job_with_an_error(tmp_path: Path) -> None:
    text = SCRIPT.read_text()
    right = "(pattern * layer.step.factor for pattern in layer.patterns)"
    assert text.count(right) == 1
    wrong = tmp_path / "wrong.py"
    wrong.write_text(
        text.replace(right, "(pattern * layer.step.factor + 1e-5 for pattern in layer.patterns)")
    )
    words = ["--backend", "gloo", "--profile", "none", "--iterations", "3", "--scale", "400"]
    alone = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    environment = os.environ | alone | {"PYTHONPATH": str(SCRIPT.parents[2])}
    ended = subprocess.run(
        [sys.executable, str(wrong), *words],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 1, ended.stderr
    assert "rank 0: the sums are wrong by" in ended.stderr
