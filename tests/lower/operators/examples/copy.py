"""Examples of copies, and of what does nothing."""

from __future__ import annotations

import torch
from hypothesis import strategies as st

from golow.lower.operators.copy import Copy
from support.graphs.drawn_arguments import IMAGE, X, of_one

NOT_IMPLEMENTED = {"onednn": (Copy,), "cudnn": (Copy,)}  # a pass drops copies

RECORDS = (Copy(x=X),)

CALLS = {
    "aten.clone.default": of_one(memory_format=st.sampled_from([None, torch.contiguous_format])),
    "aten.contiguous.default": of_one(),
    "aten.detach.default": of_one(),
    "aten.alias.default": of_one(),
    "aten.lift_fresh_copy.default": of_one(),
    "aten.dropout.default": of_one("input", p=st.just(0.3), train=st.just(False)),
}

LEFT = {"dropout that is on": ("aten.dropout.default", IMAGE, 0.5, True)}
