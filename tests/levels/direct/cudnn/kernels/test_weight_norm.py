"""The kernel that normalises weights, of several layers in a launch, run on this processor."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from golow.levels.direct.cudnn.operators.weight_norm import (
    Rows,
    backward_kernel,
    forward_kernel,
    own_layout,
    rows_of,
    weight_layout,
)
from golow.levels.direct.cudnn.problems.layouts import NUMPY_TYPES, Layout, packed, unpacked
from golow.levels.direct.cudnn.steps.built_plan import Tensor as Stored
from golow.lower.operators.weight_norm import WeightNorm, WeightNormBackward
from support.direct.cuda_host import run
from support.direct.kernel_compilation import assert_compile
from support.direct.kernel_launches import ROUNDING

Shape = tuple[int, ...]

# Of a line, a matrix, an image, pixels of one channel, one long row, a vector.
SHAPES: tuple[Shape, ...] = ((5, 3, 7), (2, 130), (3, 4, 3, 2), (4, 1, 5), (1, 2100), (3,))
PADDED: Shape = (2, 3, 2, 2)  # of an image whose channels are padded in memory


def rows(shape: Shape, weight: Layout) -> Rows:
    found = rows_of(Stored(0, shape, own_layout(shape)), weight)
    assert found is not None
    return found


def drawn(shape: Shape, dtype: str = "float32", seed: int = 0) -> np.ndarray:
    """Numbers that the type has."""
    generator = np.random.default_rng(seed + math.prod(shape))
    return generator.standard_normal(shape).astype(NUMPY_TYPES[dtype]).astype(np.float32)


def lengths(shape: Shape) -> np.ndarray:
    """A number for each row, in the shape that PyTorch gives g."""
    return drawn((shape[0], *[1] * (len(shape) - 1)), seed=1)


def empty(shape: Shape, layout: Layout) -> np.ndarray:
    """Memory that is NaN until it is written."""
    raw = np.full(layout.bytes(shape), 0xFF, np.uint8)
    return raw.view(NUMPY_TYPES[layout.dtype])


def exact(arrays: list[np.ndarray]) -> list[Tensor]:
    return [torch.from_numpy(array).double() for array in arrays]


def assert_near(found: np.ndarray, shape: Shape, layout: Layout, wanted: Tensor) -> None:
    limit = 8 * ROUNDING[layout.dtype]
    seen = unpacked(found, shape, layout)
    np.testing.assert_allclose(seen, wanted.numpy(), rtol=limit, atol=limit)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_it_is_right(dtype: str) -> None:
    """A line's weight is in another order than v; results that nothing reads are absent."""
    orders = [weight_layout(dtype, shape) for shape in SHAPES]
    v, g = [drawn(shape) for shape in SHAPES], [lengths(shape) for shape in SHAPES]
    laid = [packed(one, own_layout(one.shape)) for one in v]
    each = [rows(*one) for one in zip(SHAPES, orders, strict=True)]
    w = [empty(*one) for one in zip(SHAPES, orders, strict=True)]
    norms = [empty(one.shape, Layout("float32")) for one in g]
    run(forward_kernel(dtype, each), [*laid, *g, *w, *norms[:-1], None])
    found = WeightNorm.meaning(exact(v), exact(g))
    for k, shape in enumerate(SHAPES):
        assert_near(w[k], shape, orders[k], found[k])
    for norm, like, wanted in zip(norms[:-1], g, found[len(g) :], strict=False):
        assert_near(norm, like.shape, Layout("float32"), wanted)


@pytest.mark.parametrize("types", [("float32",) * 3, ("bfloat16", "bfloat16", "float32")])
def test_gradients_are_right(types: tuple[str, ...]) -> None:
    """The padding of a gradient's channels is not read."""
    shapes = (*SHAPES, PADDED)
    orders = [*(weight_layout(types[0], shape) for shape in SHAPES)]
    orders.append(Layout(types[0], "channels_last", 8))
    v, g = [drawn(shape) for shape in shapes], [lengths(shape) for shape in shapes]
    h = [drawn(shape, types[0], seed=2) for shape in shapes]
    outer = [packed(one, order) for one, order in zip(h, orders, strict=True)]
    outer[-1].reshape(-1, 8)[:, 3:] = np.nan
    each = [rows(*one) for one in zip(shapes, orders, strict=True)]
    norms = [norm.float().numpy() for norm in WeightNorm.meaning(exact(v), exact(g))[len(v) :]]
    places = [own_layout(shape)._replace(dtype=types[1]) for shape in shapes]
    of_v = [empty(*one) for one in zip(shapes, places, strict=True)]
    of_g = [empty(one.shape, Layout(types[2])) for one in g]
    laid = [packed(one, own_layout(one.shape)) for one in v]
    given = [*outer, *laid, *g, *norms]
    run(backward_kernel(types, each), [*given, *of_v[:-1], None, *of_g[:-1], None])
    assert all(np.isnan(array.astype(np.float32)).all() for array in (of_v[-1], of_g[-1]))
    run(backward_kernel(types, each), [*given, *of_v, *of_g])
    found = WeightNormBackward.meaning(exact(h), exact(v), exact(g), exact(norms))
    for k, shape in enumerate(shapes):
        assert_near(of_v[k], shape, places[k], found[k])
        assert_near(of_g[k], g[k].shape, Layout(types[2]), found[len(v) + k])


def test_gradients_mean_what_autograd_makes_of_the_weights() -> None:
    v, g = exact([drawn((3, 4, 2)), drawn((2, 5))]), exact([lengths((3, 1, 1)), lengths((2, 1))])
    leaves = [leaf.requires_grad_() for leaf in (*v, *g)]
    *weights, first, second = WeightNorm.meaning(v, g)
    outer = exact([drawn((3, 4, 2), seed=3), drawn((2, 5), seed=3)])
    wanted = torch.autograd.grad(weights, leaves, outer)
    found = WeightNormBackward.meaning(outer, v, g, [first.detach(), second.detach()])
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


def test_it_compiles() -> None:
    each = [rows(shape, weight_layout("bfloat16", shape)) for shape in SHAPES]
    assert_compile(
        [
            forward_kernel("bfloat16", each * 3),
            forward_kernel("float32", each[:1]),
            backward_kernel(("float32", "bfloat16", "bfloat16"), each * 3),
            backward_kernel(("float16",) * 3, each[:1]),
        ]
    )
