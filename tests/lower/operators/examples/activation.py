"""Examples of an activation on its own; those of each activation are in ``activations/``."""

from __future__ import annotations

from hypothesis import strategies as st
from torch import Tensor

from golow.lower.ir.operator import activation_functions
from golow.lower.operators.activation import Activate, ActivateBackward
from support.graphs.activation_examples import ACTIVATIONS
from support.graphs.drawn_arguments import Differentiated, Named, X, some
from support.graphs.one_call import tensor
from support.graphs.written_graphs import RELU

RECORDS = (
    Activate(x=X, activation=RELU),
    ActivateBackward(gradient=X, value=X, activation=RELU, from_result=True),
)


@st.composite
def _gradient(draw: st.DrawFn) -> Differentiated:
    activation = draw(st.sampled_from(ACTIVATIONS))
    reads = activation_functions()[activation.name].reads
    from_result = draw(some) if reads == "either" else reads == "result"
    x = tensor(3, 4, seed=draw(st.integers(0, 9))) * 2

    def backward(results: tuple[Tensor, ...], gradient: Tensor) -> Named:
        value = results[0] if from_result else x
        return {
            "gradient": gradient, "value": value, "activation": activation,
            "from_result": from_result,
        }  # fmt: skip

    return Differentiated({"x": x, "activation": activation}, ("x",), backward)


GRADIENTS = {ActivateBackward: _gradient()}
