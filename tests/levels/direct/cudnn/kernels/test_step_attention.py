"""One new token's attention, with its rows of the caches: compiled for GPUs, and run on this
processor against float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from ml_dtypes import bfloat16

from golow.levels.direct.cudnn.operators.step_attention import kernel_of
from golow.levels.direct.cudnn.problems.products import Placed
from golow.lower.operators.step_attention import StepAttention
from support.direct.cuda_host import run
from support.direct.kernel_compilation import assert_compile
from support.direct.kernel_launches import gpu, torch_type
from support.direct.kernel_launches import run as launch
from support.examples import examples

__all__ = ["gpu"]  # a fixture

STALE = 7e30  # of a row that was not written: any weight of it shows
NAMES = ("query", "key", "value", "keys", "values")
TYPES = {"float32": np.float32, "bfloat16": bfloat16}


def aligned(array: np.ndarray) -> np.ndarray:
    """The same from a multiple of 256 bytes on, as on a GPU."""
    memory = np.empty(array.nbytes + 256, np.uint8)
    start = -memory.ctypes.data % 256
    found = memory[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    found[...] = array
    return found


def drawn(
    images: int, groups: int, sharing: int, longest: int, width: int, dtype: str, seed: int = 0
) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    heads = {"query": groups * sharing}
    rows = {"keys": longest, "values": longest}
    shapes = {name: (images, heads.get(name, groups), rows.get(name, 1), width) for name in NAMES}
    made = {name: random.standard_normal(shape) for name, shape in shapes.items()}
    angles = random.uniform(-3, 3, width)
    made |= {"cosine": np.cos(angles), "sine": np.sin(angles)}
    exact = ("cosine", "sine")
    return {
        name: aligned(array.astype(np.float32 if name in exact else TYPES[dtype]))
        for name, array in made.items()
    }


def placed(array: np.ndarray) -> Placed:
    return Placed(array.shape, tuple(step // array.itemsize for step in array.strides))


def attend(
    arrays: dict[str, np.ndarray], position: int, dtype: str, window: int, rotated: bool
) -> np.ndarray:
    """The output; new rows are written into the arrays' caches. Counters are zero afterwards."""
    output = aligned(np.zeros(arrays["query"].shape, TYPES[dtype]))
    launch = kernel_of(
        [placed(arrays[name]) for name in NAMES], (dtype, dtype), 0.3, window, rotated=rotated
    )
    angles = [arrays[name] if rotated else None for name in ("cosine", "sine")]
    caches = [arrays["keys"], arrays["values"]]
    partial = aligned(np.full(launch.partial, np.nan, np.float32))
    arrivals = aligned(np.zeros(launch.arrivals, np.uint32))
    reads = [*(arrays[name] for name in NAMES), aligned(np.array(position)), *angles]
    run(launch.kernel, [*reads, output, *caches, partial, arrivals])
    assert not arrivals.any(), "a counter is not zero"
    return output


def right(
    arrays: dict[str, np.ndarray], position: int, window: int, rotated: bool
) -> tuple[np.ndarray, ...]:
    """Output and caches, without stale rows."""
    double = {name: torch.from_numpy(array.astype(np.float64)) for name, array in arrays.items()}
    for name in NAMES[3:]:
        double[name][double[name] > STALE / 2] = 0
    if not rotated:
        double |= {"cosine": None, "sine": None}  # type: ignore[dict-item]
    found = StepAttention.meaning(
        **double, position=torch.tensor(position), scale=0.3, window=window
    )
    return tuple(item.numpy() for item in found)


def assert_right(
    arrays: dict[str, np.ndarray], position: int, dtype: str, window: int, rotated: bool
) -> None:
    near = 2e-5 if dtype == "float32" else 2**-6
    expected = right(arrays, position, window, rotated)
    found = attend(arrays, position, dtype, window, rotated).astype(np.float64)
    np.testing.assert_allclose(found, expected[0], rtol=near, atol=near)
    for name, cache in zip(NAMES[3:], expected[1:], strict=True):
        own = arrays[name].astype(np.float64)
        seen = own < STALE / 2
        np.testing.assert_allclose(own[seen], cache[seen], rtol=near, atol=near)
        assert seen[:, :, position].all(), "the new row is not there"
        assert not seen[:, :, position + 1 :].any(), "another row was written"


@st.composite
def cases(draw: st.DrawFn) -> tuple[dict[str, np.ndarray], int, str, int, bool]:
    images, groups = draw(st.integers(1, 2)), draw(st.integers(1, 2))
    sharing, longest = draw(st.sampled_from([1, 2, 4, 5])), draw(st.sampled_from([3, 65, 260, 700]))
    dtype, width = draw(st.sampled_from([("float32", 32), ("bfloat16", 64), ("bfloat16", 128)]))
    arrays = drawn(images, groups, sharing, longest, width, dtype, draw(st.integers(0, 999)))
    position, window = draw(st.integers(0, longest - 1)), draw(st.sampled_from([0, 0, 1, 7, 300]))
    for name in NAMES[3:]:
        arrays[name][:, :, position:] = STALE
        arrays[name][:, :, : max(position + 1 - window, 0) if window else 0] = STALE
    return arrays, position, dtype, window, draw(st.booleans())


@pytest.mark.slow
@examples(40)
@given(case=cases())
def test_any_step_is_right(case: tuple[dict[str, np.ndarray], int, str, int, bool]) -> None:
    assert_right(*case)


@pytest.mark.parametrize("position", [0, 1, 63, 64, 259])
def test_a_step_at_the_ends_of_its_parts(position: int) -> None:
    arrays = drawn(1, 1, 4, 260, 64, "bfloat16")
    for name in NAMES[3:]:
        arrays[name][:, :, position:] = STALE
    assert_right(arrays, position, "bfloat16", 0, rotated=True)


def test_sums_of_every_head_begin_where_vectors_can_be_loaded() -> None:
    """Nine parts of a head with 34 numbers each are no whole number of vectors."""
    assert_right(drawn(1, 2, 1, 600, 32, "float32"), 599, "float32", 0, rotated=False)


def test_a_position_off_by_one_shows() -> None:
    arrays = drawn(1, 1, 2, 100, 32, "float32")
    expected = right(arrays, 20, 0, rotated=True)[0]
    for position in (19, 21):
        copies = {name: aligned(array) for name, array in arrays.items()}
        found = attend(copies, position, "float32", 0, rotated=True)
        assert np.abs(found - expected).max() > 1e-2


def test_heads_without_a_kernel() -> None:
    arrays = drawn(1, 1, 1, 8, 96, "bfloat16")
    with pytest.raises(ValueError, match="heads of 96"):
        kernel_of([placed(arrays[name]) for name in NAMES], ("bfloat16", "bfloat16"), 1.0)


def test_they_compile() -> None:
    launches = []
    for sharing, width, dtype in ((4, 64, "bfloat16"), (1, 128, "bfloat16"), (2, 32, "float32")):
        arrays = drawn(1, 2, sharing, 70, width, dtype)
        places = [placed(arrays[name]) for name in NAMES]
        launches += [kernel_of(places, (dtype, dtype), 1.0, rotated=turn) for turn in (False, True)]
    assert_compile(launch.kernel for launch in launches)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("position", [0, 1, 63, 64, 500, 1999])
@pytest.mark.parametrize("width", [64, 128])
def test_on_a_gpu(gpu: Any, dtype: str, position: int, width: int) -> None:
    arrays = drawn(2, 4, 4, 2000, width, dtype)
    expected = right(arrays, position, 0, rotated=True)
    for name in NAMES[3:]:
        arrays[name][:, :, position:] = STALE
    found = kernel_of([placed(arrays[name]) for name in NAMES], (dtype, dtype), 0.3, rotated=True)
    tensors = {
        name: torch.from_numpy(array.astype(np.float32)).to(
            torch.float32 if name in ("cosine", "sine") else torch_type(dtype)
        )
        for name, array in arrays.items()
    }
    reads = [tensors[name] for name in NAMES]
    reads += [torch.tensor(position), tensors["cosine"], tensors["sine"]]
    output = torch.zeros(arrays["query"].shape, dtype=torch_type(dtype))
    caches = [tensors[name].clone() for name in NAMES[3:]]
    partial, arrivals = torch.empty(found.partial), torch.zeros(found.arrivals, dtype=torch.int32)
    near = 2e-5 if dtype == "float32" else 2**-6
    for _ in range(2):  # the counters are as they were
        launch(gpu, found.kernel, reads, [output], [*caches, partial, arrivals])
        np.testing.assert_allclose(output.float().numpy(), expected[0], rtol=near, atol=near)
        for cache, whole in zip(caches, expected[1:], strict=True):
            rows = cache[:, :, position].float().numpy()
            np.testing.assert_allclose(rows, whole[:, :, position], rtol=near, atol=near)
        assert not arrivals.any()
