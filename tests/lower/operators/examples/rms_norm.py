"""Examples of RMS norm."""

from __future__ import annotations

from hypothesis import strategies as st
from torch import Tensor

from golow.lower.operators.rms_norm import RmsNorm, RmsNormBackward
from support.graphs.drawn_arguments import Differentiated, Named, X, some
from support.graphs.one_call import tensor

NOT_IMPLEMENTED = {"onednn": (RmsNorm, RmsNormBackward)}

RECORDS = (
    RmsNorm(x=X, residual=X, weight=None, axes=1, epsilon=1e-6),
    RmsNormBackward(gradient=X, x=X, deviation=X, weight=X, added=None, axes=1),
)


@st.composite
def _gradient(draw: st.DrawFn) -> Differentiated:
    axes = draw(st.integers(1, 2))
    weight = tensor(*(2, 3, 4)[3 - axes :]) if draw(some) else None
    x = tensor(2, 3, 4)

    def backward(results: tuple[Tensor, ...], gradient: Tensor) -> Named:
        return {
            "gradient": gradient, "x": results[2], "deviation": results[1], "weight": weight,
            "added": None, "axes": axes,
        }  # fmt: skip

    residual = tensor(2, 3, 4, seed=1) if draw(some) else None
    given = {"x": x, "residual": residual, "weight": weight, "axes": axes, "epsilon": 1e-3}
    return Differentiated(given, ("x", "weight"), backward, (True, weight is not None))


GRADIENTS = {RmsNormBackward: _gradient()}
