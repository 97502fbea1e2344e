"""Examples of blocks of pixels that become channels."""

from __future__ import annotations

from hypothesis import strategies as st

from golow.lower.operators.pixel_unshuffle import PixelUnshuffle
from support.graphs.drawn_arguments import Drawn, X
from support.graphs.one_call import tensor

RECORDS = (PixelUnshuffle(x=X, factor=2),)

CALLS = {
    "aten.pixel_unshuffle.default": st.sampled_from([1, 2, 3]).map(
        lambda factor: Drawn({"self": tensor(2, 3, 6, 12), "downscale_factor": factor})
    )
}

LEFT = {"image without a batch": ("aten.pixel_unshuffle.default", tensor(4, 6, 8), 2)}
