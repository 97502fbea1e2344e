"""Runs generated kernels without a GPU: their threads, which share nothing, one after the other, as
C++ for this processor."""

from __future__ import annotations

import ctypes
import hashlib
import re
import subprocess
from pathlib import Path

import numpy as np

from golow.levels.vendor.cudnn.kernels import Kernel
from golow.levels.vendor.cudnn.layouts import NUMPY_TYPES, packed, unpacked
from golow.levels.vendor.cudnn.steps import Built, KernelCall, Tensor

Outputs = dict[tuple[str, str], np.ndarray]

# What the kernels need of CUDA. Conversions round to nearest even, as the GPU's do.
HEADER = """
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#define __global__
#define __device__
struct Dim { unsigned x, y, z; };
static Dim threadIdx, blockIdx, blockDim, gridDim;
inline float __int_as_float(unsigned bits) { float f; memcpy(&f, &bits, 4); return f; }
template <typename T> inline void atomicAdd(T* at, T value) { *at = *at + value; }
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
struct __nv_bfloat16 {
  uint16_t bits;
  __nv_bfloat16() = default;
  __nv_bfloat16(float value) {
    uint32_t b; memcpy(&b, &value, 4);
    bits = std::isnan(value) ? 0x7fff : (b + 0x7fff + ((b >> 16) & 1)) >> 16;
  }
  operator float() const { return __int_as_float(static_cast<unsigned>(bits) << 16); }
};
using __half = _Float16;
inline float __bfloat162float(__nv_bfloat16 value) { return value; }
inline __nv_bfloat16 __float2bfloat16(float value) { return __nv_bfloat16(value); }
inline float __half2float(__half value) { return static_cast<float>(value); }
inline __half __float2half(float value) { return static_cast<__half>(value); }
"""


def run(kernel: Kernel, arrays: list[np.ndarray], folder: Path) -> None:
    """Launch a kernel whose source names its parameters by macros, as `fused.cu` does. arrays: its
    pointers, at least 16 bytes aligned; outputs are written in place. folder: keeps what was
    compiled."""
    library = ctypes.CDLL(str(_compiled(kernel, folder)))
    kind = {4: ctypes.c_uint, 8: ctypes.c_ulonglong}
    numbers = [kind[scalar.itemsize](int(scalar)) for scalar in kernel.scalars]
    pointers = [ctypes.c_void_p(array.ctypes.data) for array in arrays]
    library.launch(kernel.grid[0], kernel.block[0], *pointers, *numbers)


def _compiled(kernel: Kernel, folder: Path) -> Path:
    source = re.sub(r"#include <cuda_(bf16|fp16)\.h>", "", kernel.source)
    pointers = re.search(r"#define POINTERS (.*)", source)
    sizes = re.search(r"#define (SIZES|SCALARS) (.*)", source)
    assert pointers and sizes
    names = re.findall(r"(\w+)(?:,|$)", f"{pointers[1]}, Index count{sizes[2]}")
    counted = "Index" if sizes[1] == "SIZES" else "long long"
    driver = f"""
extern "C" void launch(unsigned blocks, unsigned threads, POINTERS, {counted} count {sizes[1]}) {{
  gridDim = {{blocks, 1, 1}};
  blockDim = {{threads, 1, 1}};
  for (unsigned b = 0; b < blocks; ++b) {{
    for (unsigned t = 0; t < threads; ++t) {{
      blockIdx = {{b, 0, 0}};
      threadIdx = {{t, 0, 0}};
      {kernel.expression}({", ".join(names)});
    }}
  }}
}}
"""
    text = HEADER + source + driver
    library = folder / f"{hashlib.sha256(text.encode()).hexdigest()[:24]}.so"
    if not library.exists():
        file = library.with_suffix(".cpp")
        file.write_text(text)
        command = ["g++", "-std=c++17", "-O1", "-ffp-contract=off", "-shared", "-fPIC", "-o"]
        subprocess.run([*command, str(library), str(file)], check=True)
    return library


def execute(built: Built, given: dict[tuple[str, str], np.ndarray], folder: Path) -> Outputs:
    """Run a plan of generated kernels alone, in float32, on one batch: its outputs by kind and
    target. given: inputs and weights by theirs. Memory holds NaN until something is written."""
    plan = built.plan
    memory = {place: _memory(size) for place, size in plan.sizes.items()}
    for index, buffer in enumerate(plan.buffers):
        if buffer.place == "input":
            memory[f"input {index}"] = _memory(buffer.bytes)

    def seen(tensor: Tensor) -> np.ndarray:
        buffer = plan.buffers[tensor.buffer]
        if buffer.place == "input":
            return memory[f"input {tensor.buffer}"][tensor.offset :]
        return memory[buffer.place][buffer.offset + tensor.offset :]

    def write(tensor: Tensor, array: np.ndarray) -> None:
        content = packed(array.reshape(tensor.shape), tensor.layout).view(np.uint8)
        seen(tensor)[: content.size] = content

    for key, tensor in built.inputs.items():
        if key[0] in ("input", "target"):
            batches = np.stack([given[key]] * tensor.shape[0])
            write(tensor, batches)
    for fill in built.fills:
        number = isinstance(fill.value, float)
        write(
            fill.tensor, np.array(fill.value, np.float32) if number else given["fill", fill.value]
        )
    for call in built.calls:
        assert isinstance(call, KernelCall), call
        tensors = [tensor for tensor in call.arguments if tensor is not None]
        if call.kernel.expression.startswith("fetch"):
            source, _, result = tensors
            one = source._replace(shape=source.shape[1:])
            flat = seen(source)[: one.layout.bytes(one.shape)].view(NUMPY_TYPES[one.dtype])
            write(result, unpacked(flat, one.shape, one.layout))
        else:
            run(call.kernel, [seen(tensor) for tensor in tensors], folder)
    found = {}
    for key, tensor in built.outputs.items():
        flat = seen(tensor)[: tensor.layout.bytes(tensor.shape)].view(NUMPY_TYPES[tensor.dtype])
        found[key] = unpacked(flat, tensor.shape, tensor.layout).copy()
    return found


def _memory(size: int) -> np.ndarray:
    """Bytes that begin at a multiple of 256, as on a GPU; as floats they are NaN."""
    whole = np.full(size + 512, 0xFF, np.uint8)
    return whole[-whole.ctypes.data % 256 :][: size + 256]
