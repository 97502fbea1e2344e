"""Images and volumes in another size at `cudnn`: the kernels on this processor and on a GPU, and in
plans."""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as some
from torch import Tensor, nn
from torch.nn import functional

from golow.levels.direct.cudnn.operators.resample import Images, backward, forward
from golow.levels.direct.cudnn.shared_kernels import Kernel
from golow.lower.operators.resample import Mode, Resample
from golow.records.workload import Mode as Running
from support.direct.cuda_on_cpu import follow
from support.direct.cudnn_plans import AskedEngines, assert_sound, built
from support.direct.kernel_compilation import assert_compile
from support.direct.kernel_launches import gpu, on_host, run, torch_type
from support.examples import examples
from support.graphs.drawn_values import drawn as drawn_value
from support.graphs.lowering import Case, count
from support.models.resized_networks import WHOLE, image

__all__ = ["gpu"]  # a fixture

ROUNDING = {"float32": 1e-5, "bfloat16": 1e-2, "float16": 2e-3}


class Drawn(NamedTuple):
    """Images [n, depth, height, width, channels], and another size. gap: channels between the
    result's pixels that belong to another tensor."""

    n: int
    size: tuple[int, int, int]
    channels: int
    result: tuple[int, int, int]
    mode: Mode
    gap: int = 0
    dtype: str = "float32"

    @property
    def images(self) -> Images:
        return Images(self.n, self.size, self.channels)

    @property
    def shape(self) -> tuple[int, ...]:
        return (self.n, *self.size, self.channels)


@some.composite
def sizes(draw: some.DrawFn) -> Drawn:
    mode: Mode = draw(some.sampled_from(["nearest", "linear"]))
    volume = draw(some.booleans())
    size = [draw(some.integers(1, 5)) if volume else 1, *(draw(some.integers(1, 7)) for _ in "ab")]
    factors = [draw(some.integers(1, 4)) for _ in size]
    larger = [n * factor for n, factor in zip(size, factors, strict=True)]
    result = larger if mode == "nearest" else [draw(some.integers(1, 9)) for _ in size]
    if not volume:
        result[0] = 1
    channels, gap = draw(some.sampled_from([1, 3, 4, 8, 24])), draw(some.sampled_from([0, 3, 8]))
    return Drawn(
        draw(some.integers(1, 3)), cast("Any", tuple(size)), channels, cast("Any", tuple(result)),
        mode, gap, draw(some.sampled_from(list(ROUNDING))),
    )  # fmt: skip


def operand(drawn: Drawn, size: tuple[int, int, int]) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(drawn.n, *size, drawn.channels, generator=generator)
    return values.to(torch_type(drawn.dtype))


def resized(x: Tensor, drawn: Drawn) -> Tensor:
    """In float64, channels last."""
    first = x.double().movedim(-1, 1)
    mode = {"nearest": "nearest", "linear": "trilinear"}[drawn.mode]
    align = {} if drawn.mode == "nearest" else {"align_corners": False}
    return functional.interpolate(first, drawn.result, mode=mode, **align).movedim(1, -1)  # type: ignore[arg-type]


def kernels(drawn: Drawn) -> tuple[Kernel, Kernel]:
    wide = Images(drawn.n, drawn.result, drawn.channels + drawn.gap)
    forth = forward(
        drawn.dtype, drawn.images, drawn.result, drawn.mode, drawn.images.dense, wide.dense
    )
    return forth, backward(drawn.dtype, drawn.images, drawn.result, drawn.mode)


def assert_right(drawn: Drawn, launch: Any) -> None:
    forth, back = kernels(drawn)
    limit = ROUNDING[drawn.dtype]
    x = operand(drawn, drawn.size)
    y = torch.zeros(drawn.n, *drawn.result, drawn.channels + drawn.gap, dtype=x.dtype)
    launch(forth, [x], [], [y])  # what is between pixels stays
    found, between = y.double().split([drawn.channels, drawn.gap], -1)
    torch.testing.assert_close(found, resized(x, drawn), rtol=limit, atol=limit)
    assert not between.any()

    gradient, dx = operand(drawn, drawn.result), torch.empty_like(x)
    launch(back, [gradient], [dx])
    leaf = torch.zeros(drawn.shape, dtype=torch.float64, requires_grad=True)
    (right,) = torch.autograd.grad(resized(leaf, drawn), leaf, gradient.double())
    torch.testing.assert_close(dx.double(), right, rtol=4 * limit, atol=4 * limit)


LARGE = Drawn(2, (1, 19, 33), 64, (1, 38, 66), "linear", gap=32, dtype="bfloat16")


@pytest.mark.slow
@examples(40)
@example(LARGE._replace(n=1, channels=8, gap=8))
@given(sizes())
def test_it_is_right(drawn: Drawn) -> None:
    assert_right(drawn, on_host)


def test_it_compiles() -> None:
    modes: tuple[Mode, ...] = ("nearest", "linear")
    assert_compile(
        kernel
        for dtype in ROUNDING
        for mode in modes
        for channels in (3, 64)
        for kernel in kernels(LARGE._replace(dtype=dtype, mode=mode, channels=channels))
    )


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ROUNDING)
@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("volume", [False, True])
def test_on_a_gpu(gpu: Any, dtype: str, mode: Mode, volume: bool) -> None:
    drawn = LARGE._replace(dtype=dtype, mode=mode)
    if volume:
        drawn = drawn._replace(size=(5, 19, 33), result=(15, 38, 66))
    assert_right(drawn, lambda *given_: run(gpu, *given_))


# ---------------------------------------------------------------- in plans


@pytest.mark.parametrize("mode", ["infer", "train"])
@pytest.mark.parametrize("name", WHOLE)
def test_every_value_is_where_the_plan_says(name: str, mode: Running) -> None:
    torch.manual_seed(0)
    graph = Case(WHOLE[name], image(WHOLE[name]), mode=mode).lowered("cudnn")
    assert count(graph, Resample) == 1
    tensors = {item.value.name: drawn_value(item.value) for item in graph.inputs}
    follow(graph, cast("Any", AskedEngines()), tensors)


class Skip(nn.Module):
    """As in a U-Net: the image in twice its size, beside what it was made of."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.up = nn.Conv2d(8, 16, 3, 2, 1), nn.Conv2d(24, 8, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        small = self.down(x).relu()
        return self.up(torch.cat([functional.interpolate(small, scale_factor=2.0), x], 1))


def test_an_image_is_resized_to_where_it_is_joined() -> None:
    """Without a copy, and without a change of layout."""
    made, _ = built(Skip(), "infer", "bf16", 2, 8, 16, 16)
    assert_sound(made)
    steps = [step.operation for step in made.plan.steps if not step.once]
    assert steps == ["fetch", "convolution", "resample", "concatenate", "convolution"]
