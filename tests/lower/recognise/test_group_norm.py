"""Group norm and instance norm of images at `cudnn`: the pass that keeps them, its kernels against
float64, and what a plan moves for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from golow.levels.direct.cudnn.operators import group_norm as kernels
from golow.lower.ir.clean_up import CLEAN_UP
from golow.lower.operators.group_norm import GroupMoments, GroupNormGradients
from golow.lower.operators.layer_norm import LayerNorm
from golow.lower.plan.memory_traffic import moves_only
from golow.lower.recognise.group_norm import keep_group_norm
from golow.records.workload import Mode
from support.direct.cuda_host import run, run_sums
from support.direct.cuda_on_cpu import follow
from support.direct.cudnn_plans import AskedEngines, built, lowered
from support.direct.kernel_compilation import assert_compile
from support.direct.kernel_launches import torch_type
from support.direct.norm_cases import empty, seen
from support.examples import examples
from support.graphs.drawn_values import drawn
from support.graphs.lowering import Case, count

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.engines.engines import Engines

CHANNELS = 12
NORMS = [(1, True), (4, True), (4, False), (12, True), (0, True), (0, False)]
NORMS_OF_VOLUMES = [(4, True), (1, False), (0, True), (0, False)]
both_modes = pytest.mark.parametrize("mode", ["infer", "train"])


class Block(nn.Module):
    """A residual block as in diffusion models: norm, SiLU and convolution, twice."""

    def __init__(self, groups: int, affine: bool = True) -> None:
        """groups: 0 for instance norm."""
        super().__init__()
        self.first = nn.Conv2d(3, CHANNELS, 1)
        self.norms = nn.ModuleList(
            nn.GroupNorm(groups, CHANNELS, affine=affine)
            if groups
            else nn.InstanceNorm2d(CHANNELS, affine=affine)
            for _ in range(2)
        )
        self.convs = nn.ModuleList(nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1) for _ in range(2))
        self.last = nn.Linear(CHANNELS, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = start = self.first(x)
        for norm, conv in zip(self.norms, self.convs, strict=True):
            x = conv(nn.functional.silu(norm(x)))
        result: Tensor = self.last((start + x).mean((2, 3)))
        return result


# ---------------------------------------------------------------- the pass


@both_modes
@pytest.mark.parametrize(("groups", "affine"), NORMS)
def test_every_pass_keeps_what_it_means(groups: int, affine: bool, mode: Mode) -> None:
    torch.manual_seed(0)
    case = Case(Block(groups, affine), torch.randn(2, 3, 5, 4) + 1, mode=mode)
    graph = case.lowered("cudnn")
    assert count(graph, GroupMoments) == 2
    assert count(graph, GroupNormGradients) == (2 if mode == "train" else 0)
    assert count(graph, LayerNorm) == 0


@pytest.mark.slow
@both_modes
def test_one_image_is_normed_alike(mode: Mode) -> None:
    case = Case(Block(0), torch.randn(1, 3, 5, 4), mode=mode)
    assert count(case.lowered("cudnn"), GroupMoments) == 2


class OfVolumes(nn.Module):
    """As in networks for volumes: convolution, norm, activation, twice."""

    def __init__(self, groups: int, affine: bool = True) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for channels in (8, 16):
            norm = (
                nn.GroupNorm(groups, 16, affine=affine)
                if groups
                else nn.InstanceNorm3d(16, affine=affine)
            )
            layers += [nn.Conv3d(channels, 16, 3, padding=1), norm, nn.LeakyReLU()]
        self.layers = nn.Sequential(*layers, nn.Flatten())

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.layers(x)
        return result


@both_modes
@pytest.mark.parametrize(("groups", "affine"), NORMS_OF_VOLUMES)
def test_volumes_are_normed_as_images(groups: int, affine: bool, mode: Mode) -> None:
    torch.manual_seed(0)
    case = Case(OfVolumes(groups, affine), torch.randn(2, 8, 3, 5, 4) + 1, mode=mode)
    graph = case.lowered("cudnn")
    assert count(graph, GroupMoments) == 2
    assert count(graph, GroupNormGradients) == (2 if mode == "train" else 0)
    made, _ = built(OfVolumes(groups, affine), mode, "bf16", 2, 8, 3, 5, 4)
    sizes = {(2, 16, 3, 5, 4), (2, 16, 15, 4), (6, 16, 5, 4)}
    moved = [s for s in made.plan.steps if moves_only(s) and s.reads and s.reads[0].shape in sizes]
    assert not [step for step in moved if not step.once and step.phase == "forward"][:-1]


class InPlace(nn.Module):
    """Its result, and then what it has read, change in place."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(3, 6, 1), nn.GroupNorm(3, 6)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        y = self.norm(x).relu_()
        x.mul_(2)
        return (y.add_(x).flatten(1)[:, :5]).contiguous()


def test_changes_in_place_stay_behind_the_norm() -> None:
    case = Case(InPlace(), torch.randn(2, 3, 5, 4))
    assert count(case.lowered("cudnn"), GroupMoments) == 1


def test_what_is_no_image_is_unfolded() -> None:
    case = Case(nn.GroupNorm(2, 6), torch.randn(3, 6, 5))
    assert count(case.after(*CLEAN_UP, keep_group_norm), GroupMoments) == 0
    assert count(case.lowered("cudnn"), LayerNorm) == 1


def test_running_statistics_are_no_moments() -> None:
    """Which instance norm takes in inference if it has them."""
    norm = nn.InstanceNorm2d(4, track_running_stats=True)
    case = Case(norm, torch.randn(2, 4, 5, 6))
    assert count(case.after(*CLEAN_UP, keep_group_norm), GroupMoments) == 0
    case.lowered("cudnn")


class AlsoGives(nn.Module):
    """Group norm by ATen's own function, whose mean the network returns, too."""

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y, mean, _ = torch.native_group_norm(x, None, None, len(x), 4, 30, 2, 1e-5)
        return y, mean


def test_a_mean_that_is_read_is_left() -> None:
    case = Case(AlsoGives(), torch.randn(2, 4, 5, 6))
    assert count(case.after(*CLEAN_UP, keep_group_norm), GroupMoments) == 0
    case.lowered("cudnn")


# ---------------------------------------------------------------- the kernels

SIZES = st.tuples(
    st.integers(1, 3),
    st.sampled_from([1, 7, 8, 100, 3000]),
    st.sampled_from([(6, 3), (8, 1), (64, 32), (80, 2), (72, 6), (20, 20)]),
)  # fmt: skip
TYPES = st.sampled_from(["float32", "bfloat16"])


def moments(x: Tensor, groups: int, dtype: str, epsilon: float) -> tuple[Tensor, Tensor]:
    """Of images [N, rows, C], by the kernels."""
    sizes = images, _, channels = (x.shape[0], x.shape[1], x.shape[2])
    sums = empty(2, images, channels)
    mean, deviation = empty(images, channels), empty(images, channels)
    run_sums(kernels.moments_of_channels(dtype, sizes), seen(x), seen(sums))
    run(kernels.moments_of_groups(dtype, sizes, groups, epsilon), seen(x, sums, mean, deviation))
    alone = kernels.moments_of_whole_groups(dtype, sizes, groups, epsilon)
    if alone is not None:
        at_once = [empty(images, channels) for _ in range(2)]
        run(alone, seen(x, *at_once))
        for one, two in zip(at_once, (mean, deviation), strict=True):
            torch.testing.assert_close(one, two, rtol=1e-5, atol=1e-5)
    return mean, deviation


def test_small_images_take_one_launch() -> None:
    """Where a block has no more than it reads in few rounds, and groups of which it has all."""

    def blocks(rows: int, channels: int, groups: int, dtype: str = "bfloat16") -> int:
        found = kernels.moments_of_whole_groups(dtype, (8, rows, channels), groups, 1e-5)
        return 0 if found is None else found.grid[0]

    assert blocks(1024, 64, 16) == 8 * 4  # 16 channels, a sector of memory
    assert blocks(256, 384, 16) == 8 * 16  # 24 channels, a group
    assert blocks(64, 12, 1, "float32") == 8
    assert blocks(4096, 64, 16) == 0 and blocks(64, 512, 1) == 0


def wanted_moments(x: Tensor, groups: int, epsilon: float) -> list[Tensor]:
    image = x.double().transpose(1, 2)[..., None]
    return [t.flatten(1) for t in GroupMoments.meaning(image, groups, epsilon)]


@pytest.mark.slow
@examples(24)
@given(sizes=SIZES, dtype=TYPES, weighted=st.booleans(), seed=st.integers(0, 99))
def test_sums_against_float64(
    sizes: tuple[int, int, tuple[int, int]], dtype: str, weighted: bool, seed: int
) -> None:
    images, rows, (channels, groups) = sizes
    torch.manual_seed(seed)
    x, gradient = (
        (torch.randn(images, rows, channels) + 2).to(torch_type(dtype)) for _ in range(2)
    )
    mean, deviation = moments(x, groups, dtype, 1e-2)
    for found, wanted in zip((mean, deviation), wanted_moments(x, groups, 1e-2), strict=True):
        torch.testing.assert_close(found.double(), wanted, rtol=1e-5, atol=1e-5)
    weight = torch.rand(channels) + 0.5 if weighted else None
    shape = (images, rows, channels)
    sums, of_x = empty(2, images, channels), [empty(images, channels) for _ in range(3)]
    vectors = [empty(channels) for _ in range(2)]
    of_channels = kernels.gradients_of_channels(dtype, dtype, shape)
    run_sums(of_channels, seen(gradient, x, mean, deviation), seen(sums))
    of_groups = kernels.gradients_of_groups(shape, groups)
    run(of_groups, seen(sums, deviation, weight, *of_x))
    run(kernels.gradients_of_vectors(shape), seen(sums, *vectors))
    g, image = (t.double().transpose(1, 2)[..., None] for t in (gradient, x))
    exact = None if weight is None else weight.double()
    wide = [t.double()[..., None, None] for t in (mean, deviation)]
    expected = GroupNormGradients.meaning(g, image, *wide, exact, groups)
    made = (*of_x, *vectors, sums[1], sums[0])
    for found, wanted in zip(made, expected, strict=True):
        limit = 1e-5 * max(float(wanted.abs().max()), 1.0)
        torch.testing.assert_close(
            found.double(), wanted.reshape(found.shape), rtol=1e-4, atol=limit
        )


@pytest.mark.parametrize("case", ["far from zero", "the first row stands out"])
def test_the_variance_does_not_cancel(case: str) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 3000, 64)
    if case == "far from zero":
        x += 1000
    else:
        x[:, 0] += 1000
    mean, deviation = moments(x, 32, "float32", 1e-5)
    expected = wanted_moments(x, 32, 1e-5)
    torch.testing.assert_close(mean.double(), expected[0], rtol=1e-6, atol=1e-4)
    torch.testing.assert_close(deviation.double(), expected[1], rtol=1e-4, atol=0)


def test_the_kernels_compile() -> None:
    sizes = (2, 49, 64)
    assert_compile(
        kernel
        for dtype in ("float32", "bfloat16", "float16")
        for kernel in (
            kernels.moments_of_channels(dtype, sizes).kernel,
            kernels.moments_of_groups(dtype, sizes, 4, 1e-5),
            kernels.moments_of_whole_groups(dtype, sizes, 4, 1e-5),
            kernels.gradients_of_channels("float32", dtype, sizes).kernel,
            kernels.gradients_of_groups(sizes, 4),
            kernels.gradients_of_vectors(sizes),
        )
        if kernel is not None
    )


def test_more_groups_than_a_launch_takes_are_refused() -> None:
    with pytest.raises(ValueError, match="groups; the limit is 67108863"):
        kernels.gradients_of_groups((2**21, 1, 64), 64)


# ---------------------------------------------------------------- plans


@pytest.mark.slow
@both_modes
@pytest.mark.parametrize(("groups", "affine"), [(4, True), (4, False), (0, True)])
def test_every_value_is_where_the_plan_says(groups: int, affine: bool, mode: Mode) -> None:
    torch.manual_seed(0)
    graph = lowered(Block(groups, affine), mode, (2, 3, 6, 5))
    tensors = {item.value.name: drawn(item.value) for item in graph.inputs}
    follow(graph, cast("Engines", AskedEngines()), tensors)


@both_modes
@pytest.mark.parametrize("groups", [4, 0])
@pytest.mark.parametrize("small", [True, False])
def test_a_norm_moves_nothing_for_its_layout(
    small: bool, groups: int, mode: Mode, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not small:
        monkeypatch.setattr(kernels, "MOST_BYTES", 0)
    made, _ = built(Block(groups), mode, "bf16", 2, 3, 6, 5)
    image = (2, CHANNELS, 6, 5)
    steps = [s for s in made.plan.steps if any(o.shape == image for o in (*s.reads, *s.writes))]
    assert not any(map(moves_only, steps))
    moments = [s for s in made.plan.steps if s.operation == "group_moments"]
    moved = [any(o.shape == image and o.bytes for o in s.reads) for s in moments]
    assert moved == ([True] if small else [True, False]) * 2
    fused = [s for s in made.plan.steps if s.operation == "fused" and s.phase == "forward"]
    assert [sum(o.shape == image for o in s.writes) for s in fused][:2] == [
        1 + (mode == "train")
    ] * 2
