"""Batch norm in training, forward and backward, with residual and activation; also in inference, if
it was not folded into a convolution."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, NamedTuple

from golow.levels.direct.cudnn.build.refusing import without_formula
from golow.levels.direct.cudnn.problems.layouts import Layout
from golow.levels.direct.cudnn.shared_kernels import batch_norm as kernels
from golow.levels.direct.cudnn.steps.built_plan import Tensor
from golow.levels.direct.cudnn.steps.elementwise import in_place_or_new
from golow.levels.direct.cudnn.steps.pixel_ranges import range_pitch, seen_range
from golow.levels.direct.formulas.activation_formulas import (
    NO_CLIP,
    Clip,
    clip_of,
    derivative_at_argument,
    value,
)
from golow.levels.direct.implementation import Implementation, Question, in_groups
from golow.levels.direct.refusing import not_made_by, refuse_integers
from golow.lower.ir.graph import Activation, Ref
from golow.lower.operators.batch_norm import BatchNorm, BatchNormBackward, BatchNormInference

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.build.builder import Builder

VECTOR = Layout("float32")


class Mask(NamedTuple):
    """Where a result was clipped that backward cannot compute again, since a residual was added."""

    tensor: Tensor


def batch_norm(build: Builder, arguments: BatchNorm) -> None:
    """Define result, mean, inverse deviation, new running mean and new running variance."""
    x, (clip, formula) = _normed(build, arguments.x), _clip_or_formula(arguments.activation)
    rows, channels = x.elements // x.shape[1], x.shape[1]
    y, pitch = _result(build, x)
    launches = kernels.batch_norm(
        x.dtype,
        rows,
        channels,
        momentum=arguments.momentum,
        epsilon=arguments.epsilon,
        clip=clip,
        formula=formula,
        pitch=pitch,
    )
    residual = arguments.residual
    added = None if residual is None else build.values.wanted(residual, x.layout)
    statistics = [
        build.memory.new(f"{build.current.name}.{i}", (channels,), VECTOR) for i in (1, 2)
    ]
    running = [build.inputs.state(r) for r in (arguments.running_mean, arguments.running_variance)]
    mask = None
    if added is not None and clip != NO_CLIP:
        size = kernels.mask_bytes(x.dtype, rows, channels)
        mask = build.memory.new(f"{build.current.name}.mask", (size,), Layout("uint8"))
    scale, shift = _vector(build, arguments.scale), _vector(build, arguments.shift)
    build.steps.kernels(launches, [x, added, scale, shift], [y, *statistics, *running, mask])
    if mask is not None:
        build.current.note(build.current.output(0).name, Mask(mask))
    for index, tensor in enumerate((y, *statistics, *running)):
        build.values.define(index, tensor)


def batch_norm_backward(build: Builder, arguments: BatchNormBackward) -> None:
    """Define the gradients of x, scale, shift and, if it is read, of the residual."""
    x = _normed(build, arguments.x)
    rows, channels = x.elements // x.shape[1], x.shape[1]
    outer, outer_pitch = _gradient(build, arguments.gradient, x)
    second, second_pitch = None, 0
    if arguments.second is not None:
        second, second_pitch = _gradient(build, arguments.second, x)
    clip, formula = _clip_or_gradient(arguments)
    noted = arguments.result and build.current.found_note(arguments.result.name, Mask)
    mask = noted.tensor if noted else None
    mean, deviation = (
        build.values.wanted(r, VECTOR) for r in (arguments.mean, arguments.inverse_deviation)
    )
    scale, shift = _vector(build, arguments.scale), _vector(build, arguments.shift)
    if outer_pitch:
        inner = build.memory.new(build.current.output_name(), x.shape, x.layout)
    else:
        inner = in_place_or_new(build, arguments.gradient, outer)
    vectors = [
        build.values.result(index, VECTOR)
        if build.current.is_read(index)
        else build.memory.new(f"{build.current.name}.{index}", (channels,), VECTOR)
        for index in (1, 2)
    ]
    branch = None
    if build.current.is_read(3):
        branch = build.memory.new(build.current.output(3).name, x.shape, x.layout)
    some = None
    if max(arguments.step) > 1:
        height, width = x.shape[2:]
        some = kernels.SomePixels(height, width, *arguments.step)
    launches = kernels.batch_norm_backward(
        x.dtype, rows, channels, clip=clip, formula=formula, masked=mask is not None, second=some,
        residual=branch is not None, pitches=(outer_pitch, second_pitch),
    )  # fmt: skip
    reads = [outer, second, mask, x, scale, shift, mean, deviation]
    build.steps.kernels(launches, reads, [inner, *vectors, branch])
    for index, tensor in enumerate((inner, *vectors, branch)):
        if tensor is not None:
            build.values.define(index, tensor)


def _normed(build: Builder, reference: Ref) -> Tensor:
    """The input of the norm: an image as NHWC, or a matrix [N, C]."""
    if len(build.current.value(reference).shape) == 2:
        return build.values.wanted(reference, Layout(build.types.computed))
    return build.values.image(reference)


def _result(build: Builder, x: Tensor) -> tuple[Tensor, int]:
    """Memory for the norm of x, with its pitch: where it is joined, if rows can be written there,
    else as x is stored."""
    name = build.current.output(0).name
    there = build.concatenations.tensor(name, x.shape, x.layout)
    dense = x.elements == math.prod(x.shape)
    pitch = range_pitch(there, x.shape, x.dtype) if there is not None and dense else None
    if there is None or pitch is None:
        return build.memory.new(name, x.shape, x.layout), 0
    return there, pitch


def _gradient(build: Builder, reference: Ref, x: Tensor) -> tuple[Tensor, int]:
    """A gradient, with its pitch if it is a range of a wider image; otherwise as x is stored."""
    dense = x.elements == math.prod(x.shape)
    found = seen_range(build, reference, x.shape, x.dtype) if dense else None
    return found if found and found[1] else (build.values.wanted(reference, x.layout), 0)


def _vector(build: Builder, reference: Ref | None) -> Tensor | None:
    return None if reference is None else build.values.wanted(reference, VECTOR)


def _clip_or_formula(activation: Activation | None) -> tuple[Clip, str]:
    """Return the clip that forward applies, or another activation as C over ``value``."""
    clip = clip_of(activation)
    if clip is None and activation is not None:
        return NO_CLIP, value(activation, "value")
    return clip or NO_CLIP, ""


def _clip_or_gradient(arguments: BatchNormBackward) -> tuple[Clip, str]:
    """Return the clip that backward applies, or the gradient of an activation as C over
    ``gradient`` and ``value``, its argument."""
    if arguments.activation is None or arguments.result is not None:
        return clip_of(arguments.activation) or NO_CLIP, ""
    return NO_CLIP, derivative_at_argument(arguments.activation, "(gradient)", "value")


def _refuse(arguments: BatchNorm | BatchNormBackward, question: Question) -> str:
    axes = len(question.value(arguments.x).shape)
    if axes not in (2, 4):
        return f"{question.node.op} over {axes} axes"
    return refuse_integers(arguments, question)


def _refuse_training(arguments: BatchNorm | BatchNormBackward, question: Question) -> str:
    return _refuse(arguments, question) or without_formula(question, arguments.activation)


def _refuse_backward(arguments: BatchNormBackward, question: Question) -> str:
    activation = arguments.activation
    if missing := _refuse_training(arguments, question):
        return missing
    if arguments.result is not None and clip_of(activation) is None:
        return f"{question.node.op} from the result of {activation and activation.name}"
    if arguments.result is not None:
        return not_made_by(question, arguments.result, BatchNorm)
    if activation is not None and question.output(3) is not None:
        return f"{question.node.op} of {activation.name} with a gradient for a residual"
    return ""


IMPLEMENTATIONS = (
    Implementation(BatchNorm, batch_norm, _refuse_training),
    Implementation(BatchNormBackward, batch_norm_backward, _refuse_backward),
    Implementation(BatchNormInference, in_groups, refuse_integers),
)
