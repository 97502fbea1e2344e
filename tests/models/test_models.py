"""The zoo: names, shapes, counts and limits, against what the papers and torchvision publish.

Large models live on the meta device, where a module has shapes but no numbers.
"""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from importlib import import_module
from itertools import pairwise

import pytest
import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from golow import models
from golow.models import ZOO

Names = Iterator[tuple[str, tuple[int, ...]]]
IMAGES = [name for name, entry in ZOO.items() if entry.takes_images]


def on_meta(name: str, **arguments: int) -> nn.Module:
    with torch.device("meta"):
        return models.build(name, **arguments)


def count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


# ---------------------------------------------------------------- counts


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("mlp", 784 * 512 + 512 + 512 * 256 + 256 + 256 * 10 + 10),
        ("lenet5", 156 + 2_416 + 48_120 + 10_164 + 850),  # layer by layer
        ("mnist_cnn", 320 + 18_496 + (9216 * 128 + 128) + 1_290),
        ("alexnet", 61_100_840),
        ("vgg16", 138_357_544),
        ("vgg19", 143_667_240),
        ("resnet18", 11_689_512),
        ("resnet50", 25_557_032),
        ("mobilenet_v2", 3_504_872),
    ],
)
def test_parameters_are_as_published(name: str, parameters: int) -> None:
    assert count(on_meta(name)) == parameters
    assert ZOO[name].parameters == parameters


@pytest.mark.parametrize(
    ("in_channels", "classes", "parameters"),
    [
        # conv1 loses two of three channels: 64 * 2 * 7 * 7 = 6,272.
        # fc is 2048 * classes + classes: 2,049,000 of 1000, 20,490 of 10, 40,980 of 20.
        (1, 1000, 25_550_760),  # 25,557,032 - 6,272
        (1, 10, 23_522_250),  # 25,550,760 - 2,049,000 + 20,490
        (1, 20, 23_542_740),  # 25,550,760 - 2,049,000 + 40,980
        (3, 10, 23_528_522),  # 25,557,032 - 2,049,000 + 20,490
        (3, 20, 23_549_012),  # 25,557,032 - 2,049,000 + 40,980
    ],
)
def test_resnet50_for_other_data_sets(in_channels: int, classes: int, parameters: int) -> None:
    model = on_meta("resnet50", in_channels=in_channels, classes=classes)
    assert count(model) == parameters


# ---------------------------------------------------------------- names and shapes


def affine(name: str, outputs: int, *inputs: int) -> Names:
    yield f"{name}.weight", (outputs, *inputs)
    yield f"{name}.bias", (outputs,)


def norm(name: str, channels: int) -> Names:
    for tensor in ("weight", "bias", "running_mean", "running_var"):
        yield f"{name}.{tensor}", (channels,)
    yield f"{name}.num_batches_tracked", ()


def alexnet() -> Names:
    yield from affine("features.0", 64, 3, 11, 11)
    yield from affine("features.3", 192, 64, 5, 5)
    yield from affine("features.6", 384, 192, 3, 3)
    yield from affine("features.8", 256, 384, 3, 3)
    yield from affine("features.10", 256, 256, 3, 3)
    yield from affine("classifier.1", 4096, 9216)
    yield from affine("classifier.4", 4096, 4096)
    yield from affine("classifier.6", 1000, 4096)


def vgg16() -> Names:
    indices = (0, 2, 5, 7, 10, 12, 14, 17, 19, 21, 24, 26, 28)
    channels = (3, 64, 64, 128, 128, 256, 256, 256, 512, 512, 512, 512, 512, 512)
    for index, (inputs, outputs) in zip(indices, pairwise(channels), strict=True):
        yield from affine(f"features.{index}", outputs, inputs, 3, 3)
    yield from affine("classifier.0", 4096, 25088)
    yield from affine("classifier.3", 4096, 4096)
    yield from affine("classifier.6", 1000, 4096)


def resnet18() -> Names:
    yield "conv1.weight", (64, 3, 7, 7)
    yield from norm("bn1", 64)
    for layer, inputs, outputs in ((1, 64, 64), (2, 64, 128), (3, 128, 256), (4, 256, 512)):
        for block in (0, 1):
            name = f"layer{layer}.{block}"
            yield f"{name}.conv1.weight", (outputs, outputs if block else inputs, 3, 3)
            yield from norm(f"{name}.bn1", outputs)
            yield f"{name}.conv2.weight", (outputs, outputs, 3, 3)
            yield from norm(f"{name}.bn2", outputs)
            if block == 0 and layer > 1:
                yield f"{name}.downsample.0.weight", (outputs, inputs, 1, 1)
                yield from norm(f"{name}.downsample.1", outputs)
    yield from affine("fc", 1000, 512)


def mobilenet_v2() -> Names:
    outputs = (16, 24, 24, 32, 32, 32, 64, 64, 64, 64, 96, 96, 96, 160, 160, 160, 320)
    yield "features.0.0.weight", (32, 3, 3, 3)
    yield from norm("features.0.1", 32)
    yield "features.1.conv.0.0.weight", (32, 1, 3, 3)
    yield from norm("features.1.conv.0.1", 32)
    yield "features.1.conv.1.weight", (16, 32, 1, 1)
    yield from norm("features.1.conv.2", 16)
    for index, (before, after) in enumerate(pairwise(outputs), start=2):
        name, wide = f"features.{index}.conv", 6 * before
        yield f"{name}.0.0.weight", (wide, before, 1, 1)
        yield from norm(f"{name}.0.1", wide)
        yield f"{name}.1.0.weight", (wide, 1, 3, 3)
        yield from norm(f"{name}.1.1", wide)
        yield f"{name}.2.weight", (after, wide, 1, 1)
        yield from norm(f"{name}.3", after)
    yield "features.18.0.weight", (1280, 320, 1, 1)
    yield from norm("features.18.1", 1280)
    yield from affine("classifier.1", 1000, 1280)


@pytest.mark.parametrize("published", [alexnet, vgg16, resnet18, mobilenet_v2])
def test_state_dict_is_the_published_one(published: Callable[[], Names]) -> None:
    state = on_meta(published.__name__).state_dict()
    assert [(name, tuple(tensor.shape)) for name, tensor in state.items()] == list(published())


@pytest.mark.parametrize(
    ("model", "name", "shape"),
    [
        ("vgg19", "features.34.weight", (512, 512, 3, 3)),
        ("vgg19", "classifier.6.bias", (1000,)),
        ("resnet50", "layer1.0.downsample.0.weight", (256, 64, 1, 1)),
        ("resnet50", "layer3.5.bn3.running_var", (1024,)),
        ("resnet50", "layer4.2.conv2.weight", (512, 512, 3, 3)),
        ("resnet50", "fc.weight", (1000, 2048)),
    ],
)
def test_state_dict_has(model: str, name: str, shape: tuple[int, ...]) -> None:
    assert tuple(on_meta(model).state_dict()[name].shape) == shape


def test_state_dict_sizes() -> None:
    assert len(on_meta("vgg19").state_dict()) == 2 * 19
    # 53 convolutions, as many batch norms of five tensors, one linear layer.
    assert len(on_meta("resnet50").state_dict()) == 53 + 53 * 5 + 2


def test_resnet50_has_its_stride_in_the_3x3() -> None:
    model = on_meta("resnet50")
    block = model.get_submodule("layer2.0")
    assert block.get_submodule("conv1").stride == (1, 1)
    assert block.get_submodule("conv2").stride == (2, 2)


# ---------------------------------------------------------------- what the names do not show


@pytest.mark.parametrize(
    ("name", "multiply_adds"),
    [
        ("alexnet", 714e6),
        ("vgg16", 15_470e6),
        ("vgg19", 19_632e6),
        ("resnet18", 1_814e6),
        ("resnet50", 4_089e6),
        ("mobilenet_v2", 301e6),
    ],
)
def test_work_is_as_published(name: str, multiply_adds: float) -> None:
    """Multiplications at 224x224, as torchvision publishes them: they follow every stride."""
    model = on_meta(name).eval()
    with FlopCounterMode(display=False) as counter:
        model(torch.empty(1, 3, 224, 224, device="meta"))
    assert counter.get_total_flops() / 2 == pytest.approx(multiply_adds, rel=2e-3)


@pytest.mark.parametrize(
    ("name", "published"),
    [
        ("mlp", {nn.ReLU: 2}),
        ("lenet5", {nn.Tanh: 4, nn.AvgPool2d: 2}),
        ("mnist_cnn", {nn.ReLU: 3, nn.MaxPool2d: 1}),
        ("alexnet", {nn.ReLU: 7, nn.MaxPool2d: 3, nn.AdaptiveAvgPool2d: 1}),
        ("vgg16", {nn.ReLU: 15, nn.MaxPool2d: 5, nn.AdaptiveAvgPool2d: 1}),
        ("vgg19", {nn.ReLU: 18, nn.MaxPool2d: 5, nn.AdaptiveAvgPool2d: 1}),
        ("resnet18", {nn.ReLU: 1 + 8 * 2, nn.MaxPool2d: 1, nn.AdaptiveAvgPool2d: 1}),
        ("resnet50", {nn.ReLU: 1 + 16 * 3, nn.MaxPool2d: 1, nn.AdaptiveAvgPool2d: 1}),
        ("mobilenet_v2", {nn.ReLU6: 1 + 1 + 16 * 2 + 1, nn.AdaptiveAvgPool2d: 1}),
    ],
)
def test_activations_and_pooling_are_as_published(
    name: str, published: dict[type[nn.Module], int]
) -> None:
    """How often each is applied in one forward pass: a module may serve several times."""
    model, entry = on_meta(name), ZOO[name]
    other = {nn.Conv2d, nn.Linear, nn.BatchNorm2d, nn.Dropout, nn.Flatten, nn.Identity}
    applied: Counter[type[nn.Module]] = Counter()
    for layer in model.modules():
        if not any(True for _ in layer.children()) and type(layer) not in other:
            layer.register_forward_hook(lambda layer, *_: applied.update([type(layer)]))
    model(torch.empty(2, entry.in_channels, entry.resolution, entry.resolution, device="meta"))
    applied.pop(nn.LogSoftmax, None)  # has its own test
    assert applied == published


# ---------------------------------------------------------------- running


@pytest.mark.parametrize("name", IMAGES)
@pytest.mark.parametrize("limit", ["minimum", "default"])
def test_forward_shape(name: str, limit: str) -> None:
    entry = ZOO[name]
    resolution = entry.minimum_resolution if limit == "minimum" else entry.resolution
    model = on_meta(name, in_channels=2, classes=7, resolution=resolution)
    images = torch.empty(3, 2, resolution, resolution, device="meta")
    pixels = (resolution, resolution) if entry.per_pixel else ()
    assert model(images).shape == (3, 7, *pixels)


@pytest.mark.parametrize("name", ["alexnet", "vgg16", "resnet18", "resnet50", "mobilenet_v2"])
def test_images_need_not_be_square(name: str) -> None:
    images = torch.empty(2, 3, 64, 96, device="meta")
    assert on_meta(name)(images).shape == (2, 1000)


@pytest.mark.parametrize("name", ["mlp", "lenet5", "mnist_cnn", "resnet18", "mobilenet_v2"])
def test_every_parameter_has_a_gradient(name: str) -> None:
    torch.manual_seed(0)
    model = models.build(name, classes=5, resolution=32)
    images = torch.randn(2, ZOO[name].in_channels, 32, 32)
    nn.functional.cross_entropy(model(images), torch.tensor([1, 4])).backward()
    for parameter_name, parameter in model.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert parameter.grad.isfinite().all(), parameter_name


def test_mnist_cnn_gives_log_probabilities() -> None:
    output: Tensor = models.build("mnist_cnn").eval()(torch.randn(4, 1, 28, 28))
    torch.testing.assert_close(output.exp().sum(dim=1), torch.ones(4))


def test_dropout_is_a_module_wherever_it_is() -> None:
    def probabilities(name: str) -> list[float]:
        return [layer.p for layer in on_meta(name).modules() if isinstance(layer, nn.Dropout)]

    assert probabilities("mnist_cnn") == [0.25, 0.5]
    assert probabilities("alexnet") == probabilities("vgg16") == [0.5, 0.5]
    assert probabilities("mobilenet_v2") == [0.2]
    assert probabilities("resnet50") == probabilities("lenet5") == []


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("name", ["lenet5", "mnist_cnn", "resnet18", "mobilenet_v2"])
def test_torchscript_takes_it(name: str) -> None:
    torch.jit.script(models.build(name))


# ---------------------------------------------------------------- limits


@pytest.mark.parametrize("name", IMAGES)
def test_one_below_the_minimum_resolution_is_refused(name: str) -> None:
    least = ZOO[name].minimum_resolution
    with pytest.raises(ValueError, match=rf"{name} needs a resolution of at least {least}, got"):
        on_meta(name, resolution=least - 1)


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
@pytest.mark.parametrize("name", [name for name in IMAGES if ZOO[name].minimum_resolution > 1])
def test_the_minimum_resolution_is_not_larger_than_need_be(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the builder's check, the model itself fails one below."""
    family = import_module(ZOO[name].build.split(":")[0])
    monkeypatch.setattr(family, "check_arguments", lambda *_, **__: None)
    resolution = ZOO[name].minimum_resolution - 1
    images = torch.empty(2, ZOO[name].in_channels, resolution, resolution, device="meta")
    with pytest.raises(RuntimeError):
        on_meta(name, resolution=resolution)(images)


@pytest.mark.parametrize(
    ("argument", "said"), [("in_channels", "channels"), ("classes", "classes")]
)
def test_no_channels_or_classes_is_refused(argument: str, said: str) -> None:
    with pytest.raises(ValueError, match=f"resnet18 needs {said} of at least 1, got 0"):
        models.build("resnet18", **{argument: 0})


# ---------------------------------------------------------------- the registry


@pytest.mark.parametrize("name", ZOO)
def test_builders_have_the_defaults_of_the_registry(name: str) -> None:
    entry = ZOO[name]
    module, function = entry.build.split(":")
    parameters = inspect.signature(getattr(import_module(module), function)).parameters
    assert {key: parameter.default for key, parameter in parameters.items()} == entry.arguments
    assert function == entry.name == name


def test_listing_the_zoo_does_not_import_torch() -> None:
    program = (
        "import sys, golow.models as m; assert len(m.ZOO) == 24; sys.exit('torch' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_an_unknown_name_is_a_key_error_and_has_neighbours() -> None:
    with pytest.raises(KeyError, match="resnet51"):
        models.build("resnet51")
    assert models.nearest("resnet51")[0] in {"resnet50", "resnet18"}
    assert models.nearest("ResNet-50")[0] == "resnet50"
    assert models.nearest("mobilenet")[0] in {"mobilenet_v1", "mobilenet_v2"}
    assert models.nearest("zzz") == []
