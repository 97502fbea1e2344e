"""Batch norm: with running statistics in inference; in training with a fused residual and
activation, and its gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING

from golow.lower.ir.graph import Activation, Ref
from golow.lower.ir.operator import Operator, activation_functions
from golow.lower.operators.activation import activated

if TYPE_CHECKING:
    from torch import Tensor

    from golow.lower.ir.spelling import Call


class BatchNormInference(Operator, frozen=True, kw_only=True):
    """activation((x - mean) / sqrt(variance + epsilon) * scale + shift), with running statistics.

    x: [N, C, ...]; the others [C].
    """

    x: Ref
    scale: Ref | None
    shift: Ref | None
    mean: Ref
    variance: Ref
    epsilon: float
    activation: Activation | None = None

    @staticmethod
    def meaning(
        x: Tensor,
        scale: Tensor | None,
        shift: Tensor | None,
        mean: Tensor,
        variance: Tensor,
        epsilon: float,
        activation: Activation | None,
    ) -> Tensor:
        from torch.nn import functional

        normed = functional.batch_norm(x, mean, variance, scale, shift, False, 0.0, epsilon)
        return activated(normed, activation)


class BatchNorm(Operator, frozen=True, kw_only=True):
    """activation(norm(x) * scale + shift + residual) with the batch's own statistics.

    Returns the result, the batch's mean and inverse standard deviation, and the new running mean
    and variance. x: [N, C, ...]; residual: as x; the others [C].
    """

    x: Ref
    scale: Ref | None
    shift: Ref | None
    running_mean: Ref
    running_variance: Ref
    momentum: float
    epsilon: float
    residual: Ref | None = None
    activation: Activation | None = None

    @property
    def results(self) -> int:
        return 5

    @staticmethod
    def meaning(
        x: Tensor,
        scale: Tensor | None,
        shift: Tensor | None,
        running_mean: Tensor,
        running_variance: Tensor,
        momentum: float,
        epsilon: float,
        residual: Tensor | None,
        activation: Activation | None,
    ) -> tuple[Tensor, ...]:
        import torch

        normed, *statistics = torch.ops.aten._native_batch_norm_legit_functional.default(
            x, scale, shift, running_mean, running_variance, True, momentum, epsilon
        )
        total = normed if residual is None else normed + residual
        return activated(total, activation), *statistics


class BatchNormBackward(Operator, frozen=True, kw_only=True):
    """Gradients of x, scale, shift and residual of a `BatchNorm`, those that are wanted.

    second: if given, it is first added to gradient, or to every step-th pixel of it, down and
    across. result: the norm's result, if the norm has an activation whose gradient reads it.
    shift: without a result, the norm's, by which the activation's argument is computed again.
    """

    gradient_of = BatchNorm

    gradient: Ref
    x: Ref
    scale: Ref | None
    mean: Ref
    inverse_deviation: Ref
    epsilon: float
    wanted: tuple[bool, bool, bool, bool]
    second: Ref | None = None
    result: Ref | None = None
    activation: Activation | None = None
    shift: Ref | None = None
    step: tuple[int, int] = (1, 1)

    @property
    def results(self) -> int:
        return 4

    @staticmethod
    def meaning(
        gradient: Tensor,
        x: Tensor,
        scale: Tensor | None,
        mean: Tensor,
        inverse_deviation: Tensor,
        epsilon: float,
        wanted: tuple[bool, bool, bool, bool],
        second: Tensor | None,
        result: Tensor | None,
        activation: Activation | None,
        shift: Tensor | None = None,
        step: tuple[int, int] = (1, 1),
    ) -> tuple[Tensor, ...]:
        import torch

        inner = gradient
        if second is not None and max(step) == 1:
            inner = gradient + second
        elif second is not None:
            inner = gradient.clone()
            inner[:, :, :: step[0], :: step[1]] += second
        if activation is not None:
            function = activation_functions()[activation.name]
            value = result
            if value is None:
                value = _argument(x, scale, shift, mean, inverse_deviation)
                if function.reads == "result":
                    value = function.forward(value, *activation.numbers)
            inner = function.backward(inner, value, *activation.numbers)
        found = torch.ops.aten.native_batch_norm_backward.default(
            inner, x, scale, None, None, mean, inverse_deviation, True, epsilon, wanted[:3]
        )
        return *found, inner


def _argument(
    x: Tensor,
    scale: Tensor | None,
    shift: Tensor | None,
    mean: Tensor,
    inverse_deviation: Tensor,
) -> Tensor:
    """The argument of the activation after a norm."""

    def of_channels(vector: Tensor) -> Tensor:
        return vector.view(-1, *[1] * (x.dim() - 2))

    found = (x - of_channels(mean)) * of_channels(inverse_deviation)
    if scale is not None:
        found = found * of_channels(scale)
    return found if shift is None else found + of_channels(shift)


def inference(call: Call) -> BatchNormInference | None:
    """``batch_norm`` with ``training=False``."""
    if call.flag("training") or not _of_rows_or_images(call):
        return None
    return _by_running_statistics(call)


def no_training(call: Call) -> BatchNormInference:
    """``_native_batch_norm_legit_no_training``."""
    return _by_running_statistics(call)


def _of_rows_or_images(call: Call) -> bool:
    """Signals and volumes become images (`decompositions/batch_norm.py`)."""
    return call.rank("input") in (2, 4)


def _by_running_statistics(call: Call) -> BatchNormInference:
    return BatchNormInference(
        x=call.ref("input"),
        scale=call.ref_or_none("weight"),
        shift=call.ref_or_none("bias"),
        mean=call.ref("running_mean"),
        variance=call.ref("running_var"),
        epsilon=call.number("eps"),
    )


def training(call: Call) -> BatchNorm | None:
    """``_native_batch_norm_legit_functional``, the form in joint graphs."""
    if not call.flag("training") or not _of_rows_or_images(call):
        return None
    return BatchNorm(
        x=call.ref("input"),
        scale=call.ref_or_none("weight"),
        shift=call.ref_or_none("bias"),
        running_mean=call.ref("running_mean"),
        running_variance=call.ref("running_var"),
        momentum=call.number("momentum"),
        epsilon=call.number("eps"),
    )


FORWARD = "aten._native_batch_norm_legit_functional.default"


def backward(call: Call) -> BatchNormBackward | None:
    """``native_batch_norm_backward`` with the batch's statistics, of a batch norm that the
    vocabulary knows: without running statistics (instance norm) it does not."""
    own = call.flag("train") and call.made_by_or_given("save_mean", FORWARD)
    if not own or not _of_rows_or_images(call):
        return None
    of_x, of_scale, of_shift = call.flags("output_mask")
    return BatchNormBackward(
        gradient=call.ref("grad_out"),
        x=call.ref("input"),
        scale=call.ref_or_none("weight"),
        mean=call.ref("save_mean"),
        inverse_deviation=call.ref("save_invstd"),
        epsilon=call.number("eps"),
        wanted=(of_x, of_scale, of_shift, False),
    )


SPELLINGS = {
    "aten.batch_norm.default": inference,
    "aten._native_batch_norm_legit_no_training.default": no_training,
    FORWARD: training,
    "aten.native_batch_norm_backward.default": backward,
}
