"""The rule: which function is the vendor's entry, and what counts as a call of the allocator or of
PyTorch's dispatcher.

Patterns are callgrind's: ``*`` stands for any characters, ``?`` for one; C++ names are demangled.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple


class Entry(NamedTuple):
    """Functions at which the framework ends and the kernel begins, and why."""

    patterns: tuple[str, ...]
    owner: str
    reason: str


ENTRIES = (
    Entry(
        ("dnnl_primitive_execute", "dnnl::impl::primitive_execute(*"),
        "oneDNN",
        "its public call to run a primitive, in C, and the C++ function behind it: the linker may "
        "make the first a jump without a name",
    ),
    Entry(
        ("cblas_sgemm*", "SGEMM", "sgemm_", "cblas_sgemv*", "SGEMV", "sgemv_", "mkl_sblas*"),
        "BLAS",
        "the public names of BLAS for float32; those in capitals are MKL's aliases",
    ),
    Entry(
        ("mkl_blas_sgemm", "mkl_blas_sgemv", "mkl_jit_*"),
        "MKL",
        "MKL's inner names, where a library calls them without BLAS's",
    ),
    Entry(
        (
            "at::native::*::DEFAULT::*",
            "at::native::DEFAULT::*",
            "at::native::*::AVX2::*",
            "at::native::AVX2::*",
            "at::native::(anonymous namespace)::*_kernel*",
        ),
        "ATen",
        "ATen's kernels, compiled once for each instruction set",
    ),
    Entry(
        ("kernel", "cpp_fused*"),
        "Inductor",
        "the function that Inductor generates, under its default name or its descriptive one",
    ),
)

ALLOCATORS = (
    "malloc",
    "calloc",
    "realloc",
    "memalign",
    "aligned_alloc",
    "posix_memalign",
)
"""The C library's. ``operator new`` and the allocators of Python, PyTorch and MKL end there: each
allocation counts once, and one that such an allocator serves from its own store does not count."""

DISPATCHER = ("at::_ops::*::call(*", "at::_ops::*::redispatch(*", "c10::Dispatcher::callBoxed*")
"""Each operator's entry into the dispatcher, and the one that TorchScript uses."""


def patterns() -> tuple[str, ...]:
    """The patterns of all entries."""
    return tuple(pattern for entry in ENTRIES for pattern in entry.patterns)


def owner_of(name: str) -> str:
    """Whose entry the function is; empty if it is none."""
    for entry in ENTRIES:
        if matches(name, entry.patterns):
            return entry.owner
    return ""


def matches(name: str, patterns: Sequence[str]) -> bool:
    """True if a function's name matches one of the patterns as a whole."""
    return any(_expression(pattern).fullmatch(name) for pattern in patterns)


def _expression(pattern: str) -> re.Pattern[str]:
    words = {"*": ".*", "?": "."}
    return re.compile("".join(words.get(character, re.escape(character)) for character in pattern))
