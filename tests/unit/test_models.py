"""The layer tables: against published counts, and what the time scale makes of them."""

from __future__ import annotations

import pytest

from workloads import models

# of torchvision's models, in its documentation; multiply-accumulates in thousand millions
PUBLISHED = {
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
        assert all(400 * small <= max(size, 400) for small, size in zip(scaled.tensors, layer.tensors, strict=True))
    # rounding down takes less than 0.5 % of any of them
    assert models.parameters(model) * 0.995 < 400 * models.parameters(model, 400) < models.parameters(model) * 1.005


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


def test_what_there_is_not_is_named_with_what_there_is() -> None:
    with pytest.raises(ValueError, match=r"vgg99.*resnet50"):
        models.layers("vgg99")
    with pytest.raises(ValueError, match=r"fast.*gtx1080ti"):
        models.profile("fast", "vgg16")
