"""Examples of what batch norms and their gradients take in."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from golow.lower.ir.graph import Activation
from golow.lower.ir.operator import Operator
from golow.lower.operators.activation import ActivateBackward
from golow.lower.operators.batch_norm import BatchNorm, BatchNormBackward
from golow.lower.operators.convolution import ConvolutionBackward
from support.graphs.written_graphs import (
    CHANNELS,
    IMAGES,
    NORM,
    RELU,
    TANH,
    Fires,
    Stays,
    Written,
    activate,
    add,
    numbers,
    one,
    ref,
)

CLIP = Activation(name="clip", numbers=(0.0, 6.0))


def _in_inference(activation: Activation, *returned: str) -> Written:
    nodes = [one("n", replace(NORM, x=ref("x"))), one("a", activate("n", activation))]
    return Written(IMAGES | CHANNELS, nodes, "a", *returned)


# ---------------------------------------------------------------- activations and residuals

_NORM = BatchNorm(
    x=ref("x"), scale=ref("scale"), shift=None, running_mean=ref("mean"),
    running_variance=ref("variance"), momentum=0.1, epsilon=1e-5,
)  # fmt: skip
_BACK = BatchNormBackward(
    gradient=ref("outer"), x=ref("x"), scale=ref("scale"), mean=ref("n_1"),
    inverse_deviation=ref("n_2"), epsilon=1e-5, wanted=(True, True, True, False),
)  # fmt: skip


def _step(
    activation: Activation, *between: tuple[str, Operator], returned: tuple[str, ...] = ()
) -> Written:
    """A norm, what comes between, an activation of that value, and the way back to x."""
    given = IMAGES | CHANNELS | {"gradient": numbers(2, 3, 4, 4) - 0.5}
    forward = [*between] if between else [one("a", activate("n", activation))]
    last = forward[-1][0]
    outer = ActivateBackward(
        gradient=ref("gradient"), value=ref(last), activation=activation, from_result=True
    )
    nodes = [one("n", _NORM), *forward, one("outer", outer), one("inner", _BACK)]
    outputs = (last, "n_3", "n_4", "inner", "inner_1", "inner_2")
    return Written(given, nodes, *outputs, *returned)


def _activated(activation: Activation) -> Fires:
    back: dict[str, Any] = {"gradient": ref("gradient"), "activation": activation}
    return Fires(
        _step(activation),
        [replace(_NORM, activation=activation), replace(_BACK, result=ref("a"), **back)],
    )


def _with_residual(activation: Activation, a: str, b: str) -> Fires:
    back: dict[str, Any] = {"gradient": ref("gradient"), "activation": activation}
    return Fires(
        _step(activation, _sum_of(a, b, activation)),
        [
            replace(_NORM, activation=activation, residual=ref("z")),
            replace(_BACK, result=ref("s"), **back),
        ],
    )


def _sum_of(a: str, b: str, activation: Activation) -> tuple[str, Operator]:
    return one("s", replace(add(a, b), activation=activation))


# Without the norm's own value nobody could read it any more.
_OWN_VALUE_GOES_ON = _step(RELU, one("t", activate("n", TANH)), one("a", activate("n")))
# With a residual the gradient goes there as well: a further result.
_OTHERS_READ_THE_GRADIENT = _step(RELU, _sum_of("n", "z", RELU), returned=("outer",))
_GOES_THERE = replace(
    _BACK, gradient=ref("gradient"), activation=RELU, result=ref("s"), wanted=(True,) * 4
)

# ---------------------------------------------------------------- sums of gradients

_INNER = BatchNormBackward(
    gradient=ref("s"), x=ref("x"), scale=None, mean=ref("mean"), inverse_deviation=ref("variance"),
    epsilon=1e-5, wanted=(True, True, True, False), result=ref("z"), activation=RELU,
)  # fmt: skip


def _added(inner: BatchNormBackward, *returned: str) -> Written:
    given = IMAGES | CHANNELS | {"g": numbers(2, 3, 4, 4) - 0.5}
    return Written(given, [one("s", add("g", "z")), one("inner", inner)], "inner", *returned)


# ---------------------------------------------------------------- pixels that a shortcut reads

_LAYER = ConvolutionBackward(
    gradient=ref("outer"), x=ref("x"), weight=ref("v"), stride=(2, 2), padding=(0, 0, 0, 0),
    dilation=(1, 1), groups=1, wanted=(True, True, False),
)  # fmt: skip
_OF_BOTH = replace(_INNER, gradient=ref("x"), second=ref("g"))
_SWAPPED = replace(_INNER, gradient=ref("g"), second=ref("x"))
_STRIDED = [replace(_LAYER, compact=True), replace(_OF_BOTH, step=(2, 2))]


def _shortcut(layer: ConvolutionBackward, norm: BatchNormBackward, *returned: str) -> Written:
    given = IMAGES | CHANNELS | {"outer": numbers(2, 3, 2, 2), "v": numbers(3, 3, 1, 1)}
    return Written(given, [one("g", layer), one("inner", norm)], "inner", *returned)


# ---------------------------------------------------------------- by rule

EXAMPLES = {
    "INFERENCE_RELU": (
        Fires(_in_inference(RELU), [replace(NORM, x=ref("x"), activation=RELU)]),
        Stays(_in_inference(TANH)),
        Stays(_in_inference(RELU, "n")),
    ),
    "RELU": (
        _activated(RELU),
        Stays(_step(CLIP)),
        Stays(_step(RELU, _sum_of("n", "z", RELU))),
        Stays(_OWN_VALUE_GOES_ON),
        Stays(_OTHERS_READ_THE_GRADIENT),
    ),
    "CLIPPED": (
        _activated(RELU),
        _activated(CLIP),
        *(_with_residual(act, *of) for act in (RELU, CLIP) for of in (("n", "z"), ("z", "n"))),
        Fires(
            _OTHERS_READ_THE_GRADIENT,
            [replace(_NORM, activation=RELU, residual=ref("z")), _GOES_THERE],
        ),
        Stays(_step(TANH)),
        Stays(_OWN_VALUE_GOES_ON),
    ),
    "GRADIENT_SUM": (
        Fires(_added(_INNER), [replace(_INNER, gradient=ref("g"), second=ref("z"))]),
        Stays(_added(_INNER, "s")),
        Stays(_added(replace(_INNER, activation=None, result=None))),
    ),
    # It may be either of the two that are added; the layer's other results stay.
    "STRIDED": (
        Fires(_shortcut(_LAYER, _OF_BOTH), _STRIDED),
        Fires(_shortcut(_LAYER, _SWAPPED), _STRIDED),
        Stays(_shortcut(_LAYER, replace(_INNER, gradient=ref("g")))),
        Stays(_shortcut(_LAYER, _OF_BOTH, "g")),
        Stays(_shortcut(replace(_LAYER, stride=(3, 3), padding=(1, 1, 1, 1)), _OF_BOTH)),
    ),
}
