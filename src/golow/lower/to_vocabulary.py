"""The passes from ATen's calls, which may change values in place, to the vocabulary, which does
not. What executes a lowered graph applies them, between separate passes."""

from __future__ import annotations

from golow.lower.aten.canonical import canonicalise
from golow.lower.aten.decomposition import decompose
from golow.lower.aten.empty_tensors import leave_out_empty
from golow.lower.aten.functional import make_functional
from golow.lower.aten.scalar_constants import inline_numbers
from golow.lower.aten.strided import stride_over_whole_memory
from golow.lower.fuse.epilogue_fusion import drop_copies, drop_neutral_numbers
from golow.lower.fuse.products import join_rows
from golow.lower.ir.graph import Pass

CANONICAL: tuple[Pass, ...] = (
    stride_over_whole_memory,
    make_functional,
    decompose,
    canonicalise,
    drop_copies,
    inline_numbers,
    drop_neutral_numbers,
    leave_out_empty,
    join_rows,
)
