"""Attention and its gradients by generated kernels, on views of any strides, or with NumPy."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from golow.levels.direct.implementation import Implementation
from golow.levels.direct.onednn.bindings.library import Descriptor
from golow.levels.direct.onednn.build.builder import Builder
from golow.levels.direct.onednn.build.heads import attended, heads, made_like, placed
from golow.levels.direct.onednn.kernels import flash_attention as kernels
from golow.levels.direct.onednn.kernels.flash_attention import Scores
from golow.levels.direct.onednn.steps.array_steps import results_of_arrays
from golow.levels.direct.onednn.steps.built_plan import Tensor
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
    query, key, value = (heads(build, a) for a in (arguments.query, arguments.key, arguments.value))
    output = attended(build, query, value.shape[3])
    written = [output]
    if keeps := build.current.is_read(1):
        rows = build.current.output(1).shape
        written.append(build.memory.new(build.current.output_name(1), rows, Descriptor.plain(rows)))
    added = _added(build, arguments.added, query.shape[2])
    places = [placed(tensor) for tensor in (query, key, value, output)]
    kernel = kernels.attention(places, _how(arguments, query, added), keeps)
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
        heads(build, a)
        for a in (
            arguments.query, arguments.key, arguments.value, arguments.output, arguments.gradient,
        )
    )  # fmt: skip
    made = [made_like(build, index, tensor) for index, tensor in enumerate((query, key, value))]
    added = _added(build, arguments.added, query.shape[2])
    places = [placed(tensor) for tensor in (query, key, value, output, gradient, *made)]
    kernel = kernels.attention_backward(places, _how(arguments, query, added))
    logarithm = build.values.plain(arguments.logarithm)
    reads = [query, key, value, output, logarithm, gradient, *([added.tensor] if added else [])]
    build.steps.kernel(kernel, reads, made)
    for index, tensor in enumerate(made):
        build.values.define(index, tensor)


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
