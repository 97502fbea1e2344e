"""Examples of layers that round their own results, and of roundings before a max pooling."""

from __future__ import annotations

import torch
from msgspec.structs import replace
from torch import Tensor

from golow.lower.operators.max_pool import MaxPool
from golow.lower.operators.quantize import Quantize
from golow.lower.operators.quantized_convolution import QuantizedConvolution
from golow.lower.operators.quantized_linear import QuantizedLinear
from support.graphs.written_graphs import RELU, Fires, Stays, Written, add, numbers, one, ref


def _whole(*shape: int) -> Tensor:
    generator = torch.Generator().manual_seed(len(shape))
    return torch.randint(-127, 128, shape, generator=generator).to(torch.int8)


_GIVEN = {"scale": numbers(4).abs(), "step": torch.tensor(0.3).double()}
_ROWS = {"x": _whole(3, 5), "w": _whole(4, 5), **_GIVEN}
_IMAGES = {"x": _whole(2, 3, 4, 4), "w": _whole(4, 3, 1, 1), **_GIVEN}
_LINEAR = QuantizedLinear(x=ref("x"), weight=ref("w"), scale=ref("scale"), activation=RELU)
_CONVOLUTION = QuantizedConvolution(x=ref("x"), weight=ref("w"), scale=ref("scale"))
_ROUNDING = Quantize(x=ref("y"), scale=ref("step"), dtype="uint8")
_POOL = MaxPool(
    x=ref("z"), kernel=(2, 2), stride=(2, 2), padding=(1, 1), dilation=(1, 1), ceil=False,
    indices=False,
)  # fmt: skip
_FIELD = {"z": numbers(2, 3, 4, 4) - 3, "step": torch.tensor(20.0).double()}
_SIGNED = replace(_ROUNDING, dtype="int8")
_ROUNDED = [one("y", _LINEAR), one("q", _ROUNDING)]

EXAMPLES = {
    "REQUANTISATION": (
        Fires(
            Written(_ROWS, _ROUNDED, "q"),
            [replace(_LINEAR, result_scale=ref("step"), result_type="uint8")],
        ),
        Fires(
            Written(_IMAGES, [one("y", _CONVOLUTION), one("q", _SIGNED)], "q"),
            [replace(_CONVOLUTION, result_scale=ref("step"), result_type="int8")],
        ),
        # Something else reads the result, or nothing rounds it.
        Stays(Written(_ROWS, _ROUNDED, "q", "y")),
        Stays(Written(_ROWS, [*_ROUNDED, one("s", add("y", "y"))], "q", "s")),
        Stays(Written(_ROWS, [one("y", _LINEAR)], "y")),
    ),
    "POOLED": (
        Fires(
            Written(_FIELD, [one("y", _POOL), one("q", _SIGNED)], "q"),
            [replace(_SIGNED, x=ref("z")), replace(_POOL, x=ref("q_all"))],
        ),
        Stays(Written(_FIELD, [one("y", _POOL), one("q", _SIGNED)], "q", "y")),
        Stays(Written(_FIELD, [one("y", replace(_POOL, indices=True)), one("q", _SIGNED)], "q")),
    ),
}  # fmt: skip
