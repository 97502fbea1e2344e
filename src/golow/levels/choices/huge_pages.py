"""Huge pages: whether large blocks of memory get pages of 2 MiB instead of 4 KiB.

The kernel decides (/sys/kernel/mm/transparent_hugepage/enabled): always, never, or for memory for
which a program asks by `madvise`. glibc asks from 2.35 on, PyTorch too, each only if it is told to.
"""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path
from typing import Any

from golow.levels.choices.choice import WITH_TORCH, Alternative, Choice

MODE = Path("/sys/kernel/mm/transparent_hugepage/enabled")
BLOCK = 64 << 20  # bytes
NO_PROGRAM, BY_GLIBC, BY_TORCH = "no program requests them", "the C library asks", "PyTorch asks"
TUNABLE, VARIABLE = "glibc.malloc.hugetlb=1", "THP_MEM_ALLOC_ENABLE"


def read(program: Any) -> str:
    """The kernel's mode; where that is `madvise`, who asks for a large block."""
    try:
        mode = MODE.read_text().partition("[")[2].partition("]")[0]
    except OSError:
        return "the kernel has none"
    if mode != "madvise":
        return f"{mode}, by the kernel"
    if _malloc_asks():
        return BY_GLIBC
    return BY_TORCH if "torch" in sys.modules and _torch_asks() else NO_PROGRAM


def _malloc_asks() -> bool:
    library = ctypes.CDLL(None)
    library.malloc.restype, library.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
    library.free.argtypes = [ctypes.c_void_p]
    block = library.malloc(BLOCK)
    try:
        return _is_advised(block + BLOCK // 2)
    finally:
        library.free(block)


def _torch_asks() -> bool:
    import torch

    block = torch.empty(BLOCK, dtype=torch.uint8)
    return _is_advised(block.data_ptr() + BLOCK // 2)


def _is_advised(address: int) -> bool:
    """True if the mapping with that address has the flag `hg` (proc_pid_smaps(5))."""
    inside = False
    for row in Path("/proc/self/smaps").read_text(errors="replace").splitlines():
        first, _, rest = row.partition(" ")
        start, dash, end = first.partition("-")
        if dash and rest:
            inside = int(start, 16) <= address < int(end, 16)
        elif inside and first == "VmFlags:":
            return "hg" in rest.split()
    return False


CHOICES = (
    Choice(
        name="huge_pages",
        summary="whether large blocks of memory use pages of 2 MiB",
        made_by="the kernel and glibc",
        where="/sys/kernel/mm/transparent_hugepage/enabled; glibc manual, Malloc Tunables",
        read=read,
        likely=True,
        costs="memory: the unused end of each large page",
        alternatives=(
            Alternative(
                name="malloc_huge_pages",
                summary="glibc asks for them for all that it allocates",
                value=BY_GLIBC,
                environment={"GLIBC_TUNABLES": TUNABLE},
                shell=f"GLIBC_TUNABLES={TUNABLE}",
            ),
            Alternative(
                name="torch_huge_pages",
                summary="PyTorch asks for them for its tensors",
                value=BY_TORCH,
                environment={VARIABLE: "1"},
                levels=WITH_TORCH,
                shell=f"{VARIABLE}=1",
            ),
        ),
    ),
)
