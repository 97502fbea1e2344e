"""Copies of `cudnn` between any two orders in memory, run on this processor."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from golow.levels.direct.cudnn.problems.layouts import NUMPY_TYPES
from golow.levels.direct.cudnn.shared_kernels.copies import strided_copy
from golow.levels.direct.cudnn.shared_kernels.joined_copies import MOST, Part, copies
from golow.levels.direct.kernel_views import View
from support.direct.cuda_host import run
from support.examples import examples

TYPES = [
    ("float32", "float32"),
    ("bfloat16", "bfloat16"),
    ("float32", "bfloat16"),
    ("int64", "int64"),
]


def order(shape: list[int], axes: list[int], gap: int, start: int, dtype: str) -> View:
    """The shape with its axes in that order in memory, with a gap after each line."""
    strides, step = [0] * len(shape), 1
    for position, axis in enumerate(reversed(axes)):
        strides[axis] = step
        step *= shape[axis] + (gap if position == 0 else 0)
    return View(dtype, tuple(strides), start)


def seen(memory: np.ndarray, view: View, shape: list[int]) -> np.ndarray:
    steps = [memory.itemsize * stride for stride in view.strides]
    return np.lib.stride_tricks.as_strided(memory[view.start :], shape, steps)


def assert_copies(source: View, target: View, shape: list[int]) -> str:
    """Copy numbers and compare; return the kernel's name. What is between is left alone."""

    given, wanted = filled(source, target, shape)
    made = memory(target, shape)
    kernel = strided_copy(source, target, shape)
    run(kernel, [given, made])
    assert_copied(made, target, shape, wanted)
    return kernel.expression


def memory(view: View, shape: list[int]) -> np.ndarray:
    reach = view.start + sum((n - 1) * s for n, s in zip(shape, view.strides, strict=True)) + 1
    return np.zeros(reach + 16, NUMPY_TYPES[view.dtype])


def filled(source: View, target: View, shape: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """The source's memory with numbers, and what the target must show."""
    numbers = np.random.default_rng(0).integers(-100, 100, shape)
    given = memory(source, shape)
    exact = numbers.astype(np.float32) if source.dtype != "int64" else numbers
    seen(given, source, shape)[...] = exact
    return given, exact.astype(NUMPY_TYPES[target.dtype])


def assert_copied(made: np.ndarray, target: View, shape: list[int], wanted: np.ndarray) -> None:
    np.testing.assert_array_equal(seen(made, target, shape), wanted)
    seen(made, target, shape)[...] = 0
    assert not made.any()


@pytest.mark.slow
@examples(60)
@given(st.data())
def test_a_copy_keeps_every_element(data: st.DataObject) -> None:
    sizes = st.sampled_from([1, 2, 3, 8, 16, 24, 40])
    shape = data.draw(st.lists(sizes, min_size=1, max_size=4).filter(lambda s: np.prod(s) < 20_000))
    axes = st.permutations(range(len(shape)))
    gaps, starts = st.sampled_from([0, 1, 8]), st.sampled_from([0, 1, 8])
    dtype, into = data.draw(st.sampled_from(TYPES))
    source = order(shape, data.draw(axes), data.draw(gaps), data.draw(starts), dtype)
    target = order(shape, data.draw(axes), data.draw(gaps), data.draw(starts), into)
    assert_copies(source, target, shape)


@pytest.mark.parametrize(
    ("shape", "axes", "name"),
    [
        ([2, 512, 40, 40], [0, 2, 3, 1], "turned"),  # to images with their channels last
        ([2, 512, 40, 40], [0, 1, 2, 3], "fused"),
        ([4, 99, 2, 33, 50], [0, 1, 3, 4, 2], "fused"),  # two to a line: read side by side
        ([1536, 24, 64], [1, 0, 2], "fused"),
        ([768, 4096], [1, 0], "turned"),
    ],
)
def test_what_lies_side_by_side_decides(shape: list[int], axes: list[int], name: str) -> None:
    rows = order(shape, list(range(len(shape))), 0, 0, "bfloat16")
    assert assert_copies(rows, order(shape, axes, 0, 0, "bfloat16"), shape) == name


@pytest.mark.parametrize(
    ("dtype", "into"),
    [
        ("bfloat16", "bfloat16"),
        ("float32", "float32"),
        ("float16", "float16"),
        ("bfloat16", "float32"),
    ],
)
@pytest.mark.parametrize("shape", [[3, 7, 101], [40, 257], [1, 2, 99]])
@pytest.mark.parametrize(("gap", "start"), [(3, 0), (11, 5)])
def test_rows_with_gaps_are_packed(
    shape: list[int], gap: int, start: int, dtype: str, into: str
) -> None:
    source = order(shape, list(range(len(shape))), gap, start, dtype)
    target = order(shape, list(range(len(shape))), 0, 0, into)
    assert assert_copies(source, target, shape) == "packed_rows"


def test_vectors_are_copied_where_a_line_allows() -> None:
    """8 numbers of 16 bits at a time, in straight copies and in turned ones."""
    shape = [128, 512, 40]
    rows, turned = (order(shape, axes, 0, 0, "bfloat16") for axes in ([0, 1, 2], [0, 2, 1]))
    part = View("bfloat16", (512 * 80, 80, 1), 40)
    assert "#define WIDTH 8" in strided_copy(rows, part, shape).code
    code = strided_copy(rows, turned, shape).code
    assert "#define VA 8" in code and "#define VB 8" in code


@pytest.mark.slow
@examples(40)
@given(st.data())
def test_several_copies_in_one_launch_keep_every_element(data: st.DataObject) -> None:
    sizes = st.sampled_from([1, 2, 3, 8, 16, 40])
    shapes = st.lists(sizes, min_size=1, max_size=4).filter(lambda s: np.prod(s) < 5_000)
    gaps, starts = st.sampled_from([0, 1, 8]), st.sampled_from([0, 1, 8])
    parts, arrays, results = [], [], []
    for _ in range(data.draw(st.integers(2, 5))):
        shape, (dtype, into) = data.draw(shapes), data.draw(st.sampled_from(TYPES))
        axes = data.draw(st.permutations(range(len(shape))))
        source = order(shape, axes, data.draw(gaps), data.draw(starts), dtype)
        target = order(shape, axes, data.draw(gaps), data.draw(starts), into)
        array, wanted = filled(source, target, shape)
        parts.append(Part(source, target, tuple(shape)))
        arrays.append(array)
        results.append((memory(target, shape), target, shape, wanted))
    assert all(part.joins for part in parts)
    run(copies(parts), [*arrays, *(made for made, *_ in results)])
    for result in results:
        assert_copied(*result)


def test_images_are_joined_by_vectors_of_each_part() -> None:
    """Of 64, 24 and 3 channels: 8, 8 and 1 numbers of 16 bits at once."""
    parts, start = [], 0
    for channels in (64, 24, 3):
        source = View("bfloat16", (channels, 1))
        parts.append(Part(source, View("bfloat16", (91, 1), start), (300_000, channels)))
        start += channels
    assert [f"copy<{width}>" in copies(parts).code for width in (8, 4, 2, 1)] == [False] * 3 + [
        True
    ]
    even = [part._replace(target=part.target._replace(strides=(96, 1))) for part in parts]
    assert [f"copy<{width}>" in copies(even).code for width in (8, 4, 2, 1)] == [
        True, False, False, True,
    ]  # fmt: skip


def test_more_copies_than_a_launch_takes_are_refused() -> None:
    part = Part(View("float32", (1,)), View("float32", (1,)), (4,))
    with pytest.raises(ValueError, match="17 copies in a launch; the limit is 16"):
        copies([part] * (MOST + 1))
