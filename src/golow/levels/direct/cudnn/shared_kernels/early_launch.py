"""Kernels that begin before the one before them has ended (programmatic dependent launch). The GPU
starts a kernel's blocks as soon as all blocks of the one before run and have what they waited for;
each thread waits first for the end of that kernel, and for its results. A kernel that has
something to do before states where it waits. If it only loads what no kernel of the graph writes,
it may let the next kernel begin even earlier.

https://docs.nvidia.com/cuda/cuda-c-programming-guide/#programmatic-dependent-launch-and-synchronization
"""

from __future__ import annotations

from functools import cache

FIRST_ARCHITECTURE = 90
WAIT = "WAIT_FOR_KERNEL_BEFORE"
DEFINED = """#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define LET_NEXT_KERNEL_BEGIN() asm volatile("griddepcontrol.launch_dependents;")
#define WAIT_FOR_KERNEL_BEFORE()                    \\
  asm volatile("griddepcontrol.wait;" ::: "memory"); \\
  asm volatile("griddepcontrol.launch_dependents;")
#else
#define LET_NEXT_KERNEL_BEGIN()
#define WAIT_FOR_KERNEL_BEFORE()
#endif
"""


@cache
def waiting(source: str) -> str:
    """Return the source with a wait as the first statement of each of its kernels that has none. It
    is added here because a kernel that forgot it would read what the one before has not written
    yet. A kernel that lets the next one begin has waited itself, if it does not state otherwise."""
    before, *kernels = source.split("__global__")
    parts = [DEFINED, before]
    for kernel in kernels:
        head, body = kernel.split("{", 1)
        wait = "" if f"{WAIT}();" in body else f" {WAIT}();"
        parts.append(f"__global__{head}{{{wait}{body}")
    return "".join(parts)
