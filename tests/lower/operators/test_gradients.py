"""Every gradient of the vocabulary means what autograd makes of its operation's meaning, and what
differences of it say."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from golow.lower.ir.graph import Activation
from golow.lower.ir.operator import Operator, activation_functions, vocabulary
from golow.lower.operators.activation import ActivateBackward
from support.examples import examples
from support.graphs.activation_examples import ACTIVATIONS, text
from support.graphs.drawn_arguments import Differentiated
from support.graphs.one_call import tensor
from support.graphs.operator_examples import GRADIENTS


def test_every_gradient_has_a_case() -> None:
    assert set(GRADIENTS) == {kind for kind in vocabulary().values() if kind.gradient_of}


@pytest.mark.parametrize("kind", GRADIENTS, ids=lambda kind: kind.__name__)
@examples(25)
@given(data=st.data())
def test_a_gradient_is_autograds(kind: type[Operator], data: st.DataObject) -> None:
    case = data.draw(GRADIENTS[kind])
    names = [name for name in case.of if case.given[name] is not None]
    leaves = [case.given[name].clone().requires_grad_() for name in names]
    results = forward(kind, case, names, leaves)
    gradient = tensor(*results[0].shape, seed=8)
    wanted = torch.autograd.grad(results[0], leaves, gradient)
    found = gradients(kind, case, results, gradient)
    for name, tensors in zip(names, wanted, strict=True):
        index = case.of.index(name)
        if not case.wanted or case.wanted[index]:
            torch.testing.assert_close(found[index], tensors, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("kind", GRADIENTS, ids=lambda kind: kind.__name__)
@examples(3)
@given(data=st.data())
def test_a_gradient_is_that_of_differences(kind: type[Operator], data: st.DataObject) -> None:
    case = data.draw(GRADIENTS[kind])
    names = [name for name in case.of if case.given[name] is not None]

    class Own(torch.autograd.Function):
        @staticmethod
        def forward(context: Any, *leaves: Tensor) -> Tensor:
            context.results = forward(kind, case, names, leaves)
            return context.results[0].clone()

        @staticmethod
        def backward(context: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
            found = gradients(kind, case, context.results, gradient)
            chosen = [case.of.index(name) for name in names]
            return tuple(found[i] if not case.wanted or case.wanted[i] else None for i in chosen)

    leaves = [
        case.given[name].clone().requires_grad_(not case.wanted or case.wanted[case.of.index(name)])
        for name in names
    ]
    assert torch.autograd.gradcheck(Own.apply, leaves, atol=1e-6, fast_mode=True)


def forward(
    kind: type[Operator], case: Differentiated, names: list[str], leaves: Any
) -> tuple[Tensor, ...]:
    assert kind.gradient_of is not None
    torch.manual_seed(0)
    found = kind.gradient_of.meaning(**case.given | dict(zip(names, leaves, strict=True)))
    return found if isinstance(found, tuple) else (found,)


def gradients(
    kind: type[Operator], case: Differentiated, results: tuple[Any, ...], gradient: Tensor
) -> tuple[Tensor, ...]:
    given = tuple(each if each is None else each.detach() for each in results)
    found = kind.meaning(**case.backward(given, gradient))
    return found if isinstance(found, tuple) else (found,)


@pytest.mark.parametrize("activation", ACTIVATIONS, ids=text)
def test_an_activation_has_no_gradient_from_what_it_does_not_read(activation: Activation) -> None:
    function = activation_functions()[activation.name]
    for from_result in (False, True):
        if function.reads in ("either", "result" if from_result else "argument"):
            continue
        with pytest.raises(ValueError, match=f"{activation.name} has no gradient from that value"):
            ActivateBackward.meaning(tensor(2), tensor(2), activation, from_result)
