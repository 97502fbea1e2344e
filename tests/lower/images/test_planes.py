"""Volumes as planes, as `cudnn` computes them: what the passes make means the same, and the plan
has every value in its place and copies no planes."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as some
from torch import Tensor, nn

from golow.lower.images import plane_convolutions
from golow.lower.images.plane_convolutions import convolve_side_by_side
from golow.lower.images.plane_pooling import norm_by_planes, pool_by_planes
from golow.lower.ir.clean_up import CLEAN_UP
from golow.lower.operators.activation import Activate
from golow.lower.operators.batch_norm import BatchNormInference
from golow.lower.operators.convolution import Convolution, ConvolutionBackward
from golow.lower.operators.max_pool import MaxPool, MaxPoolBackward
from golow.lower.plan.memory_traffic import moves_only
from golow.lower.views.view_sinking import activate_before_views
from golow.records.workload import Mode, Precision
from support.direct.cuda_on_cpu import follow
from support.direct.cudnn_plans import AskedEngines, assert_sound, built
from support.examples import examples
from support.graphs.drawn_values import drawn
from support.graphs.lowering import Case, assert_close, count, records
from support.models.volume_networks import NETWORKS, conv, seeded

both_modes = pytest.mark.parametrize("mode", ["infer", "train"])


def volumes(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


@pytest.fixture(params=["whole", "unfolded"])
def convolutions(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Whether convolutions of volumes are one operator where they may be, or never."""
    if request.param == "unfolded":
        monkeypatch.setattr(plane_convolutions, "ALIGNED", 1 << 20)
    return str(request.param)


@both_modes
@pytest.mark.parametrize("name", NETWORKS)
def test_every_pass_keeps_what_it_means(name: str, mode: Mode) -> None:
    assert_passes(name, mode)


@both_modes
@pytest.mark.parametrize("name", ["plain", "strided", "residual", "transposed"])
def test_unfolded_every_pass_does(name: str, mode: Mode, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plane_convolutions, "ALIGNED", 1 << 20)
    assert_passes(name, mode)


def assert_passes(name: str, mode: Mode) -> None:
    case = Case(seeded(name), volumes(2, 8, 5, 6, 7), mode=mode)
    graph = case.lowered("cudnn")
    for kind in (MaxPool, MaxPoolBackward):
        assert all(len(pool.stride) == 2 for pool in records(graph, kind))


class Segmenter(nn.Module):
    """As a U-Net of volumes: transposed convolutions, and layers of single planes with any
    channels and groups beside plain ones."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.down = conv(1, 8, 3, padding=1), conv(8, 16, 2, stride=2)
        self.planes = conv(16, 16, (1, 3, 3), padding=(0, 1, 1), groups=4)
        self.up, self.last = nn.ConvTranspose3d(16, 8, 2, stride=2), conv(8, 3, 1)
        self.norm = nn.BatchNorm3d(16)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x).relu()
        inner = self.norm(self.planes(self.down(x))).relu()
        return self.last(self.up(inner) + x).flatten(1)


@pytest.mark.slow
@both_modes
def test_convolutions_of_single_planes_are_those_of_images(mode: Mode, convolutions: str) -> None:
    torch.manual_seed(0)
    case = Case(Segmenter(), volumes(2, 1, 4, 6, 6), mode=mode)
    graph = case.lowered("cudnn")
    assert_close(case.run(graph), case.run(case.graph), "segmenter")
    axes = [len(layer.stride) for layer in records(graph, Convolution)]
    axes += [len(layer.stride) for layer in records(graph, ConvolutionBackward)]
    whole = {"infer": 3, "train": 7}[mode] if convolutions == "whole" else 0
    assert axes.count(3) == whole and axes.count(2) >= 2
    if mode == "infer":
        tensors = {item.value.name: drawn(item.value) for item in graph.inputs}
        follow(graph, cast("Any", AskedEngines()), tensors)
        if convolutions == "whole":
            assert not count(graph, BatchNormInference) and not count(graph, Activate)


TEMPORAL = nn.Sequential(
    conv(8, 12, (1, 3, 3), padding=(0, 1, 1), stride=(1, 2, 1)), nn.BatchNorm3d(12), nn.ReLU(),
    conv(12, 6, (3, 1, 1), padding=(1, 0, 0), stride=(2, 1, 1), groups=2), nn.BatchNorm3d(6),
    nn.ReLU(), nn.Flatten(),
)  # fmt: skip
"""A convolution in two parts (Tran et al. 2018, R(2+1)D), of any channels and groups."""


@pytest.mark.slow
@both_modes
def test_convolutions_of_columns_are_those_of_images(mode: Mode) -> None:
    torch.manual_seed(0)
    case = Case(TEMPORAL, volumes(2, 8, 5, 6, 7), mode=mode)
    graph = case.lowered("cudnn")
    assert_close(case.run(graph), case.run(case.graph), "temporal")
    layers = records(graph, Convolution)
    assert [len(layer.stride) for layer in layers] == [2, 2]
    if mode == "infer":
        assert all(layer.activation is not None for layer in layers)
    made, _ = built(TEMPORAL, mode, "bf16", 2, 8, 5, 6, 7)
    assert_sound(made)
    steps = [step for step in made.plan.steps if not step.once and step.phase == "forward"]
    copied = [step.operation for step in steps if moves_only(step)]
    flattened = ["reshape"] if mode == "train" else []
    assert copied == ["reshape", *flattened], "the input, and what a loss reads"


IN_PLANS = [(name, "infer") for name in ("normed", "residual", "pooled", "transposed")]
IN_PLANS += [(name, "train") for name in ("strided", "pooled", "dilated")]


@pytest.mark.parametrize(("name", "mode"), IN_PLANS)
@pytest.mark.usefixtures("convolutions")
def test_every_value_is_where_the_plan_says(name: str, mode: Mode) -> None:
    graph = Case(seeded(name), volumes(2, 8, 5, 6, 7), mode=mode).lowered("cudnn")
    tensors = {item.value.name: drawn(item.value) for item in graph.inputs}
    follow(graph, cast("Any", AskedEngines()), tensors)


class Pooled(nn.Module):
    """Pooling whose input has a gradient, behind a convolution that takes each number as it is."""

    def __init__(self, **settings: Any) -> None:
        super().__init__()
        self.conv, self.pool = nn.Conv3d(8, 8, 1, bias=False), nn.MaxPool3d(**settings)
        self.conv.weight.data = torch.eye(8).reshape(8, 8, 1, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.pool(self.conv(x)).flatten(1)


@pytest.mark.slow
@examples(25)
@given(
    some.lists(some.integers(1, 3), min_size=3, max_size=3),
    some.lists(some.integers(1, 3), min_size=3, max_size=3),
    some.booleans(), some.booleans(), some.booleans(), some.integers(1, 2),
    some.sampled_from(["infer", "train"]),
)  # fmt: skip
def test_pooling_of_any_window(
    kernel: list[int], stride: list[int], padded: bool, ceil: bool, side_by_side: bool,
    apart: int, mode: Mode,
) -> None:  # fmt: skip
    """Of few different numbers: many elements of a window are equal."""
    sides = [size // 2 for size in kernel] if padded else [0, 0, 0]
    module = Pooled(
        kernel_size=tuple(kernel), stride=tuple(stride), padding=tuple(sides), dilation=apart,
        ceil_mode=ceil,
    )  # fmt: skip
    x = torch.randint(0, 3, (2, 8, 6, 5, 7), generator=torch.Generator().manual_seed(0)).float()
    case = Case(module, x, mode=mode)
    before = (convolve_side_by_side(whole=True),) if side_by_side else ()
    graph = case.after(*CLEAN_UP, *before, pool_by_planes)
    assert count(graph, MaxPool) == 1 + any(n != 1 for n in (kernel[0], stride[0]))
    assert_close(case.run(graph), case.run(case.graph), "pooling")


@pytest.mark.slow
@examples(20)
@given(
    some.integers(1, 3), some.integers(1, 3), some.integers(0, 3), some.integers(1, 2),
    some.sampled_from(["infer", "train"]),
)  # fmt: skip
def test_convolutions_of_any_depth(
    kernel: int, stride: int, padding: int, apart: int, mode: Mode
) -> None:
    torch.manual_seed(0)
    first = conv(3, 4, 1)  # so that the input of the next one has a gradient
    next_ = nn.Conv3d(4, 6, (kernel, 2, 1), (stride, 1, 2), (padding, 1, 0), (apart, 1, 1))
    module = nn.Sequential(first, next_, nn.Flatten())
    Case(module, volumes(2, 3, 5, 4, 5), mode=mode).lowered("cudnn")


def test_indices_that_others_read_stay() -> None:
    class Both(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            y, indices = nn.functional.max_pool3d(x, 2, return_indices=True)
            return y + indices

    case = Case(Both(), volumes(2, 3, 4, 4, 4))
    assert count(case.after(*CLEAN_UP, pool_by_planes), MaxPool) == 0


def test_a_norm_of_volumes_is_a_function_of_their_elements() -> None:
    """Where no convolution before it takes it in; a layer behind views of its result, too."""
    case = Case(
        nn.Sequential(nn.BatchNorm3d(8), conv(8, 8, 1), nn.Flatten()), volumes(2, 8, 3, 4, 5)
    )
    graph = case.lowered("cudnn")
    (norm,) = records(graph, BatchNormInference)
    assert graph.values()[norm.x.name].shape == (2, 8, 3, 4, 5)
    case = Case(
        nn.Sequential(conv(8, 8, 1), nn.BatchNorm3d(8), nn.Flatten()), volumes(2, 8, 3, 4, 5)
    )
    folded = case.lowered("cudnn")
    if any(len(layer.stride) == 3 for layer in records(folded, Convolution)):
        assert not count(folded, BatchNormInference)


def test_norms_of_images_stay() -> None:
    case = Case(nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4), nn.Flatten()),
                torch.randn(2, 3, 4, 4), mode="train")  # fmt: skip
    cleaned = case.after(*CLEAN_UP)
    assert norm_by_planes(cleaned) is cleaned or len(norm_by_planes(cleaned).nodes) == len(
        cleaned.nodes
    )


class Viewed(nn.Module):
    """Activations behind views, of which one is read twice."""

    def forward(self, x: Tensor) -> Tensor:
        one = (x * 2).transpose(1, 2).reshape(4, 15).relu()
        two = (x * 3).reshape(4, 15)
        return one + two.relu() + two


def test_an_activation_goes_before_the_views_that_it_alone_reads() -> None:
    case = Case(Viewed(), torch.randn(4, 3, 5))
    graph = activate_before_views(case.lowered("onednn"))
    assert_close(case.run(graph), case.run(case.graph), "views")
    shapes = [graph.values()[item.x.name].shape for item in records(graph, Activate)]
    assert (4, 3, 5) in shapes and (4, 15) in shapes


@both_modes
def test_planes_are_not_copied(mode: Mode, convolutions: str) -> None:
    """Between convolution, norm, activation and pooling, only padding moves them, and what a
    classifier reads."""
    module = nn.Sequential(
        conv(8, 16, 3, padding=1), nn.BatchNorm3d(16), nn.ReLU(), nn.MaxPool3d(2),
        conv(16, 16, 3, padding=1), nn.ReLU(), nn.MaxPool3d((1, 2, 2)), nn.Flatten(),
    )  # fmt: skip
    made, _ = built(module, mode, "bf16", 2, 8, 4, 8, 8)
    assert_sound(made)
    moving = {step.operation for step in made.plan.steps if moves_only(step) and not step.once}
    assert not moving & {"turn", "pad"} if convolutions == "whole" else "turn" not in moving
    images = (2 * 4, 16, 8, 8)
    copies = [
        step for step in made.plan.steps
        if moves_only(step) and step.operation != "pad" and step.reads[0].shape == images
    ]  # fmt: skip
    assert not copies


ON_A_GPU: dict[str, nn.Module] = {
    name: NETWORKS[name] for name in ("plain", "strided", "normed", "residual", "pooled")
}
ON_A_GPU["of an input"] = nn.Sequential(
    conv(3, 8, 3, padding=1, stride=2), nn.ReLU(), conv(8, 24, (3, 1, 1)), nn.SiLU(), nn.Flatten()
)
ON_A_GPU["segmenter"] = Segmenter()
ON_A_GPU["temporal"] = TEMPORAL
ON_A_GPU["dilated"] = nn.Sequential(conv(8, 16, 1), conv(16, 8, 2, dilation=2), nn.Flatten())


@pytest.mark.gpu
@pytest.mark.usefixtures("convolutions")
@both_modes
@pytest.mark.parametrize("precision", ["tf32", "bf16", "fp16"])
@pytest.mark.parametrize("name", ON_A_GPU)
def test_on_a_gpu(name: str, precision: Precision, mode: Mode, tmp_path: Path) -> None:
    """By the library's engines for volumes, and by those for planes."""
    if not torch.cuda.is_available():
        pytest.skip("no GPU")
    from support.direct.cudnn_in_process import OnGpu, assert_near, lowered

    torch.manual_seed(0)
    shape = {"of an input": (3, 5, 6, 7), "segmenter": (1, 4, 6, 6)}.get(name, (8, 5, 6, 7))
    x = volumes(2, *shape)
    network = lowered(ON_A_GPU[name], x, mode, loss="mse_loss", precision=precision)
    # The gradient of a weight or bias before a norm is a small difference of large numbers.
    limit = 400 if name in ("normed", "residual", "segmenter", "temporal") else 60
    assert_near(network, OnGpu(tmp_path), precision, limit)
