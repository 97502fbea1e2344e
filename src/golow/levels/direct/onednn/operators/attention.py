"""Attention and its gradients by generated kernels, on views of any strides, or with NumPy."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from golow.levels.direct.implementation import Implementation
from golow.levels.direct.onednn.bindings.library import Descriptor
from golow.levels.direct.onednn.build.builder import Builder
from golow.levels.direct.onednn.build.reader_layouts import made_for_reader
from golow.levels.direct.onednn.kernels import flash_attention as kernels
from golow.levels.direct.onednn.kernels.flash_attention import Placed, Scores
from golow.levels.direct.onednn.steps.array_steps import results_of_arrays
from golow.levels.direct.onednn.steps.built_plan import Tensor
from golow.levels.direct.onednn.steps.strided_views import dense
from golow.levels.direct.onednn.steps.value_views import strided
from golow.lower.ir.graph import Ref
from golow.lower.operators.attention import Attention, AttentionBackward


class Added(NamedTuple):
    """Term added to the scores, and its steps by image, head, row and key."""

    tensor: Tensor
    steps: tuple[int, ...]


def attention(build: Builder, arguments: Attention) -> None:
    """The result is stored in its reader's layout, in training in the query's: mostly with each
    row's heads side by side."""
    if not build.generates:
        _with_arrays(build, arguments)
        return
    query, key, value = (
        _heads(build, a) for a in (arguments.query, arguments.key, arguments.value)
    )
    output = _output(build, query, value.shape[3])
    written = [output]
    if keeps := build.current.is_read(1):
        rows = build.current.output(1).shape
        written.append(build.memory.new(build.current.output_name(1), rows, Descriptor.plain(rows)))
    added = _added(build, arguments.added, query.shape[2])
    placed = [_placed(tensor) for tensor in (query, key, value, output)]
    kernel = kernels.attention(placed, _how(arguments, query, added), keeps)
    build.steps.kernel(kernel, [query, key, value, *([added.tensor] if added else [])], written)
    for index, tensor in enumerate(written):
        build.values.define(index, tensor)


def attention_backward(build: Builder, arguments: AttentionBackward) -> None:
    """Each gradient is stored in the layout of its forward value, so that the node that made that
    reads it as it is."""
    if not build.generates:
        _backward_with_arrays(build, arguments)
        return
    query, key, value, output, gradient = (
        _heads(build, a)
        for a in (
            arguments.query, arguments.key, arguments.value, arguments.output, arguments.gradient,
        )
    )  # fmt: skip
    made = [_like(build, index, tensor) for index, tensor in enumerate((query, key, value))]
    added = _added(build, arguments.added, query.shape[2])
    placed = [_placed(tensor) for tensor in (query, key, value, output, gradient, *made)]
    kernel = kernels.attention_backward(placed, _how(arguments, query, added))
    logarithm = build.values.plain(arguments.logarithm)
    reads = [query, key, value, output, logarithm, gradient, *([added.tensor] if added else [])]
    build.steps.kernel(kernel, reads, made)
    for index, tensor in enumerate(made):
        build.values.define(index, tensor)


def _heads(build: Builder, reference: Ref) -> Tensor:
    """The value as it is stored, if the elements of a head's row are contiguous, else a copy."""
    view = build.views.of(reference)
    layout = strided(view)
    if layout is None or layout.strides[-1] != 1:
        return build.values.plain(reference)
    return view.tensor._replace(shape=build.current.value(reference).shape, descriptor=layout)


def _output(build: Builder, query: Tensor, width: int) -> Tensor:
    """Memory for the result."""
    shape = (*query.shape[:3], width)
    view = made_for_reader(build, shape) if not build.current.trains else None
    layout = strided(view) if view is not None else None
    if view is None or layout is None:
        return _like(build, 0, query._replace(shape=shape))
    return view.tensor._replace(shape=shape, descriptor=layout)


def _like(build: Builder, index: int, tensor: Tensor) -> Tensor:
    """Memory for a result of the tensor's shape, with the axes in the order in which its own
    are stored."""
    layout = dense(tensor.shape, (*tensor.layout.strides[:-1], 0))
    return build.memory.new(build.current.output_name(index), tensor.shape, layout)


def _placed(tensor: Tensor) -> Placed:
    return Placed(tensor.shape, tensor.layout.strides)


def _added(build: Builder, reference: Ref | None, rows: int) -> Added | None:
    """One row for all as it is; else the rows of each key side by side, as kernels add them."""
    if reference is None:
        return None
    shape = images, heads, own, keys = build.current.value(reference).shape
    by_image, by_head = heads * own * keys, own * keys
    if own == rows:
        steps = (by_image, by_head, 1, own)
        tensor = build.values.wanted(reference, Descriptor.strided(shape, steps))
    else:
        steps = (by_image, by_head, 0, 1)
        tensor = build.values.plain(reference)
    return Added(tensor, (steps[0] * (images > 1), steps[1] * (heads > 1), *steps[2:]))


def _how(arguments: Attention | AttentionBackward, query: Tensor, added: Added | None) -> Scores:
    steps = None if added is None else added.steps
    return Scores(steps, arguments.causal, _scale(arguments, query.shape[3]))


def _scale(arguments: Attention | AttentionBackward, width: int) -> float:
    return 1 / math.sqrt(width) if arguments.scale is None else arguments.scale


# ---------------------------------------------------------------- with NumPy


def _with_arrays(build: Builder, arguments: Attention) -> None:
    scale = _scale(arguments, build.current.value(arguments.query).shape[3])
    extra = [] if arguments.added is None else [arguments.added]

    def run(query: Any, key: Any, value: Any, *rest: Any) -> None:
        *added, output, logarithm = rest
        key, value = (_for_every_head(heads, query) for heads in (key, value))
        scores = _scores(query, key, added, arguments.causal, scale)
        most = scores.max(-1, keepdims=True)
        weights = np.exp(scores - most)
        total = weights.sum(-1, keepdims=True)
        output[...] = (weights / total).astype(np.float32) @ value
        if logarithm is not None:
            logarithm[...] = (most + np.log(total))[..., 0]

    results_of_arrays(build, run, [arguments.query, arguments.key, arguments.value, *extra])


def _backward_with_arrays(build: Builder, arguments: AttentionBackward) -> None:
    scale = _scale(arguments, build.current.value(arguments.query).shape[3])
    extra = [] if arguments.added is None else [arguments.added]

    def run(
        gradient: Any, query: Any, key: Any, value: Any, output: Any, logarithm: Any, *rest: Any
    ) -> None:
        *added, of_query, of_key, of_value = rest
        groups = key.shape[1]
        key, value = (_for_every_head(heads, query) for heads in (key, value))
        scores = _scores(query, key, added, arguments.causal, scale)
        weights = np.exp(scores - logarithm[..., None])
        of_scores = gradient @ value.swapaxes(-1, -2) - (gradient * output).sum(-1, keepdims=True)
        of_scores = (of_scores * weights * scale).astype(np.float32)
        weights = weights.astype(np.float32)
        found = (
            (of_query, of_scores @ key),
            (of_key, _of_groups(of_scores.swapaxes(-1, -2) @ query, groups)),
            (of_value, _of_groups(weights.swapaxes(-1, -2) @ gradient, groups)),
        )
        for result, array in found:
            if result is not None:
                result[...] = array

    given = [
        arguments.gradient, arguments.query, arguments.key, arguments.value, arguments.output,
        arguments.logarithm,
    ]  # fmt: skip
    results_of_arrays(build, run, [*given, *extra])


def _scores(query: Any, key: Any, added: list[Any], causal: bool, scale: float) -> Any:
    """In float64, but for the product."""
    scores = ((query * np.float32(scale)) @ key.swapaxes(-1, -2)).astype(np.float64)
    if causal:
        scores = np.where(np.tri(*scores.shape[-2:], dtype=np.bool_), scores, -np.inf)
    for term in added:
        scores += term
    return scores


def _for_every_head(heads: Any, query: Any) -> Any:
    return np.repeat(heads, query.shape[1] // heads.shape[1], axis=1)


def _of_groups(gradient: Any, groups: int) -> Any:
    images, heads, *rest = gradient.shape
    return gradient.reshape(images, groups, heads // groups, *rest).sum(2)


IMPLEMENTATIONS = (
    Implementation(Attention, attention),
    Implementation(AttentionBackward, attention_backward),
)
