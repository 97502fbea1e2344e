"""Examples of convolutions of whole numbers."""

from __future__ import annotations

from golow.lower.operators.quantized_convolution import QuantizedConvolution
from support.graphs.drawn_arguments import X
from support.graphs.written_graphs import RELU

RECORDS = (
    QuantizedConvolution(
        x=X, weight=X, scale=X, bias=X, stride=(2, 2), padding=(1, 1, 0, 0), activation=RELU
    ),
)
NOT_IMPLEMENTED = {"cudnn": (QuantizedConvolution,)}
