"""Kernels in C++ that a plan generates for what oneDNN has no primitive for.

A kernel is code with sizes and strides as arguments, so that steps of many shapes share it. The
code defines ``body(pointers, numbers, begin, end)``, which computes some of the kernel's parts;
`kernel_compilation.py` compiles and names it. Numbers begin with the two that `parts` returns.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

PRELUDE = Path(__file__).parent / "functions.h"  # compiled before the kernels
PLAYER = Path(__file__).parent / "compiled_calls.cpp"  # runs the calls of a plan
# Elements that a thread computes while another one starts: a few microseconds.
WORTH_A_THREAD = 16_384

C_TYPES = {
    "float32": "float",
    "int64": "long long",
    "int32": "int",
    "uint8": "unsigned char",
    "int8": "signed char",
    "bool": "bool",
}
BF16 = "unsigned short"
"""The bits of a bf16, which `widened` makes a float."""


class Kernel(NamedTuple):
    """Code, and the numbers of one of the steps that run it."""

    code: str
    numbers: tuple[int, ...]


def parts(count: int, elements: int) -> tuple[int, int]:
    """Return the first numbers of a kernel: its parts, and whether threads share them. elements:
    what it computes in all."""
    return count, int(count > 1 and elements >= WORTH_A_THREAD)
