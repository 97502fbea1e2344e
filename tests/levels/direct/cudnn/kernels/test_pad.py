"""Padding at `cudnn`: one kernel, on this processor and on a GPU, and in plans."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as some
from torch import Tensor, nn
from torch.nn import functional

from golow.levels.direct.cudnn.operators.pad import kernel_of
from golow.levels.direct.cudnn.shared_kernels import Kernel
from golow.levels.direct.kernel_views import View
from support.direct.cudnn_plans import assert_sound, built
from support.direct.kernel_compilation import assert_compile
from support.direct.kernel_launches import gpu, on_host, run, torch_type
from support.examples import examples

__all__ = ["gpu"]  # a fixture


class Drawn(NamedTuple):
    """A tensor, what is added along each axis before and behind it, in which order of the axes both
    are stored, and where the tensor begins."""

    sizes: tuple[int, ...]
    before: tuple[int, ...]
    behind: tuple[int, ...]
    order: tuple[int, ...]
    start: int = 0
    dtype: str = "float32"

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(map(sum, zip(self.sizes, self.before, self.behind, strict=True)))


@some.composite
def paddings(draw: some.DrawFn) -> Drawn:
    rank = draw(some.integers(1, 5))
    sizes = [draw(some.sampled_from([1, 2, 3, 8])) for _ in range(rank)]
    sides = [tuple(draw(some.sampled_from([-(n // 2), 0, 1, 8])) for n in sizes) for _ in range(2)]
    order, start = draw(some.permutations(range(rank))), draw(some.sampled_from([0, 3, 8]))
    dtype = draw(some.sampled_from(["float32", "bfloat16", "int64"]))
    return Drawn(tuple(sizes), sides[0], sides[1], tuple(order), start, dtype)


def strides(shape: tuple[int, ...], order: tuple[int, ...]) -> tuple[int, ...]:
    """Of a dense tensor whose axes are in this order."""
    found, step = [0] * len(shape), 1
    for axis in reversed(order):
        found[axis], step = step, step * shape[axis]
    return tuple(found)


def kernel(drawn: Drawn) -> Kernel:
    here = View(drawn.dtype, strides(drawn.sizes, drawn.order), drawn.start)
    there = View(drawn.dtype, strides(drawn.shape, drawn.order))
    return kernel_of(here, there, drawn.sizes, drawn.shape, drawn.before, "2.0f")


def assert_right(drawn: Drawn, launch: Any) -> None:
    generator = torch.Generator().manual_seed(0)
    count = drawn.start + torch.Size(drawn.sizes).numel()
    memory = torch.randint(-99, 99, (count,), generator=generator).to(torch_type(drawn.dtype))
    found = torch.empty(torch.Size(drawn.shape).numel(), dtype=memory.dtype)
    launch(kernel(drawn), [memory], [found])
    x = memory.as_strided(drawn.sizes, strides(drawn.sizes, drawn.order), drawn.start)
    pairs = zip(reversed(drawn.before), reversed(drawn.behind), strict=True)
    expected: Tensor = functional.pad(x, [side for pair in pairs for side in pair], value=2.0)
    made = found.as_strided(drawn.shape, strides(drawn.shape, drawn.order))
    assert torch.equal(made, expected)


PLANES = Drawn((6, 8, 5, 7), (3, 0, 0, 0), (1, 0, 0, 0), (0, 2, 3, 1), 8, "bfloat16")
LARGE = Drawn((40, 24, 33, 65), (8, 0, 1, 2), (8, 0, 1, 1), (0, 2, 3, 1), 8, "bfloat16")


@pytest.mark.slow
@examples(40)
@example(PLANES)
@given(paddings().filter(lambda drawn: 0 not in drawn.shape))
def test_it_is_right(drawn: Drawn) -> None:
    assert_right(drawn, on_host)


def test_channels_are_moved_as_vectors() -> None:
    assert "#define WIDTH 8" in kernel(PLANES).code
    assert "#define WIDTH 1" in kernel(PLANES._replace(start=3)).code
    assert "#define WIDTH 4" in kernel(PLANES._replace(before=(0, 4, 0, 0))).code


def test_it_compiles() -> None:
    dtypes = ("float32", "bfloat16", "float16", "int64", "int32", "uint8", "bool")
    assert_compile(kernel(PLANES._replace(dtype=dtype)) for dtype in dtypes)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64"])
def test_on_a_gpu(gpu: Any, dtype: str) -> None:
    assert_right(LARGE._replace(dtype=dtype), lambda *given_: run(gpu, *given_))


class Same(nn.Module):
    """Pooling as TensorFlow pads it."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 16, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = functional.pad(self.first(x), (0, 1, 0, 1), value=-1.0)
        return functional.max_pool2d(x, 2).flatten(1)


def test_an_image_is_padded_in_one_step_and_keeps_its_layout() -> None:
    made, _ = built(Same(), "infer", "bf16", 2, 3, 9, 9)
    assert_sound(made)
    steps = [step.operation for step in made.plan.steps if not step.once]
    assert steps.count("pad") == 1 and steps[steps.index("pad") + 1] == "max_pool"
