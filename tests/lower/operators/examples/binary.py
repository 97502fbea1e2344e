"""Examples of arithmetic of two values."""

from __future__ import annotations

from hypothesis import strategies as st
from torch import Tensor

from golow.lower.operators.binary import Binary
from support.graphs.drawn_arguments import IMAGE, Drawn, X, elements, numbers, of_one, some
from support.graphs.one_call import tensor
from support.models.many_networks import Function

RECORDS = (Binary(function="add", a=X, b=2, activation=None),)


@st.composite
def _arithmetic(draw: st.DrawFn, alpha: bool, scalar: bool, integers: bool) -> Drawn:
    x = draw(elements())
    spread = [draw(st.sampled_from([1, n])) for n in x.shape][draw(st.integers(0, x.dim())) :]
    other = draw(numbers) if scalar or draw(some) else tensor(*spread, seed=5)
    if integers and draw(some):
        x = x.long()
        other = other.long() if isinstance(other, Tensor) else int(other)
    return Drawn({"self": x, "other": other} | ({"alpha": 1} if alpha else {}))


def _both(name: str, alpha: bool) -> dict[str, st.SearchStrategy[Drawn]]:
    whole = name != "div"  # whole numbers divide to fractions
    return {
        f"aten.{name}.Tensor": _arithmetic(alpha, scalar=False, integers=whole),
        f"aten.{name}.Scalar": _arithmetic(alpha, scalar=True, integers=whole),
    }


CALLS = {
    **_both("add", alpha=True),
    **_both("sub", alpha=True),
    **_both("mul", alpha=False),
    **_both("div", alpha=False),
    "aten.neg.default": st.one_of(
        of_one(), of_one().map(lambda drawn: Drawn({"self": drawn.named["self"].long()}))
    ),
}

LEFT = {
    "alpha": ("aten.add.Tensor", IMAGE, IMAGE, {"alpha": 2}),
    "alpha of a difference": ("aten.sub.Scalar", IMAGE, 2, 0.5),
}

LAYERS = (
    Function(lambda x: x + 1.5),
    Function(lambda x: x * x),
    Function(lambda x: x / 2 - x),
    Function(lambda x: -x),
)
