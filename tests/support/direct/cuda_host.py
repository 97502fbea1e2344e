"""Runs golow's CUDA kernels without a GPU, as C++ for this processor: `cuda_host.h` has what they
need of CUDA, and `cuda_host.cpp` threads that wait for one another and exchange values."""

from __future__ import annotations

import ctypes
import hashlib
import os
import re
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np

from golow.levels.direct.cudnn.operators.step_attention import STREAMING
from golow.levels.direct.cudnn.shared_kernels import Kernel
from golow.levels.direct.cudnn.shared_kernels.columns import Sums
from golow.levels.direct.cudnn.shared_kernels.few_pixels import TENSOR_CORES
from golow.levels.direct.cudnn.shared_kernels.recurrent import EXCHANGE
from support.one_run import one_at_a_time, own_folder

HEADER = Path(__file__).with_suffix(".h")
HERE = {  # what stands in for code of one instruction each
    TENSOR_CORES: Path(__file__).with_name("cuda_host_tensor_cores.h"),
    EXCHANGE: Path(__file__).with_name("cuda_host_exchange.h"),
    STREAMING: Path(__file__).with_name("cuda_host_streaming.h"),
}
# Without it, variables of templates are those of the library that was loaded first.
OWN_VARIABLES = "-fno-gnu-unique"
# A GPU refuses a vector at an address that is no multiple of its size; a processor is made to.
ALIGNED = ("-fsanitize=alignment", "-fsanitize-undefined-trap-on-error")
COMPILER = ("g++", "-std=c++17", "-O1", "-ffp-contract=off", "-fPIC", OWN_VARIABLES, *ALIGNED)
THREADS = ("libthreads.so", "libblocks.so")  # of blocks that run one after the other, and at once
# Kernels use no C++ library, which would take most of the linker's time.
LINKED = ("-nodefaultlibs", "-lm", "-lgcc", "-lc")
SHARED = re.compile(r"extern __shared__ ((?:unsigned )?\w+) (\w+)\[\];")


def run(kernel: Kernel, arrays: Sequence[np.ndarray | None]) -> None:
    """Launch a kernel. arrays: its pointers, at least 16 bytes aligned; outputs are written in
    place; None is absent."""
    library = ctypes.CDLL(str(compiled(kernel)))
    pointers = [0 if array is None else array.ctypes.data for array in arrays]
    values = [np.uint64(pointer).tobytes() for pointer in pointers]
    values += [scalar.tobytes() for scalar in kernel.scalars]
    held = [ctypes.create_string_buffer(value, len(value)) for value in values]
    arguments = (ctypes.c_void_p * len(held))(*(ctypes.addressof(item) for item in held))
    sizes = ctypes.c_uint * 3
    failed = library.launch(sizes(*kernel.grid), sizes(*kernel.block), arguments)
    assert not failed, f"{failed} blocks waited for others in vain"


def run_sums(
    sums: Sums,
    reads: Sequence[np.ndarray | None],
    writes: Sequence[np.ndarray | None],
) -> None:
    """Launch a kernel that ends with sums, twice: its blocks run in the other order then, and the
    bits must be the same. Its counters must be zero after each launch."""
    partial = np.full(4 * sums.partial, 0xFF, np.uint8) if sums.partial else None
    arrivals = np.zeros(sums.arrivals, np.uint32) if sums.arrivals else None
    results = [array for array in writes if array is not None]
    found = []
    for _ in range(2):
        for array in results:
            array[...] = 0xFF
        run(sums.kernel, [*reads, *writes, partial, arrivals])
        assert arrivals is None or not arrivals.any(), "a counter is not zero"
        found.append([array.tobytes() for array in results])
    assert found[0] == found[1], "the order of blocks is seen"


def compiled(kernel: Kernel) -> Path:
    """The library of a kernel: ``launch`` runs it, ``parameter_sizes`` are those that it takes."""
    source = re.sub(r"#include <cuda_(bf16|fp16)\.h>", "", kernel.source)
    together = "true" if re.search("__sync|__shfl", source) else "false"
    blocks = ["-DSIDE_BY_SIDE"] if EXCHANGE in source else []
    for there, here in HERE.items():
        source = source.replace(there, here.read_text())
    source = SHARED.sub(r"\1* \2 = reinterpret_cast<\1*>(shared_memory);", source)
    driver = f"""
extern "C" int launch(const unsigned* grid, const unsigned* block, void** arguments) {{
  kernel = [](void** given) {{ call(&{kernel.expression}, given); }};
  return run_grid(grid, block, arguments, {together});
}}
extern "C" int parameter_sizes(unsigned* sizes) {{ return sizes_of(&{kernel.expression}, sizes); }}
"""
    text = f'#include "{HEADER.name}"\n{source}{driver}'
    folder = _prepared()
    library = folder / f"{hashlib.sha256(text.encode()).hexdigest()[:24]}.so"
    if not library.exists():
        mine = folder / f"{library.stem}-{os.getpid()}"  # another process may compile it, too
        file, made = mine.with_suffix(".cpp"), mine.with_suffix(".so")
        file.write_text(text)
        # Each library uses its own names, whatever else in the process is called the same.
        options = ["-shared", "-Wl,-Bsymbolic", f"-Wl,-rpath,{folder}", "-o", str(made), str(file)]
        threads = str(folder / THREADS[bool(blocks)])
        subprocess.run([*COMPILER, *blocks, *options, threads, *LINKED], check=True)
        made.rename(library)
    return library


@cache
def _prepared() -> Path:
    """The folder of what is compiled in this run of the tests. It has the header, compiled, and
    what runs the threads, a library: the time of every kernel is that of its own code."""
    with one_at_a_time(own_folder(), "kernels") as folder:
        header, *libraries = (folder / name for name in (HEADER.name, *THREADS))
        if not libraries[-1].exists():
            header.write_text(HEADER.read_text())
            subprocess.run([*COMPILER, "-x", "c++-header", str(header)], check=True)
            source = str(HEADER.with_suffix(".cpp"))
            for library, options in zip(libraries, ([], ["-DSIDE_BY_SIDE"]), strict=True):
                made = ["-shared", "-o", str(library), source]
                subprocess.run([*COMPILER, *options, *made], check=True)
    return folder
