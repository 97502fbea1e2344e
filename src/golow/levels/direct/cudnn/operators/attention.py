"""Attention and its gradients by flash attention, on views of any strides."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from msgspec.structs import replace

from golow.levels.direct.cudnn.operators.dropout import probability_of
from golow.levels.direct.cudnn.problems.layouts import Layout, layout_of
from golow.levels.direct.cudnn.problems.products import AttentionProblem, Placed
from golow.levels.direct.cudnn.steps.built_plan import Tensor, is_aligned
from golow.levels.direct.implementation import Implementation
from golow.lower.ir.graph import Ref
from golow.lower.operators.attention import Attention, AttentionBackward

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.build.builder import Builder
    from golow.levels.direct.cudnn.engines.engines import Engine

ALIGNED = 8  # elements: a row of a head begins at a multiple of 16 bytes


def attention(build: Builder, arguments: Attention) -> None:
    """The result is stored as [B, L, H, D] or [L, B, H, D], in the order in which the next layer
    joins the heads, with its rows in the order of the query's."""
    query, key, value = (
        _heads(build, a) for a in (arguments.query, arguments.key, arguments.value)
    )
    output = _joined(build, 0, query, value.shape[3])
    written, keeps = [output], build.current.is_read(1)
    if keeps:
        written.append(build.values.result(1, Layout("float32")))
    problem = AttentionProblem(
        query=_placed(query),
        key=_placed(key),
        value=_placed(value),
        output=_placed(output),
        dtype=build.types.computed,
        causal=arguments.causal,
        scale=_scale(arguments, query),
        keeps=keeps,
        kept=arguments.kept is not None,
    )
    if arguments.exact and arguments.added is not None:
        engine, added = _exact_engine(build, arguments.added, problem)
    else:
        engine, added = _engine(build, arguments.added, problem)
    dropped = _dropped(build, arguments.kept)
    build.steps.engine(engine, [query, key, value, *added, *dropped], written)
    for index, tensor in enumerate(written):
        build.values.define(index, tensor)


def attention_backward(build: Builder, arguments: AttentionBackward) -> None:
    """All three gradients at once, each with its rows in the order of what it is the gradient of.
    They are written where they will be joined, as those of three slices of one layer's result."""
    query, key, value = (
        _heads(build, a) for a in (arguments.query, arguments.key, arguments.value)
    )
    output, gradient = _heads(build, arguments.output), _heads(build, arguments.gradient)
    logarithm = build.values.rows(arguments.logarithm)
    made = [_joined(build, i, t, t.shape[3]) for i, t in enumerate((query, key, value))]
    problem = AttentionProblem(
        query=_placed(query),
        key=_placed(key),
        value=_placed(value),
        output=_placed(output),
        dtype=build.types.computed,
        causal=arguments.causal,
        scale=_scale(arguments, query),
        kept=arguments.kept is not None,
        gradient=_placed(gradient),
        of_query=_placed(made[0]),
        of_key=_placed(made[1]),
        of_value=_placed(made[2]),
    )
    engine, added = _engine(build, arguments.added, problem)
    read = [query, key, value, *added, *_dropped(build, arguments.kept)]
    build.steps.engine(engine, [*read, output, gradient, logarithm], made)
    for index, tensor in enumerate(made):
        build.values.define(index, tensor)


def _dropped(build: Builder, kept: Ref | None) -> list[Tensor]:
    """Which weights dropout keeps, and the probability currently in use."""
    if kept is None:
        return []
    return [build.values.rows(kept), probability_of(build, kept)]


def _engine(
    build: Builder, reference: Ref | None, of: AttentionProblem
) -> tuple[Engine, list[Tensor]]:
    """The engine, and what it adds to the scores, if anything is added: one row where all rows are
    the same, unless only all of them have an engine."""
    if reference is None:
        return build.engine_for(of), []
    if build.current.value(reference).dtype == "bool":
        return _exact_engine(build, reference, of)
    rows = _in_rows(build.types.computed, build.current.value(reference).shape)
    added = build.values.wanted(reference, rows)
    engine = build.engines.choose(replace(of, added=_placed(added)))
    if engine is None:
        added = _every_row(build, added, of.query.shape[2])
        engine = build.engine_for(replace(of, added=_placed(added)))
    return engine, [added]


def _exact_engine(
    build: Builder, reference: Ref, of: AttentionProblem
) -> tuple[Engine, list[Tensor]]:
    """The engine that adds without rounding, or hides by truth values, and its operand."""
    added = _as_it_lies(build, reference)
    return build.engine_for(replace(of, added=_placed(added), added_dtype=added.dtype)), [added]


def _as_it_lies(build: Builder, reference: Ref) -> Tensor:
    """View of a term that is added without being rounded, if its last axis is contiguous."""
    tensor = build.values.view(reference)
    known = tensor.dtype in ("float32", "bool", build.types.computed)
    if known and is_aligned(tensor) and tensor.layout.strides(tensor.shape)[-1] == 1:
        return tensor
    return build.values.wanted(reference, Layout(tensor.dtype if known else "float32"))


def _every_row(build: Builder, added: Tensor, rows: int) -> Tensor:
    """A copy of [B, H, 1, S] for every row; the tensor itself if it has them."""
    images, heads, own, keys = added.shape
    if own == rows:
        return added
    shape = (images, heads, rows, keys)
    every = build.memory.new(f"{build.current.name}.added", shape, _in_rows(added.dtype, shape))
    image, head, _, key = added.layout.strides(added.shape)
    seen = layout_of(added.dtype, shape, (image, head, 0, key))
    build.values.copy(added._replace(shape=shape, layout=seen), every)
    return every


def _in_rows(dtype: str, shape: tuple[int, ...]) -> Layout:
    """With the last axis side by side, and every row of it at a multiple of 16 bytes."""
    _, heads, rows, keys = shape
    pitch = -(-keys // ALIGNED) * ALIGNED
    return layout_of(dtype, shape, (heads * rows * pitch, rows * pitch, pitch, 1))


def _scale(arguments: Attention | AttentionBackward, query: Tensor) -> float:
    return 1 / math.sqrt(query.shape[-1]) if arguments.scale is None else arguments.scale


def _heads(build: Builder, reference: Ref) -> Tensor:
    """The value as it is stored, if a head's rows are contiguous and aligned, else a copy."""
    tensor, dtype = build.values.view(reference), build.types.computed
    if tensor.dtype == dtype and _has_rows(tensor):
        return tensor
    return build.values.wanted(reference, Layout(dtype))


def _has_rows(tensor: Tensor) -> bool:
    """True if a head's rows are contiguous and aligned."""
    *outer, last = tensor.layout.strides(tensor.shape)
    steps = [step for size, step in zip(tensor.shape, outer, strict=False) if size > 1]
    fits = last == 1 and all(step and step % ALIGNED == 0 for step in steps)
    return fits and tensor.offset % (2 * ALIGNED) == 0


def _joined(build: Builder, index: int, like: Tensor, width: int) -> Tensor:
    """Memory for a result [B, H, L, width] in which each row's heads are adjacent, and rows in
    the order of another tensor's: of one image together, or of one position."""
    images, heads, length, _ = shape = (*like.shape[:3], width)
    steps = like.layout.strides(like.shape)
    apart = images > 1 and length > 1 and steps[0] < steps[2]
    row, image = (images, 1) if apart else (1, length)
    strides = (image * heads * width, width, row * heads * width, 1)
    layout = layout_of(build.types.computed, shape, strides)
    if build.current.is_read(index):
        tensor = build.concatenations.tensor(build.current.output(index).name, shape, layout)
        if tensor is not None and _has_rows(tensor):
            return tensor
    return build.memory.new(f"{build.current.name}.{index}", shape, layout)


def _placed(tensor: Tensor) -> Placed:
    return Placed(tuple(tensor.shape), tuple(tensor.layout.strides(tensor.shape)))


IMPLEMENTATIONS = (
    Implementation(Attention, attention),
    Implementation(AttentionBackward, attention_backward),
)
