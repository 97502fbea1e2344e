"""The allocator of the C library: whether it gives memory back to the kernel after an iteration.

glibc takes memory of 128 KiB and more from the kernel by `mmap` and gives it back when it is freed;
both thresholds grow with what the program frees, up to 32 MiB (mallopt(3), M_MMAP_THRESHOLD). Each
page that comes back is zeroed by the kernel and costs a page fault at its first use.
"""

from __future__ import annotations

import ctypes
from functools import partial
from pathlib import Path
from typing import Any

from golow.levels.choices.choice import Alternative, Choice
from golow.levels.choices.process_libraries import installed, preloading, present, provider

KEPT = 1 << 30  # bytes; what LibTorch's worker sets too (sources/allocator.h)
BLOCK = 64 << 20  # bytes; more than glibc's own thresholds grow to
BY_MMAP = 2  # IS_MMAPPED in the size field before a block (glibc's malloc.c)
THRESHOLDS = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_")
RETURNS, KEEPS = "glibc, returns memory", "glibc, keeps memory"

# The names of their files, and Debian's packages.
OTHERS = {
    "jemalloc": (("libjemalloc.so.2", "libjemalloc.so"), "libjemalloc2"),
    "tcmalloc": (
        ("libtcmalloc_minimal.so.4", "libtcmalloc.so.4", "libtcmalloc_minimal.so"),
        "libtcmalloc-minimal4",
    ),
    "mimalloc": (("libmimalloc.so.2", "libmimalloc.so.3", "libmimalloc.so"), "libmimalloc2.0"),
}


def read(program: Any) -> str:
    """Which library allocates in this process; of glibc also what it does with a freed block."""
    library = Path(provider("malloc")).name
    for other in OTHERS:
        if library.startswith(f"lib{other}"):
            return other
    if not hasattr(ctypes.CDLL(None), "gnu_get_libc_version"):
        return library or "unknown"
    return RETURNS if _returns_a_block() else KEEPS


def _returns_a_block() -> bool:
    """True if a block that is allocated and freed now goes back to the kernel."""
    library = ctypes.CDLL(None)
    library.malloc.restype = library.sbrk.restype = ctypes.c_void_p
    library.malloc.argtypes, library.free.argtypes = [ctypes.c_size_t], [ctypes.c_void_p]
    library.sbrk.argtypes = [ctypes.c_ssize_t]
    block = library.malloc(BLOCK)
    size = ctypes.c_size_t.from_address(block - ctypes.sizeof(ctypes.c_size_t)).value
    end: int = library.sbrk(0)
    library.free(block)
    shrunk: bool = library.sbrk(0) < end
    return bool(size & BY_MMAP) or shrunk


def _other(name: str) -> Alternative:
    files, package = OTHERS[name]
    library = installed(*files)
    return Alternative(
        name=name,
        summary=f"{name} instead of glibc's allocator",
        value=name,
        environment=preloading(library),
        shell=f"LD_PRELOAD={files[0]}",
        probe=partial(present, library, name, f"apt-get install {package}"),
    )


KEEP = {name: str(KEPT) for name in THRESHOLDS}

CHOICES = (
    Choice(
        name="allocator",
        summary="which library allocates, and whether it returns freed memory to the system",
        made_by="glibc",
        where="mallopt(3), M_TRIM_THRESHOLD and M_MMAP_THRESHOLD",
        read=read,
        likely=True,
        costs="memory: memory freed by an iteration stays in the process",
        alternatives=(
            Alternative(
                name="malloc_keep",
                summary="glibc keeps up to 1 GiB of freed memory",
                value=KEEPS,
                environment=KEEP,
                shell=" ".join(f"{name}={value}" for name, value in KEEP.items()),
                cpp="mallopt(M_TRIM_THRESHOLD, 1 << 30); mallopt(M_MMAP_THRESHOLD, 1 << 30);",
            ),
            Alternative(
                name="malloc_return",
                summary="glibc's default thresholds, which golow's C++ program raises",
                value=RETURNS,
                levels=("libtorch",),
            ),
            *map(_other, OTHERS),
        ),
    ),
)
