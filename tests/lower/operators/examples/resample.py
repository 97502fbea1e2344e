"""Examples of images in another size."""

from __future__ import annotations

from hypothesis import strategies as st
from torch import Tensor

from golow.lower.operators.resample import Resample, ResampleBackward
from support.graphs.drawn_arguments import Differentiated, Named, X
from support.graphs.one_call import tensor

RECORDS = (
    Resample(x=X, size=(4, 6), mode="nearest"),
    ResampleBackward(gradient=X, size=(2, 3), mode="linear"),
)


@st.composite
def _gradient(draw: st.DrawFn) -> Differentiated:
    axes, mode = draw(st.sampled_from([2, 3])), draw(st.sampled_from(["nearest", "linear"]))
    sizes = tuple(draw(st.integers(1, 4)) for _ in range(axes))
    if mode == "nearest":
        new = tuple(n * draw(st.integers(1, 3)) for n in sizes)
    else:
        new = tuple(draw(st.integers(1, 7)) for _ in range(axes))
    x = tensor(2, 3, *sizes, seed=draw(st.integers(0, 9)))

    def backward(results: tuple[Tensor, ...], gradient: Tensor) -> Named:
        return {"gradient": gradient, "size": sizes, "mode": mode}

    return Differentiated({"x": x, "size": new, "mode": mode}, ("x",), backward)


GRADIENTS = {ResampleBackward: _gradient()}
