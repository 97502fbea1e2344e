"""Examples of scaled dot-product attention."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from torch import Tensor

from golow.lower.operators.attention import Attention, AttentionBackward
from support.graphs.drawn_arguments import Differentiated, Named, X, some
from support.graphs.one_call import tensor

_HEADS: dict[str, Any] = {"query": X, "key": X, "value": X, "causal": True, "scale": None}

RECORDS = (
    Attention(**_HEADS, added=None),
    AttentionBackward(**_HEADS, added=X, gradient=X, output=X, logarithm=X),
)

_ADDED = st.sampled_from([(1, 1), (2, 1), (1, 4), (2, 4)])


@st.composite
def _gradient(draw: st.DrawFn) -> Differentiated:
    causal, groups = draw(some), draw(st.sampled_from([1, 2, 4]))
    scale = draw(st.sampled_from([None, 0.3]))
    query = tensor(2, 4, 3, 2, seed=draw(st.integers(0, 9)))
    key, value = tensor(2, groups, 5, 2, seed=1), tensor(2, groups, 5, 3, seed=2)
    added = None if causal or draw(some) else tensor(*draw(_ADDED), 3, 5, seed=3)
    named = {"query": query, "key": key, "value": value, "added": added}
    named |= {"causal": causal, "scale": scale}

    def backward(results: tuple[Tensor, ...], gradient: Tensor) -> Named:
        return named | {"gradient": gradient, "output": results[0], "logarithm": results[1]}

    return Differentiated(named, ("query", "key", "value"), backward)


GRADIENTS = {AttentionBackward: _gradient()}
