"""Linear recurrences of `cudnn`, on this processor: views of any strides, against PyTorch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from golow.levels.direct.cudnn.shared_kernels import linear_recurrence as kernels
from golow.levels.direct.kernel_views import View
from golow.lower.decompositions.linear_recurrence import gradients, recurrence
from support.direct.cuda_host import run
from support.direct.kernel_compilation import assert_compile
from support.direct.kernel_launches import gpu
from support.direct.kernel_launches import run as launch

__all__ = ["gpu"]  # a fixture

shapes = st.lists(st.integers(1, 5), min_size=1, max_size=5).map(tuple)


def view(tensor: Tensor) -> View:
    return View("float32", tensor.stride())


def drawn(shape: tuple[int, ...], seed: int, axis: int) -> Tensor:
    """A tensor with this axis at the end of its memory."""
    made = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    return made.movedim(axis, -1).contiguous().movedim(-1, axis)


@pytest.mark.slow
@settings(deadline=None)  # a kernel is compiled when it is first met
@given(shape=shapes, data=st.data())
def test_states_and_gradients_are_those_of_the_loop(
    shape: tuple[int, ...], data: st.DataObject
) -> None:
    axes = st.integers(0, len(shape) - 1)
    axis = data.draw(axes)
    decay, x, gradient = (drawn(shape, seed, data.draw(axes)) for seed in range(3))
    if data.draw(st.booleans()):  # one decay for all
        decay = torch.tensor(0.5).expand(shape)
    made = drawn(shape, 3, data.draw(axes))
    run(
        kernels.forward(view(decay), view(x), view(made), shape, axis),
        [decay.numpy(), x.numpy(), made.numpy()],
    )
    expected = recurrence(decay, x, axis)
    torch.testing.assert_close(made, expected)
    one, other = torch.full_like(made, 77), torch.full_like(made, 77)
    run(
        kernels.backward(view(gradient), view(decay), view(made), view(one), shape, axis),
        [t.numpy() for t in (gradient, decay, made, one, other)],
    )
    of_decay, of_x = gradients(gradient, decay, expected, axis)
    torch.testing.assert_close(one, of_decay)
    torch.testing.assert_close(other, of_x)


def test_lines_along_too_many_axes_are_refused() -> None:
    shape = (2, 2, 2, 2, 2, 2)
    wide = View("float32", (1, 100, 10000, 7, 1000, 1000000))
    with pytest.raises(ValueError, match="lines along 5 axes; the kernel takes 4"):
        kernels.forward(wide, wide, wide, shape, 0)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_recurrences_on_a_gpu(gpu: Any, dtype: torch.dtype, axis: int) -> None:
    shape = (3, 130, 17)
    generator = torch.Generator().manual_seed(0)
    decay = torch.rand(shape, generator=generator)
    x, gradient = (torch.randn(shape, generator=generator).to(dtype) for _ in range(2))
    made = torch.empty(shape)
    name = str(dtype).removeprefix("torch.")
    wide, narrow = View("float32", made.stride()), View(name, made.stride())
    launch(gpu, kernels.forward(wide, narrow, wide, shape, axis), [decay, x], [made])
    expected = recurrence(decay, x.float(), axis)
    torch.testing.assert_close(made, expected)
    results = [torch.empty(shape), torch.empty(shape)]
    kernel = kernels.backward(narrow, wide, wide, wide, shape, axis)
    launch(gpu, kernel, [gradient, decay, made], results)
    for one, other in zip(results, gradients(gradient.float(), decay, made, axis), strict=True):
        torch.testing.assert_close(one, other)


def test_every_instantiation_compiles() -> None:
    shape, wide = (2, 3, 4), View("float32", (12, 4, 1))
    narrow = wide._replace(dtype="bfloat16")
    assert_compile(
        [
            kernels.forward(wide, narrow, wide, shape, 1),
            kernels.backward(narrow, wide, wide, narrow, shape, 1),
        ]
    )
