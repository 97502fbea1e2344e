"""The zoo's networks of 2017 to 2022 against torchvision 0.28 and the papers.

Digests, outputs and multiply-adds were computed with torchvision's own modules, filled as here.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from golow import models
from golow.models import ZOO
from golow.models.initialise import initialise
from golow.models.stochastic_depth import StochasticDepth
from golow.models.swin import Block as SwinBlock
from golow.models.unet import UNet
from golow.models.vision_transformer import VisionTransformer
from golow.models.windows import WINDOW, WindowAttention
from support.models.published_networks import digest, fill, images


class Published(NamedTuple):
    """names: of the state dict, with shapes. outputs: the first two logits of each image at this
    resolution. multiply_adds: of an image of 224 x 224."""

    parameters: int
    tensors: int
    names: str
    resolution: int
    outputs: tuple[float, float, float, float]
    multiply_adds: float


PUBLISHED = {
    "densenet121": Published(
        parameters=7_978_856,
        tensors=727,
        names="d52aa585c6714985",
        resolution=32,
        outputs=(1.62774, -1.62622, 1.48543, -1.61303),
        multiply_adds=2.834e9,
    ),
    "shufflenet_v2": Published(
        parameters=2_278_604,
        tensors=338,
        names="3c60236e3c59729d",
        resolution=32,
        outputs=(-0.131686, -0.0574983, -0.137207, -0.0846119),
        multiply_adds=0.145e9,
    ),
    "efficientnet_b0": Published(
        parameters=5_288_548,
        tensors=360,
        names="cb7cfd236a199858",
        resolution=32,
        outputs=(-0.251716, -0.032097, -0.251714, -0.0321018),
        multiply_adds=0.386e9,
    ),
    "convnext_tiny": Published(
        parameters=28_589_128,
        tensors=182,
        names="c419bc97af92cc08",
        resolution=32,
        outputs=(12.2302, -0.0186867, 11.7578, -0.34124),
        multiply_adds=4.456e9,
    ),
    "vit_b_16": Published(
        parameters=86_567_656,
        tensors=152,
        names="71b16a3b8dc241da",
        resolution=32,
        outputs=(10.4538, -0.70589, 11.4469, -2.89089),
        multiply_adds=17.564e9,
    ),
    # At 72, windows are filled up with zeros, shifted, and a side is odd.
    "swin_t": Published(
        parameters=28_288_354,
        tensors=185,
        names="2ed380563dd27a06",
        resolution=72,
        outputs=(11.899, -0.770921, 11.5198, -0.646128),
        multiply_adds=4.491e9,
    ),
}
# Keras publishes the first; the second is that of the U-Net that unet.py names.
OTHERS = {"mobilenet_v1": 4_231_976, "unet": 31_037_698}


def on_meta(name: str, **arguments: int) -> nn.Module:
    with torch.device("meta"):
        return models.build(name, **arguments)


@pytest.mark.parametrize("name", [*PUBLISHED, *OTHERS])
def test_parameters_are_as_published(name: str) -> None:
    expected = PUBLISHED[name].parameters if name in PUBLISHED else OTHERS[name]
    assert sum(parameter.numel() for parameter in on_meta(name).parameters()) == expected
    assert ZOO[name].parameters == expected


@pytest.mark.parametrize("name", PUBLISHED)
def test_state_dict_is_the_published_one(name: str) -> None:
    state = on_meta(name).state_dict()
    assert len(state) == PUBLISHED[name].tensors
    assert digest(state) == PUBLISHED[name].names


@pytest.mark.whole_network
@pytest.mark.parametrize("name", PUBLISHED)
def test_outputs_are_as_published(name: str) -> None:
    published = PUBLISHED[name]
    if name == "swin_t":  # has a buffer outside the state dict, which only its constructor knows
        model = models.build(name, resolution=published.resolution)
    else:
        model = on_meta(name, resolution=published.resolution).to_empty(device="cpu")
    fill(model).eval()
    with torch.no_grad():
        logits = model(images(3, published.resolution))
    expected = torch.tensor(published.outputs).view(2, 2)
    torch.testing.assert_close(logits[:, :2], expected, rtol=1e-3, atol=1e-4)


@pytest.mark.whole_network
@pytest.mark.parametrize("name", [*PUBLISHED, "mobilenet_v1"])
def test_work_is_as_published(name: str) -> None:
    expected = PUBLISHED[name].multiply_adds if name in PUBLISHED else 569e6  # the paper's table 4
    with FlopCounterMode(display=False) as counter:
        on_meta(name).eval()(torch.empty(1, 3, 224, 224, device="meta"))
    assert counter.get_total_flops() / 2 == pytest.approx(expected, rel=4e-3)


def test_vit_has_a_position_for_each_patch() -> None:
    small, usual = (on_meta("vit_b_16", resolution=side) for side in (32, 224))
    assert small.get_parameter("encoder.pos_embedding").shape == (1, 1 + 2 * 2, 768)
    assert usual.get_parameter("encoder.pos_embedding").shape == (1, 1 + 14 * 14, 768)
    with pytest.raises(ValueError, match="vit_b_16 needs a resolution that is a multiple of 16"):
        models.build("vit_b_16", resolution=40)


def test_the_class_of_each_pixel_is_as_large_as_the_image() -> None:
    image = torch.empty(1, 3, 32, 48, device="meta")
    assert on_meta("unet", classes=4)(image).shape == (1, 4, 32, 48)


def test_unet_joins_what_the_way_down_saw() -> None:
    """Without the deeper features, a pixel's class still follows from its neighbours."""
    torch.manual_seed(0)
    network = UNet(1, 1, widths=(4, 8, 16)).eval()
    image = torch.randn(1, 1, 16, 16, requires_grad=True)
    nn.init.zeros_(network.up[-1].up.weight)
    network(image)[0, 0, 0, 0].backward()
    reached = image.grad[0, 0] != 0
    assert reached[:5, :5].any()  # four 3x3 convolutions
    assert not reached[5:].any()
    assert not reached[:, 5:].any()


# ---------------------------------------------------------------- windows


def test_attention_does_not_leave_its_window_nor_wrap_around() -> None:
    torch.manual_seed(0)
    attention = WindowAttention(8, heads=2, size=2 * WINDOW, shift=3).eval()
    image = torch.randn(1, 2 * WINDOW, 2 * WINDOW, 8, requires_grad=True)
    attention(image)[0, 0, 0].sum().backward()
    reached = image.grad[0].abs().sum(-1) > 1e-9
    # The windows begin at 3: the corner's own part is 3 x 3, and what wrapped is far.
    assert reached[:3, :3].all()
    assert reached.sum() == 9


def test_one_window_is_not_shifted() -> None:
    block = SwinBlock(8, heads=2, size=WINDOW, shift=3, dropped=0.0)
    assert block.attn.shift == 0


# ---------------------------------------------------------------- random layers, initialisation


def test_stochastic_depth_grows_as_published() -> None:
    def dropped(name: str) -> Counter[float]:
        layers = [m for m in on_meta(name).modules() if isinstance(m, StochasticDepth)]
        return Counter(round(layer.p, 6) for layer in layers)

    residual = (2, 4, 6, 7, 9, 10, 12, 13, 14)  # blocks of EfficientNet-B0 with a sum
    assert dropped("efficientnet_b0") == Counter(round(0.2 * i / 16, 6) for i in residual)
    assert dropped("convnext_tiny") == Counter(round(0.1 * i / 17, 6) for i in range(18))
    assert dropped("swin_t") == Counter(round(0.2 * i / 11, 6) for i in range(12))


@pytest.mark.whole_network
@pytest.mark.parametrize("name", ["shufflenet_v2", "efficientnet_b0", "mobilenet_v1"])
def test_every_parameter_has_a_gradient(name: str) -> None:
    torch.manual_seed(0)
    model = models.build(name, classes=5, resolution=32)
    functional.cross_entropy(
        model(torch.randn(4, 3, 32, 32)), torch.tensor([1, 4, 0, 2])
    ).backward()
    for parameter_name, parameter in model.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert parameter.grad.isfinite().all(), parameter_name


def test_parameters_outside_layers_are_drawn_from_the_seed() -> None:
    def states(make: type[nn.Module], *arguments: int) -> list[dict[str, torch.Tensor]]:
        found = []
        for _ in range(2):
            module = make(*arguments)
            initialise(module, "default", 7)
            found.append(module.state_dict())
        return found

    for make, arguments in ((WindowAttention, (8, 2, 7, 0)), (VisionTransformer, (1, 2, 32, 1))):
        first, second = states(make, *arguments)
        assert all(torch.equal(first[name], second[name]) for name in first)
    assert first["encoder.pos_embedding"].std() == pytest.approx(0.02, rel=0.1)
    assert not first["class_token"].any()
