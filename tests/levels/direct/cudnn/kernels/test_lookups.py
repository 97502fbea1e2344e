"""What is read where integers say, at `cudnn`: the generated kernel alone, on drawn tables."""

from __future__ import annotations

from typing import NamedTuple

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as some
from torch import Tensor

from golow.levels.direct.cudnn.shared_kernels import Kernel
from golow.levels.direct.cudnn.shared_kernels.elements import Lookup
from golow.levels.direct.cudnn.shared_kernels.fused_pointwise import Statement, Written, fused
from golow.levels.direct.kernel_views import View
from support.direct.kernel_compilation import assert_compile
from support.direct.kernel_launches import gpu, on_host, run, torch_type
from support.examples import examples

__all__ = ["gpu"]  # a fixture


class Drawn(NamedTuple):
    """A table [outer, size, inner] with gaps between its rows, and indices for its middle axis:
    one for each row of the result, or one for each element."""

    outer: int
    size: int
    inner: int
    places: int
    gap: int = 0
    start: int = 0
    each: bool = False
    dtype: str = "float32"
    seed: int = 0


DRAWN = some.builds(
    Drawn,
    some.integers(1, 3), some.integers(1, 40), some.sampled_from([1, 3, 8, 24, 64]),
    some.integers(1, 50), some.sampled_from([0, 1, 8]), some.sampled_from([0, 3, 8]),
    some.booleans(), some.sampled_from(["float32", "bfloat16", "int64"]), some.integers(0, 99),
)  # fmt: skip
# Enough elements for vectors, with rows that are at multiples of them, or not.
LONG = Drawn(3, 40, 512, 190, gap=8, start=8, dtype="bfloat16")


def row(drawn: Drawn) -> int:
    return drawn.inner + drawn.gap


def kernel(drawn: Drawn) -> Kernel:
    """y = the table's element, and its double, of which both are stored."""
    shape = (drawn.outer, drawn.places, drawn.inner)
    index = View("int64", (0, drawn.inner, 1) if drawn.each else (0, 1, 0))
    table = View(drawn.dtype, (drawn.size * row(drawn), 0, 1), drawn.start)
    dense = (drawn.places * drawn.inner, drawn.inner, 1)
    return fused(
        [Statement("t0", drawn.dtype, "2 * x1")],
        [index, table],
        [Written(name, View(drawn.dtype, dense)) for name in ("x1", "t0")],
        shape,
        tables={1: [Lookup(0, drawn.size, row(drawn))]},
    )


def operands(drawn: Drawn) -> tuple[Tensor, Tensor, Tensor]:
    """Indices, of which some count from the end; the table's memory; what is to be read."""
    generator = torch.Generator().manual_seed(drawn.seed)
    memory = torch.randint(
        -99, 99, (drawn.start + drawn.outer * drawn.size * row(drawn),), generator=generator
    ).to(torch_type(drawn.dtype))
    shape = (drawn.places, drawn.inner) if drawn.each else (drawn.places, 1)
    index = torch.randint(-drawn.size, drawn.size, shape, generator=generator)
    table = memory[drawn.start :].view(drawn.outer, drawn.size, row(drawn))[..., : drawn.inner]
    wide = (index % drawn.size).expand(drawn.places, drawn.inner)
    return index, memory, table.gather(1, wide.expand(drawn.outer, -1, -1))


def results(expected: Tensor) -> list[Tensor]:
    return [torch.empty_like(expected).contiguous() for _ in range(2)]


@pytest.mark.slow
@examples(40)
@example(LONG)
@example(LONG._replace(start=4))
@example(LONG._replace(each=True))
@given(DRAWN)
def test_elements_are_those_of_the_table(drawn: Drawn) -> None:
    index, memory, expected = operands(drawn)
    found = results(expected)
    on_host(kernel(drawn), [index, memory], found)
    assert torch.equal(found[0], expected) and torch.equal(found[1], 2 * expected)


def test_rows_are_read_as_vectors() -> None:
    """An index that is the same for a thread's elements is read once."""
    code = kernel(LONG).code
    assert "x1_values = load<WIDTH>" in code and "const auto x0 = plain" in code
    for other in (LONG._replace(start=4), LONG._replace(gap=1), LONG._replace(each=True)):
        assert "x1_values" not in kernel(other).code


def test_it_compiles() -> None:
    assert_compile(
        kernel(LONG._replace(dtype=dtype, each=each))
        for dtype in ("float32", "bfloat16", "float16", "int64")
        for each in (True, False)
    )


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64"])
@pytest.mark.parametrize("start", [3, 8])
@pytest.mark.parametrize("each", [True, False])
def test_on_a_gpu(gpu: object, dtype: str, start: int, each: bool) -> None:
    drawn = LONG._replace(dtype=dtype, start=start, each=each)
    index, memory, expected = operands(drawn)
    found = results(expected)
    run(gpu, kernel(drawn), [index, memory], found)
    assert torch.equal(found[0], expected) and torch.equal(found[1], 2 * expected)
