"""Attention over a cache by generated kernels, or with NumPy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from golow.levels.direct.implementation import Implementation, Question
from golow.levels.direct.onednn.bindings.library import Descriptor
from golow.levels.direct.onednn.build.builder import Builder
from golow.levels.direct.onednn.build.heads import attended, heads, placed
from golow.levels.direct.onednn.kernels import cached_attention as kernels
from golow.levels.direct.onednn.kernels import flash_attention
from golow.levels.direct.onednn.kernels.flash_attention import WIDEST, Scores
from golow.levels.direct.onednn.steps.array_steps import of_arrays
from golow.levels.direct.onednn.steps.built_plan import Tensor
from golow.lower.operators.cached_attention import CachedAttention

FEWEST_ROWS = 8  # from which on columns of rows fill vectors of the other kernel


def cached_attention(build: Builder, arguments: CachedAttention) -> None:
    """Only the rows of the caches that exist are read."""
    if not build.generates:
        _with_arrays(build, arguments)
        return
    query, key, value = (heads(build, a) for a in (arguments.query, arguments.key, arguments.value))
    output = attended(build, query, value.shape[3])
    reads = [query, key, value, build.values.plain(arguments.position)]
    places = [placed(tensor) for tensor in (query, key, value, output)]
    scale, own = _scale(arguments, query.shape[3]), math.prod(reads[3].shape) > 1
    if query.shape[2] >= FEWEST_ROWS and not arguments.window:
        scores = Scores(None, causal=True, scale=scale)
        kernel = flash_attention.attention(places, scores, False, cached=True, own_positions=own)
        build.steps.kernel(kernel, reads, [output])
    else:
        kernel = kernels.few_rows(places, scale, arguments.window, own)
        if kernels.splits_of(places[1]) == 1:
            build.steps.kernel(kernel, reads, [output])
        else:
            shape = kernels.parts_shape(places[0], places[1], value.shape[3])
            found = build.memory.scratch(Descriptor.plain(shape))
            build.steps.kernel(kernel, reads, [found])
            _join(build, found, query, key, output)
    build.values.define(0, output)


def _join(build: Builder, found: Tensor, query: Tensor, key: Tensor, output: Tensor) -> None:
    kernel = kernels.joined(placed(query), placed(key), placed(output))
    build.steps.kernel(kernel, [found], [output])


def _with_arrays(build: Builder, arguments: CachedAttention) -> None:
    scale, window = (
        _scale(arguments, build.current.value(arguments.query).shape[3]),
        arguments.window,
    )

    def run(query: Any, key: Any, value: Any, position: Any, output: Any) -> None:
        rows, longest = query.shape[2], key.shape[2]
        before = position.reshape(-1, 1).clip(0, longest - rows)
        keys = int(before.max()) + rows
        sharing = query.shape[1] // key.shape[1]
        key, value = (np.repeat(item[:, :, :keys], sharing, axis=1) for item in (key, value))
        scores = ((query * np.float32(scale)) @ key.swapaxes(-1, -2)).astype(np.float64)
        apart = (before + np.arange(rows))[:, None, :, None] - np.arange(keys)
        scores = np.where((apart >= 0) & (apart < (window or longest)), scores, -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        output[...] = (weights / weights.sum(-1, keepdims=True)).astype(np.float32) @ value

    given = (arguments.query, arguments.key, arguments.value, arguments.position)
    of_arrays(build, run, *given)


def _scale(arguments: CachedAttention, width: int) -> float:
    return 1 / math.sqrt(width) if arguments.scale is None else arguments.scale


def _refuse(arguments: CachedAttention, question: Question) -> str:
    key, value = (question.value(item).shape for item in (arguments.key, arguments.value))
    wide = max(key[3], value[3])
    return f"golow.cached_attention of heads of {wide} numbers" if wide > WIDEST else ""


IMPLEMENTATIONS = (Implementation(CachedAttention, cached_attention, _refuse),)
