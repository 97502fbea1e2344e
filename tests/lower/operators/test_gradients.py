"""Every gradient of the vocabulary means what autograd makes of its operation's meaning, and what
differences of it say."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from golow.lower.ir.graph import Activation
from golow.lower.ir.operator import Operator, activation_functions, vocabulary
from golow.lower.operators.activation import ActivateBackward
from golow.lower.operators.adaptive_average_pool import AdaptiveAveragePoolBackward
from golow.lower.operators.attention import AttentionBackward
from golow.lower.operators.average_pool import AveragePoolBackward
from golow.lower.operators.batch_norm import BatchNormBackward
from golow.lower.operators.convolution import ConvolutionBackward
from golow.lower.operators.cross_entropy import CrossEntropyBackward
from golow.lower.operators.dropout import DropoutBackward
from golow.lower.operators.grouped_product import GroupedSums
from golow.lower.operators.layer_norm import LayerNormBackward
from golow.lower.operators.max_pool import MaxPoolBackward
from golow.lower.operators.nll_loss import NllLossBackward
from golow.lower.operators.recurrence import GATES, RecurrenceBackward
from golow.lower.operators.resample import ResampleBackward
from golow.lower.operators.rms_norm import RmsNormBackward
from golow.lower.operators.softmax import SoftmaxBackward
from golow.lower.operators.take import TakeBackward
from support.activation_numbers import ACTIVATIONS, text
from support.one_call import tensor

Fields = dict[str, Any]


class Case(NamedTuple):
    """given: the operation's arguments. of: those of them that have gradients, by the order of the
    gradient's results. backward: the gradient's arguments, from the operation's results and the
    gradient of the first of them."""

    given: Fields
    of: tuple[str, ...]
    backward: Callable[[tuple[Tensor, ...], Tensor], Fields]
    wanted: tuple[bool, ...] = ()


some = st.booleans()
RELU, CLIP = Activation(name="relu"), Activation(name="clip", numbers=(-0.5, 1.25))


def pairs(low: int, high: int) -> st.SearchStrategy[tuple[int, int]]:
    return st.tuples(st.integers(low, high), st.integers(low, high))


@st.composite
def activations(draw: st.DrawFn) -> Case:
    activation = draw(st.sampled_from(ACTIVATIONS))
    reads = activation_functions()[activation.name].reads
    from_result = draw(some) if reads == "either" else reads == "result"
    x = tensor(3, 4, seed=draw(st.integers(0, 9))) * 2

    def backward(results: tuple[Tensor, ...], gradient: Tensor) -> Fields:
        value = results[0] if from_result else x
        return {
            "gradient": gradient, "value": value, "activation": activation,
            "from_result": from_result,
        }  # fmt: skip

    return Case({"x": x, "activation": activation}, ("x",), backward)


@st.composite
def convolutions(draw: st.DrawFn) -> Case:
    groups = draw(st.sampled_from([1, 2]))
    top, left = draw(pairs(0, 2))
    settings = {
        "stride": draw(pairs(1, 2)), "padding": (top, left, top, left),
        "dilation": draw(pairs(1, 2)), "groups": groups,
    }  # fmt: skip
    x, weight = tensor(2, 2, 6, 5), tensor(4, 2 // groups, *draw(pairs(1, 3)), seed=1)
    wanted = draw(st.tuples(some, some, some).filter(any))

    def backward(results: tuple[Tensor, ...], gradient: Tensor) -> Fields:
        return {"gradient": gradient, "x": x, "weight": weight, **settings, "wanted": wanted}

    given = {"x": x, "weight": weight, "bias": tensor(4), **settings}
    fixed = {"residual": None, "activation": None}
    return Case(given | fixed, ("x", "weight", "bias"), backward, wanted)


@st.composite
def norms(draw: st.DrawFn) -> Case:
    shape = (4, 3, *draw(st.sampled_from([(), (2,), (2, 3)])))
    x, residual = tensor(*shape), tensor(*shape, seed=4) if draw(some) else None
    scale = tensor(3, seed=1) if draw(some) else None
    shift = tensor(3, seed=2) if scale is not None else None
    activation = draw(st.sampled_from([None, RELU, CLIP]))
    affine = scale is not None
    added = some if residual is not None else st.just(False)
    wanted = draw(st.tuples(some, st.just(affine), st.just(affine), added).filter(any))
    divided = draw(some)

    def backward(results: tuple[Tensor, ...], gradient: Tensor) -> Fields:
        y, mean, inverse_deviation = results[:3]
        part = tensor(*shape, seed=6)
        return {
            "gradient": gradient - part if divided else gradient,
            "second": part if divided else None,
            "x": x, "scale": scale, "mean": mean, "inverse_deviation": inverse_deviation,
            "epsilon": 1e-3, "wanted": wanted, "activation": activation,
            "result": None if activation is None else y,
        }  # fmt: skip

    given = {
        "x": x, "scale": scale, "shift": shift, "running_mean": tensor(3),
        "running_variance": tensor(3).abs(), "momentum": 0.1, "epsilon": 1e-3,
        "residual": residual, "activation": activation,
    }  # fmt: skip
    return Case(given, ("x", "scale", "shift", "residual"), backward, wanted)


@st.composite
def pools(draw: st.DrawFn, maximum: bool) -> Case:
    x = tensor(1, 2, draw(st.integers(5, 7)), draw(st.integers(5, 7)))
    settings: Fields = {
        "kernel": draw(pairs(2, 3)), "stride": draw(pairs(1, 3)), "padding": draw(pairs(0, 1)),
        "ceil": draw(some),
    }  # fmt: skip
    if maximum:
        settings["dilation"] = draw(pairs(1, 2))
    else:
        divisor = draw(st.sampled_from([None, 3]))
        settings |= {"with_padding": draw(some), "divisor": divisor}

    def backward(results: tuple[Tensor, ...], gradient: Tensor) -> Fields:
        more = {"indices": results[1]} if maximum else {}
        return {"gradient": gradient, "x": x, **settings, **more}

    return Case({"x": x, **settings} | ({"indices": True} if maximum else {}), ("x",), backward)


@st.composite
def adaptive_pools(draw: st.DrawFn) -> Case:
    x, size = tensor(2, 2, *draw(pairs(1, 6))), draw(pairs(1, 7))

    def backward(results: tuple[Tensor, ...], gradient: Tensor) -> Fields:
        return {"gradient": gradient, "shape": tuple(x.shape)}

    return Case({"x": x, "size": size}, ("x",), backward)


@st.composite
def softmaxes(draw: st.DrawFn) -> Case:
    log, axis = draw(some), draw(st.integers(0, 2))

    def backward(results: tuple[Tensor, ...], gradient: Tensor) -> Fields:
        return {"gradient": gradient, "result": results[0], "axis": axis, "log": log}

    return Case({"x": tensor(2, 3, 4), "axis": axis, "log": log}, ("x",), backward)


@st.composite
def losses(draw: st.DrawFn) -> Case:
    ignored = draw(st.sampled_from([-100, 1]))
    target = torch.tensor([draw(st.sampled_from([0, 2, ignored])) for _ in range(3)] + [2])
    kept = {
        "logs": tensor(4, 3).log_softmax(1), "target": target,
        "reduction": draw(st.sampled_from(["mean", "sum"])), "ignored": ignored,
    }  # fmt: skip

    def backward(results: tuple[Tensor, ...], gradient: Tensor) -> Fields:
        return {"gradient": gradient, **kept, "total_weight": results[1]}

    return Case(kept, ("logs",), backward)


@st.composite
def entropies(draw: st.DrawFn) -> Case:
    ignored = draw(st.sampled_from([-100, 1]))
    target = torch.tensor([draw(st.sampled_from([0, 2, ignored])) for _ in range(3)] + [2])
    kept = {
        "x": tensor(4, 3), "target": target,
        "reduction": draw(st.sampled_from(["mean", "sum"])), "ignored": ignored,
    }  # fmt: skip

    def backward(results: tuple[Tensor, ...], gradient: Tensor) -> Fields:
        _, total, largest, logarithm = results
        rows = {"largest": largest, "logarithm": logarithm, "total_weight": total}
        return {"gradient": gradient, **kept, **rows}

    return Case(kept, ("x",), backward)


@st.composite
def dropouts(draw: st.DrawFn) -> Case:
    probability = draw(st.sampled_from([0.0, 0.25, 0.5]))

    def backward(results: tuple[Tensor, ...], gradient: Tensor) -> Fields:
        return {"gradient": gradient, "mask": results[1], "scale": 1 / (1 - probability)}

    return Case({"x": tensor(4, 5), "probability": probability}, ("x",), backward)


@st.composite
def taken(draw: st.DrawFn) -> Case:
    index = torch.tensor(draw(st.sampled_from([[0, 2, 2], [1, 1, 1], [3, 0, 4]])))
    axis = draw(st.integers(0, 1))

    def backward(results: tuple[Tensor, ...], gradient: Tensor) -> Fields:
        return {"gradient": gradient, "index": index, "axis": axis, "size": 5, "skipped": -1}

    return Case({"x": tensor(5, 5), "index": index, "axis": axis}, ("x",), backward)


@st.composite
def grouped(draw: st.DrawFn) -> Case:
    sizes = draw(st.lists(st.integers(0, 3), min_size=1, max_size=4))
    ends, rows = torch.tensor(sizes).cumsum(0).int(), sum(sizes) + draw(st.integers(1, 2))
    given = {"x": tensor(rows, 3), "weight": tensor(len(sizes), 3, 4), "ends": ends}

    def backward(results: tuple[Tensor, ...], gradient: Tensor) -> Fields:
        return {"x": given["x"], "gradient": gradient, "ends": ends}

    return Case({**given, "turned": False}, ("weight",), backward)


@st.composite
def layer_norms(draw: st.DrawFn) -> Case:
    axes = draw(st.integers(1, 2))
    shape = (2, 3, 4)[3 - axes :]
    affine = draw(some)
    weight, bias = (tensor(*shape), tensor(*shape, seed=1)) if affine else (None, None)
    x = tensor(2, 3, 4)

    def backward(results: tuple[Tensor, ...], gradient: Tensor) -> Fields:
        return {
            "gradient": gradient, "x": x, "mean": results[1], "deviation": results[2],
            "weight": weight, "bias": bias, "axes": axes,
        }  # fmt: skip

    given = {"x": x, "weight": weight, "bias": bias, "axes": axes, "epsilon": 1e-3}
    return Case(given, ("x", "weight", "bias"), backward, (True, affine, affine))


@st.composite
def rms_norms(draw: st.DrawFn) -> Case:
    axes = draw(st.integers(1, 2))
    weight = tensor(*(2, 3, 4)[3 - axes :]) if draw(some) else None
    x = tensor(2, 3, 4)

    def backward(results: tuple[Tensor, ...], gradient: Tensor) -> Fields:
        return {
            "gradient": gradient, "x": results[2], "deviation": results[1], "weight": weight,
            "added": None, "axes": axes,
        }  # fmt: skip

    residual = tensor(2, 3, 4, seed=1) if draw(some) else None
    given = {"x": x, "residual": residual, "weight": weight, "axes": axes, "epsilon": 1e-3}
    return Case(given, ("x", "weight"), backward, (True, weight is not None))


ADDED = st.sampled_from([(1, 1), (2, 1), (1, 4), (2, 4)])


@st.composite
def attentions(draw: st.DrawFn) -> Case:
    causal, groups = draw(some), draw(st.sampled_from([1, 2, 4]))
    scale = draw(st.sampled_from([None, 0.3]))
    query = tensor(2, 4, 3, 2, seed=draw(st.integers(0, 9)))
    key, value = tensor(2, groups, 5, 2, seed=1), tensor(2, groups, 5, 3, seed=2)
    added = None if causal or draw(some) else tensor(*draw(ADDED), 3, 5, seed=3)
    named = {"query": query, "key": key, "value": value, "added": added}
    named |= {"causal": causal, "scale": scale}

    def backward(results: tuple[Tensor, ...], gradient: Tensor) -> Fields:
        return named | {"gradient": gradient, "output": results[0], "logarithm": results[1]}

    return Case(named, ("query", "key", "value"), backward)


@st.composite
def resized(draw: st.DrawFn) -> Case:
    axes, mode = draw(st.sampled_from([2, 3])), draw(st.sampled_from(["nearest", "linear"]))
    sizes = tuple(draw(st.integers(1, 4)) for _ in range(axes))
    if mode == "nearest":
        new = tuple(n * draw(st.integers(1, 3)) for n in sizes)
    else:
        new = tuple(draw(st.integers(1, 7)) for _ in range(axes))
    x = tensor(2, 3, *sizes, seed=draw(st.integers(0, 9)))

    def backward(results: tuple[Tensor, ...], gradient: Tensor) -> Fields:
        return {"gradient": gradient, "size": sizes, "mode": mode}

    return Case({"x": x, "size": new, "mode": mode}, ("x",), backward)


@st.composite
def recurrences(draw: st.DrawFn) -> Case:
    kind, biased = draw(st.sampled_from(sorted(GATES))), draw(some)
    lstm = kind == "lstm"
    projected = lstm and draw(some)
    rows, width = GATES[kind] * 3, 2 if projected else 3
    named: Fields = {
        "x": tensor(draw(st.integers(1, 3)), 2, 4), "hidden": tensor(2, width, seed=1),
        "cell": tensor(2, 3, seed=2) if lstm else None,
        "input_weight": tensor(rows, 4, seed=3), "hidden_weight": tensor(rows, width, seed=4),
        "input_bias": tensor(rows, seed=5) if biased else None,
        "hidden_bias": tensor(rows, seed=6) if biased else None,
        "projection": tensor(2, 3, seed=7) if projected else None,
    }  # fmt: skip
    given = {"kind": kind, "backwards": draw(some), **named}

    def backward(results: tuple[Tensor, ...], gradient: Tensor) -> Fields:
        return given | {"gradient": gradient, "last_gradient": None, "output": results[0]}

    return Case(given, tuple(named), backward, tuple(v is not None for v in named.values()))


GRADIENTS: dict[type[Operator], st.SearchStrategy[Case]] = {
    ActivateBackward: activations(),
    AdaptiveAveragePoolBackward: adaptive_pools(),
    AttentionBackward: attentions(),
    AveragePoolBackward: pools(maximum=False),
    BatchNormBackward: norms(),
    ConvolutionBackward: convolutions(),
    CrossEntropyBackward: entropies(),
    DropoutBackward: dropouts(),
    GroupedSums: grouped(),
    LayerNormBackward: layer_norms(),
    MaxPoolBackward: pools(maximum=True),
    NllLossBackward: losses(),
    RecurrenceBackward: recurrences(),
    ResampleBackward: resized(),
    RmsNormBackward: rms_norms(),
    SoftmaxBackward: softmaxes(),
    TakeBackward: taken(),
}


def test_every_gradient_has_a_case() -> None:
    assert set(GRADIENTS) == {kind for kind in vocabulary().values() if kind.gradient_of}


@pytest.mark.parametrize("kind", GRADIENTS, ids=lambda kind: kind.__name__)
@settings(max_examples=25, deadline=None)
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
@settings(max_examples=3, deadline=None)
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


def forward(kind: type[Operator], case: Case, names: list[str], leaves: Any) -> tuple[Tensor, ...]:
    assert kind.gradient_of is not None
    torch.manual_seed(0)
    found = kind.gradient_of.meaning(**case.given | dict(zip(names, leaves, strict=True)))
    return found if isinstance(found, tuple) else (found,)


def gradients(
    kind: type[Operator], case: Case, results: tuple[Any, ...], gradient: Tensor
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
