"""An emitted project for a GPU stores weights as golow does: layouts, padding, and rounding to 16
bits."""

from __future__ import annotations

import ctypes
import subprocess
from functools import cache
from itertools import product

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from golow.levels.compiler import find_compiler
from golow.levels.direct.cudnn.emit.project import SOURCES
from golow.levels.direct.cudnn.problems.element_types import ITEM_BYTES
from golow.levels.direct.cudnn.problems.layouts import NUMPY_TYPES, Layout, packed, unpacked
from golow.levels.direct.emit.network import FORMAT
from golow.levels.direct.emit.project import SOURCES as SHARED
from support import one_run

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="there is no C++ compiler")

TYPES = ["float32", "bfloat16", "float16", "int64", "int32", "bool", "uint8"]  # of `Type`
CLIENT = """
#include <cstring>
#include "loading.h"
using namespace golow;
using Sizes = const std::int64_t*;
extern "C" void store(const char* dtype, const void* data, std::size_t bytes, int axes, Sizes shape,
                      Sizes strides, int type, std::size_t elements, char* result, char* back) {
  const std::vector<std::int64_t> sizes(shape, shape + axes);
  const StoredTensor tensor = {"weight", dtype, sizes, static_cast<const char*>(data), bytes};
  const Storage storage = {static_cast<Type>(type), sizes, {strides, strides + axes}, elements};
  const std::vector<char> made = stored(Array(tensor), storage);
  std::memcpy(result, made.data(), made.size());
  const Array again = unstored(made, storage);
  std::memcpy(back, again.data(), again.elements() * 4);
}
"""


@cache
def client() -> ctypes.CDLL:
    with one_run.one_at_a_time(one_run.own_folder(), "emitted-loading") as folder:
        library = folder / "loading.so"
        if not library.exists():
            (folder / "client.cpp").write_text(CLIENT)
            sources = [SOURCES / "loading.cpp", SHARED / "weight_arithmetic.cpp"]
            command = ["g++", "-std=c++17", "-O2", "-ffp-contract=off", "-shared", "-fPIC"]
            folders = [f"-I{place}" for place in (SOURCES, SHARED)]
            files = [*map(str, sources), str(folder / "client.cpp")]
            subprocess.run([*command, *folders, *files, "-o", str(library)], check=True)
        return ctypes.CDLL(str(library))


def stored(array: np.ndarray, layout: Layout) -> tuple[np.ndarray, np.ndarray]:
    """What the program makes of a tensor of a file, and what it reads of that again."""
    sizes = ctypes.c_int64 * array.ndim
    elements = layout.extent(array.shape)
    made = np.empty(elements, NUMPY_TYPES[layout.dtype])
    back = np.empty(array.shape, np.float32)
    client().store(
        FORMAT[str(array.dtype)].encode(), ctypes.c_void_p(array.ctypes.data),
        ctypes.c_size_t(array.nbytes), array.ndim, sizes(*array.shape),
        sizes(*layout.strides(array.shape)), TYPES.index(layout.dtype), ctypes.c_size_t(elements),
        ctypes.c_void_p(made.ctypes.data), ctypes.c_void_p(back.ctypes.data),
    )  # fmt: skip
    return made, back


def bits(array: np.ndarray) -> np.ndarray:
    return array.view(f"u{array.dtype.itemsize}")


@settings(deadline=None)
@given(
    arrays.arrays(np.float32, (2, 3, 2, 2), elements=st.floats(width=32, allow_nan=False)),
    st.sampled_from(["float32", "bfloat16", "float16"]),
    st.sampled_from([Layout(""), Layout("", "channels_last", 8), Layout("", "transposed")]),
)
def test_floats_are_rounded_and_laid_out_as_golow_does(
    array: np.ndarray, dtype: str, layout: Layout
) -> None:
    layout = layout._replace(dtype=dtype)
    made, back = stored(array, layout)
    with np.errstate(over="ignore"):
        wanted = packed(array, layout)
    assert np.array_equal(bits(made), bits(wanted))
    assert np.array_equal(back, unpacked(wanted, array.shape, layout))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_every_number_of_16_bits_comes_back(dtype: str) -> None:
    every = np.arange(1 << 16, dtype=np.uint16).view(NUMPY_TYPES[dtype])
    finite = np.ascontiguousarray(every[~np.isnan(every.astype(np.float32))])
    made, back = stored(finite, Layout(dtype))
    assert np.array_equal(bits(made), bits(finite))
    assert np.array_equal(back, finite.astype(np.float32))
    missing = every[np.isnan(every.astype(np.float32))]
    made, _ = stored(np.ascontiguousarray(missing), Layout(dtype))
    assert np.isnan(made.astype(np.float32)).all()


@pytest.mark.parametrize(
    ("source", "target"), list(product(["int64", "int32", "bool", "uint8"], repeat=2))
)
def test_whole_numbers_keep_their_value(source: str, target: str) -> None:
    array = np.array([[0, 1, 1], [1, 0, 1]]).astype(NUMPY_TYPES[source])
    if ITEM_BYTES[target] >= ITEM_BYTES[source] > 1:
        array = array * NUMPY_TYPES[source](-(1 << 30))
    made, _ = stored(array, Layout(target, "transposed"))
    assert np.array_equal(made, packed(array, Layout(target, "transposed")))


def test_a_weight_of_16_bits_is_widened() -> None:
    array = np.array([1.5, -2.25, 3e-5], ml_dtypes.bfloat16)
    made, _ = stored(array, Layout("float32"))
    assert np.array_equal(made, array.astype(np.float32))
