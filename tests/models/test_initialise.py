"""Initialisation: a function of structure and seed alone, with the distributions it states."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import Tensor, nn

from golow import models
from golow.models.initialise import INITIALISATIONS, initialise

State = dict[str, Tensor]

RESIDUAL = ("zero_gamma", "fixup")  # they need residual blocks


def initialised(module: nn.Module, name: str = "default", seed: int = 0) -> State:
    initialise(module, name, seed)
    return {key: tensor.clone() for key, tensor in module.state_dict().items()}


def equal(left: State, right: State) -> bool:
    return left.keys() == right.keys() and all(torch.equal(left[k], right[k]) for k in left)


def unlike_layers() -> nn.Module:
    """One of each kind: known layers, layers with their own reset, nested and shared ones."""
    shared = nn.Linear(8, 8)
    return nn.Sequential(
        nn.Conv1d(3, 4, 3),
        nn.ConvTranspose2d(4, 6, 2, groups=2),
        nn.Conv3d(2, 2, 1, bias=False),
        nn.BatchNorm1d(4),
        nn.InstanceNorm2d(4, affine=True, track_running_stats=True),
        nn.BatchNorm2d(4, affine=False),
        nn.LayerNorm(8),
        nn.GroupNorm(2, 4),
        nn.Embedding(5, 8, padding_idx=2),
        shared,
        nn.Sequential(shared, nn.LSTM(8, 8)),
        nn.MultiheadAttention(8, 2),
        nn.PReLU(),
    )


# ---------------------------------------------------------------- determinism


@pytest.mark.parametrize("name", [name for name in INITIALISATIONS if name not in RESIDUAL])
def test_only_structure_and_seed_matter(name: str) -> None:
    torch.manual_seed(1)
    left = initialised(unlike_layers(), name, seed=5)
    torch.manual_seed(2)
    torch.rand(3)
    right = initialised(unlike_layers(), name, seed=5)
    assert equal(left, right)
    assert not equal(left, initialised(unlike_layers(), name, seed=6))


def test_the_global_generator_is_left_alone() -> None:
    module = unlike_layers()
    before = torch.get_rng_state()
    initialise(module, "default", seed=3)
    assert torch.equal(torch.get_rng_state(), before)


def test_it_can_be_done_again() -> None:
    module = unlike_layers()
    assert equal(initialised(module), initialised(module))


def test_running_statistics_start_afresh() -> None:
    model = nn.Sequential(nn.BatchNorm2d(3), nn.BatchNorm2d(3, affine=False))
    fresh = copy.deepcopy(model.state_dict())
    model(torch.randn(4, 3, 5, 5) * 3 + 1)
    assert not equal(model.state_dict(), fresh)
    assert equal(initialised(model), fresh)


@pytest.mark.parametrize("change", ["float64", "channels_last"])
def test_dtype_and_memory_format_do_not_matter(change: str) -> None:
    plain = initialised(models.build("lenet5"), seed=4)
    model = models.build("lenet5")
    converted = (
        model.double() if change == "float64" else model.to(memory_format=torch.channels_last)
    )
    assert equal({k: t.float() for k, t in initialised(converted, seed=4).items()}, plain)


# ---------------------------------------------------------------- default


@pytest.mark.parametrize("name", ["mlp", "lenet5", "mnist_cnn", "resnet18", "mobilenet_v2"])
def test_default_is_what_pytorch_does_to_the_last_bit(name: str) -> None:
    torch.manual_seed(11)
    constructed = models.build(name)
    assert equal(initialised(models.build(name), "default", seed=11), constructed.state_dict())


@pytest.mark.parametrize(
    ("layer", "fan_in"),
    [
        (nn.Linear(400, 300), 400),
        (nn.Conv2d(40, 300, 3), 40 * 9),
        (nn.Conv2d(64, 320, 5, groups=4), 16 * 25),
        (nn.ConvTranspose2d(300, 40, 3), 40 * 9),  # PyTorch counts the second dimension
    ],
)
def test_default_has_the_bounds_of_pytorch(layer: nn.Linear | nn.Conv2d, fan_in: int) -> None:
    initialise(layer, "default", seed=0)
    bound = 1 / math.sqrt(fan_in)
    assert layer.bias is not None
    for values in (layer.weight, layer.bias):
        assert 0.9 * bound < values.abs().max() <= bound * (1 + 1e-6)
    assert_spread(layer.weight, bound / math.sqrt(3))


def test_norm_layers_and_embeddings() -> None:
    norm, layer_norm, embedding = nn.BatchNorm2d(4), nn.LayerNorm(4), nn.Embedding(400, 100, 7)
    module = nn.Sequential(norm, layer_norm, embedding)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.fill_(9.0)
    initialise(module, "xavier", seed=0)
    for layer in (norm, layer_norm):
        assert layer.weight.tolist() == [1.0] * 4
        assert layer.bias.tolist() == [0.0] * 4
    assert_spread(embedding.weight[8:], 1.0)
    assert embedding.weight[7].count_nonzero() == 0


# ---------------------------------------------------------------- the others


def assert_spread(values: Tensor, deviation: float) -> None:
    """Mean 0 and the standard deviation, within five standard errors of a normal sample."""
    size = values.numel()
    assert abs(values.mean().item()) < 5 * deviation / math.sqrt(size)
    assert values.std().item() == pytest.approx(deviation, rel=5 / math.sqrt(2 * size))


@pytest.mark.parametrize(
    ("name", "convolution_deviation", "linear_deviation"),
    [
        ("kaiming", math.sqrt(2 / (200 * 9)), 0.01),
        ("xavier", math.sqrt(2 / (50 * 9 + 200 * 9)), math.sqrt(2 / (400 + 300))),
        ("normal", 0.01, 0.01),
    ],
)
def test_spread(name: str, convolution_deviation: float, linear_deviation: float) -> None:
    convolution, linear = nn.Conv2d(50, 200, 3), nn.Linear(400, 300)
    initialise(nn.Sequential(convolution, linear), name, seed=0)
    assert_spread(convolution.weight, convolution_deviation)
    assert_spread(linear.weight, linear_deviation)
    assert convolution.bias is not None
    assert convolution.bias.count_nonzero() == linear.bias.count_nonzero() == 0


def test_xavier_is_uniform_and_kaiming_is_not() -> None:
    linear, convolution = nn.Linear(400, 300), nn.Conv2d(50, 200, 3)
    initialise(linear, "xavier", seed=0)
    assert linear.weight.abs().max() <= math.sqrt(6 / 700) * (1 + 1e-6)
    initialise(convolution, "kaiming", seed=0)
    assert convolution.weight.abs().max() > 3 * math.sqrt(2 / 1800)


# Every block of a ResNet; in MobileNetV2 all but the first block of each stage.
RESNET18 = {f"layer{layer}.{block}.bn2.weight" for layer in (1, 2, 3, 4) for block in (0, 1)}
RESNET50 = {
    f"layer{layer}.{block}.bn3.weight"
    for layer, blocks in ((1, 3), (2, 4), (3, 6), (4, 3))
    for block in range(blocks)
}
MOBILENET = {f"features.{index}.conv.3.weight" for index in (3, 5, 6, 8, 9, 10, 12, 13, 15, 16)}


@pytest.mark.parametrize(
    ("name", "targets"),
    [("resnet18", RESNET18), ("resnet50", RESNET50), ("mobilenet_v2", MOBILENET)],
)
def test_zero_gamma_zeros_the_last_norm_of_each_block(name: str, targets: set[str]) -> None:
    model = models.build(name, classes=2)
    kaiming = initialised(model, "kaiming", seed=1)
    zeroed = initialised(model, "zero_gamma", seed=1)
    changed = {key for key in kaiming if not torch.equal(kaiming[key], zeroed[key])}
    assert changed == targets
    assert all(zeroed[key].count_nonzero() == 0 for key in targets)


@pytest.mark.parametrize(
    ("name", "block", "channels"),
    [
        ("resnet18", "layer1.1", 64),
        ("resnet50", "layer1.1", 256),
        ("mobilenet_v2", "features.3", 24),
    ],
)
def test_zero_gamma_makes_each_block_the_identity(name: str, block: str, channels: int) -> None:
    model = models.build(name)
    initialise(model, "zero_gamma", seed=0)
    images = torch.rand(2, channels, 5, 5)
    torch.testing.assert_close(model.get_submodule(block)(images), images)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "blocks", "deep"), [("resnet18", 8, 2), ("resnet50", 16, 3)])
def test_fixup_scales_branches_and_zeros_their_ends(name: str, blocks: int, deep: int) -> None:
    model = models.build(name)
    kaiming, fixed = initialised(model, "kaiming", seed=1), initialised(model, "fixup", seed=1)
    scale = blocks ** (-1 / (2 * deep - 2))
    changed = {key for key in fixed if not torch.equal(fixed[key], kaiming[key])}
    for key in sorted(changed):
        if ".conv" in key:
            torch.testing.assert_close(fixed[key], scale * kaiming[key])
        else:
            assert key == "fc.weight" or f".bn{deep}.weight" in key
            assert not fixed[key].any()
    assert sum(".conv" in key for key in changed) == blocks * deep
    assert len(changed) == blocks * (deep + 1) + 1


@pytest.mark.parametrize("name", RESIDUAL)
def test_without_residual_blocks_it_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} needs residual blocks"):
        initialise(models.build("lenet5"), name, seed=0)


# ---------------------------------------------------------------- layers that golow does not know


class Scale(nn.Module):
    """Owns a parameter and has no reset."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor([0.7]))


def test_a_layer_without_a_reset_stays_as_constructed() -> None:
    module = Scale()
    initialise(module, "kaiming", seed=0)
    assert module.scale.item() == pytest.approx(0.7)


def test_attention_is_reset_after_its_children() -> None:
    """Its own reset puts the bias of the output projection, a linear layer, to 0."""
    attention = nn.MultiheadAttention(8, 2)
    initialise(attention, "default", seed=0)
    assert attention.out_proj.bias.count_nonzero() == 0
    assert attention.out_proj.weight.count_nonzero() > 0


def test_a_parametrized_weight_stays_as_constructed() -> None:
    linear = nn.utils.parametrizations.weight_norm(nn.Linear(4, 3))
    before = linear.weight.clone()
    initialise(linear, "normal", seed=0)
    assert torch.equal(linear.weight, before)


def test_a_layer_with_its_own_reset_must_be_on_the_cpu() -> None:
    with pytest.raises(ValueError, match="initialise the LSTM layer before it leaves the CPU"):
        initialise(nn.LSTM(2, 2, device="meta"), "default", seed=0)


# ---------------------------------------------------------------- names


def test_names() -> None:
    names = ["default", "kaiming", "xavier", "zero_gamma", "fixup", "normal", "transformer"]
    assert list(INITIALISATIONS) == names
    assert not any("\n" in description for description in INITIALISATIONS.values())


def test_an_unknown_name_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="no initialisation named 'he'; there are default, kai"):
        initialise(nn.Linear(1, 1), "he", 0)
