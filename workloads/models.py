"""The layers of well-known image classifiers and of BERT, and how long a GPU computes them: numbers only, for
jobs that emulate their training.

Sizes follow from the architectures' definitions for 1000 classes: VGG without batch normalisation (arXiv
1409.1556, configurations A, D, E), ResNet with bottlenecks, the stride in the 3 by 3 convolution and batch
normalisation (arXiv 1512.03385); DenseNet161 grows by 48 from 96 (arXiv 1608.06993, its authors' code); BERT
is the base model without a head, uncased (arXiv 1810.04805). Imports nothing of the project.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

IMAGE = 224  # pixels a side
CLASSES = 1000
BATCH = 32  # images; the batch of the profiles
BUCKET_MIB = 25  # DDP's default bucket of gradients

_VGG = {"vgg11": (1, 1, 2, 2, 2), "vgg16": (2, 2, 3, 3, 3), "vgg19": (2, 2, 4, 4, 4)}
_RESNET = {"resnet50": (3, 4, 6, 3), "resnet101": (3, 4, 23, 3), "resnet152": (3, 8, 36, 3)}
_WIDTHS = (64, 128, 256, 512, 512)
_EXPANSION = 4
_DENSE, _GROWTH, _BOTTLENECK = (6, 12, 36, 24), 48, 192

CLASSIFIERS = (*_RESNET, *_VGG)
DENSENET, BERT = "densenet161", "bert"
MODELS = (*CLASSIFIERS, DENSENET, BERT)
TOKENS = 128  # per sequence; a sequence counts as an image
_WORDS, _POSITIONS, _KINDS, _HIDDEN, _BLOCKS = 30_522, 512, 2, 768, 12


@dataclass(frozen=True, slots=True)
class Layer:
    """A layer with parameters. `tensors` are the sizes of its tensors in elements; `macs` are the
    multiply-accumulates of a forward pass for one image or sequence.
    """

    name: str
    tensors: tuple[int, ...]
    macs: int

    @property
    def parameters(self) -> int:
        return sum(self.tensors)

    def scaled(self, scale: int) -> Layer:
        """Return the layer with each tensor's size divided by `scale`, at least 1."""
        return Layer(self.name, tuple(max(1, size // scale) for size in self.tensors), self.macs)


@dataclass(frozen=True, slots=True)
class Profile:
    """A GPU's computing time for a batch of `BATCH` images, in milliseconds."""

    forward_ms: float
    backward_ms: float

    @property
    def total_ms(self) -> float:
        return self.forward_ms + self.backward_ms

    def for_batch(self, images: int) -> Profile:
        """Return the profile of another batch, in proportion to its images."""
        return Profile(self.forward_ms * images / BATCH, self.backward_ms * images / BATCH)


def layers(model: str) -> tuple[Layer, ...]:
    """Return a model's layers with parameters, in forward order. Raises ValueError, naming the models, for an
    unknown model.
    """
    if model in _VGG:
        return _vgg(_VGG[model])
    if model in _RESNET:
        return _resnet(_RESNET[model])
    if model == DENSENET:
        return _densenet()
    if model == BERT:
        return _bert()
    raise ValueError(f"model {model!r}: accepted are {', '.join(MODELS)}")


def parameters(model: str, scale: int = 1) -> int:
    return sum(layer.scaled(scale).parameters for layer in layers(model))


def gigabits(model: str, scale: int = 1) -> float:
    """Return the size of a model's gradients in binary32, in gigabits."""
    return parameters(model, scale) * 32 / 1e9


def profile(name: str, model: str) -> Profile:
    """Return a GPU's profile of a model. Raises ValueError, naming the known profiles or models."""
    if name not in PROFILES:
        raise ValueError(f"profile {name!r}: accepted are {', '.join(PROFILES)}")
    if model not in PROFILES[name]:
        raise ValueError(f"profile {name!r} has no model {model!r}; it has {', '.join(PROFILES[name])}")
    return PROFILES[name][model]


def _convolution(name: str, ins: int, outs: int, kernel: int, pixels: int, *, normalised: bool) -> Layer:
    """Return a convolution whose output has `pixels` a side, with a bias or with batch normalisation's two
    vectors instead.
    """
    weights = ins * outs * kernel * kernel
    return Layer(name, (weights, outs, outs) if normalised else (weights, outs), weights * pixels * pixels)


def _dense(name: str, ins: int, outs: int) -> Layer:
    return Layer(name, (ins * outs, outs), ins * outs)


def _vgg(stages: tuple[int, ...]) -> tuple[Layer, ...]:
    stack: list[Layer] = []
    pixels, ins = IMAGE, 3
    for stage, (count, outs) in enumerate(zip(stages, _WIDTHS, strict=True), 1):
        for number in range(1, count + 1):
            stack.append(_convolution(f"conv{stage}_{number}", ins, outs, 3, pixels, normalised=False))
            ins = outs
        pixels //= 2
    return (
        *stack,
        _dense("fc6", ins * pixels * pixels, 4096),
        _dense("fc7", 4096, 4096),
        _dense("fc8", 4096, CLASSES),
    )


def _resnet(stages: tuple[int, ...]) -> tuple[Layer, ...]:
    pixels, ins = IMAGE // 2, 64
    stack = [_convolution("conv1", 3, ins, 7, pixels, normalised=True)]
    pixels //= 2
    for stage, (count, width) in enumerate(zip(stages, _WIDTHS, strict=False), 2):
        for block in range(1, count + 1):
            name, outs = f"conv{stage}_{block}", width * _EXPANSION
            before = pixels
            if block == 1 and stage > 2:
                pixels //= 2
            stack.append(_convolution(f"{name}a", ins, width, 1, before, normalised=True))
            stack.append(_convolution(f"{name}b", width, width, 3, pixels, normalised=True))
            stack.append(_convolution(f"{name}c", width, outs, 1, pixels, normalised=True))
            if block == 1:
                stack.append(_convolution(f"{name}s", ins, outs, 1, pixels, normalised=True))
            ins = outs
    return (*stack, _dense("fc", ins, CLASSES))


def _densenet() -> tuple[Layer, ...]:
    """Return DenseNet161's layers. Each normalisation is counted with the convolution that it feeds; the
    normalisation after a bottleneck is counted with the bottleneck.
    """
    pixels, ins = IMAGE // 2, 2 * _GROWTH
    stack = [_convolution("conv0", 3, ins, 7, pixels, normalised=True)]
    pixels //= 2
    for block, count in enumerate(_DENSE, 1):
        for number in range(1, count + 1):
            name = f"dense{block}_{number}"
            bottleneck = _convolution(f"{name}a", ins, _BOTTLENECK, 1, pixels, normalised=True)
            stack.append(Layer(bottleneck.name, (ins, ins, *bottleneck.tensors), bottleneck.macs))
            weights = _BOTTLENECK * _GROWTH * 9
            stack.append(Layer(f"{name}b", (weights,), weights * pixels * pixels))
            ins += _GROWTH
        if block < len(_DENSE):
            weights = ins * (ins // 2)
            stack.append(Layer(f"transition{block}", (ins, ins, weights), weights * pixels * pixels))
            ins, pixels = ins // 2, pixels // 2
    classifier = _dense("classifier", ins, CLASSES)
    return (*stack, Layer(classifier.name, (ins, ins, *classifier.tensors), classifier.macs))


def _bert() -> tuple[Layer, ...]:
    """Return embeddings, blocks of attention and two dense layers, and the pooler.

    Embeddings count no multiply-accumulates: they are looked up. The products of queries, keys and values
    count with the attention's output layer.
    """
    norm = (_HIDDEN, _HIDDEN)
    embeddings = (_WORDS * _HIDDEN, _POSITIONS * _HIDDEN, _KINDS * _HIDDEN, *norm)
    stack = [Layer("embeddings", embeddings, 0)]
    for block in range(1, _BLOCKS + 1):
        for name in ("query", "key", "value"):
            stack.append(_per_token(f"block{block}_{name}", _HIDDEN, _HIDDEN))
        attention = _per_token(f"block{block}_output", _HIDDEN, _HIDDEN, *norm)
        products = 2 * TOKENS * TOKENS * _HIDDEN
        stack.append(Layer(attention.name, attention.tensors, attention.macs + products))
        stack.append(_per_token(f"block{block}_up", _HIDDEN, 4 * _HIDDEN))
        stack.append(_per_token(f"block{block}_down", 4 * _HIDDEN, _HIDDEN, *norm))
    return (*stack, _dense("pooler", _HIDDEN, _HIDDEN))


def _per_token(name: str, ins: int, outs: int, *norm: int) -> Layer:
    return Layer(name, (ins * outs, outs, *norm), ins * outs * TOKENS)


# jcjohnson/cnn-benchmarks on GitHub: GTX 1080 Ti, binary32, cuDNN 5.1.10, forward and backward pass of 16
# images in ms
_MEASURED_OF_16 = {
    "resnet50": (34.14, 67.06),
    "resnet101": (52.18, 102.08),
    "resnet152": (73.52, 142.02),
    "vgg16": (41.23, 86.91),
    "vgg19": (48.15, 100.04),
}


# ryujaehun/pytorch-gpu-benchmark on GitHub, commit 3f47a9e: A100 of 40 GB, PCIe, float; training and
# inference of 12 images in ms, read off the pictures fig/A100/*_1_gpus__float_model_*.png, whose numbers are
# not published, to 0.3 ms
_READ_OF_12 = {"resnet50": (39.3, 12.5), "vgg11": (25.3, 10.0), DENSENET: (107.9, 29.2)}


def _gtx_1080_ti() -> dict[str, Profile]:
    """Return the GTX 1080 Ti's profiles: the source's times of 16 images, doubled for 32.

    A model that the source lacks gets a known model's time, multiplied by the ratio of their
    multiply-accumulates: VGG11 and BERT VGG16's, since dense layers use a GPU as well as convolutions do, and
    DenseNet161 ResNet50's.
    """
    profiles = {
        model: Profile(2 * forward, 2 * backward) for model, (forward, backward) in _MEASURED_OF_16.items()
    }
    for model, known in (("vgg11", "vgg16"), (BERT, "vgg16"), (DENSENET, "resnet50")):
        ratio = _macs(model) / _macs(known)
        profiles[model] = Profile(profiles[known].forward_ms * ratio, profiles[known].backward_ms * ratio)
    return profiles


def _macs(model: str) -> float:
    return math.fsum(layer.macs for layer in layers(model))


def _a100() -> dict[str, Profile]:
    """Return the A100's profiles: forward is the source's inference time, backward its training time minus
    that.

    12 images do not fill this GPU, so that times of larger batches, computed in proportion, are longer than
    real ones.
    """
    return {
        model: Profile(BATCH / 12 * forward, BATCH / 12 * (both - forward))
        for model, (both, forward) in _READ_OF_12.items()
    }


PROFILES = {
    "gtx1080ti": _gtx_1080_ti(),
    "a100": _a100(),
    "none": {model: Profile(0.0, 0.0) for model in MODELS},
}
"""Profiles by name and model. "none" computes in no time."""
