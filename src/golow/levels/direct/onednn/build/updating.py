"""Parts that the optimizers' steps share: parameters and what is kept of them as rows of numbers,
in the parameters' own memory and layout.

A generated kernel does a step in one pass; without a compiler, oneDNN's primitives do it in
several. Its arithmetic is fast on rows and a thousand times slower on blocked weights. A row
includes the layout's padding, which is zero and stays zero in every step here.
"""

from __future__ import annotations

from golow.levels.direct.onednn.bindings.constants import (
    BINARY_MUL,
    DST,
    ELTWISE,
    FORWARD_INFERENCE,
    MULTIPLE_SRC,
    POST_OP_STRIDE,
    SRC,
    SRC_1,
)
from golow.levels.direct.onednn.bindings.library import Descriptor, array, number, numbers
from golow.levels.direct.onednn.bindings.primitive import PostOp, Primitive
from golow.levels.direct.onednn.build.builder import Builder
from golow.levels.direct.onednn.kernels import flagged_rows, updates
from golow.levels.direct.onednn.steps.built_plan import Tensor
from golow.lower.ir.graph import Ref
from golow.lower.plan.memory_traffic import SCRATCH


def in_one_pass(build: Builder, settings: updates.Update) -> None:
    """The current node's values, all of the parameter's layout."""
    layout = build.values.tensor(settings.parameter).layout
    step = updates.step(settings)
    rows = [flat(build.values.wanted(getattr(settings, name), layout)) for name in step.rows]
    numbers = [build.values.plain(getattr(settings, name)) for name in step.numbers]
    shape = build.current.value(settings.parameter).shape
    results = [
        build.outputs.state_for(index)
        or build.memory.new(build.current.output_name(index), shape, layout)
        for index in range(len(step.writes))
    ]
    flags, reads = rows[0].flags, [*rows, *numbers]  # the gradient is the first row
    if flags is None:
        kernel = updates.update(step, rows[0].shape[0])
    else:
        [count] = flags.shape
        in_place = {it.buffer for it in results} <= {it.buffer for it in rows}
        kernel = flagged_rows.update(step, count, rows[0].shape[0] // count, in_place)
        reads.append(flags)
    build.steps.kernel(kernel, reads, [flat(result) for result in results])
    for index, result in enumerate(results):
        build.values.define(index, result)


def flat(tensor: Tensor) -> Tensor:
    """View the tensor as one row of numbers, including padding."""
    count = tensor.layout.bytes // 4
    return tensor._replace(shape=(count,), descriptor=Descriptor.plain((count,)))


def updated(build: Builder, index: int, old: Tensor) -> Tensor:
    """The memory for the current node's value of that index, which holds the old content: its own,
    or that of a copy if the old content is still read."""
    return build.outputs.state_for(index) or build.values.reordered(old, old.layout)


def slope(build: Builder, gradient: Ref, like: Tensor, clip: Ref | None, decay: float) -> Tensor:
    """The gradient as a row in the parameter's layout, clipped, plus ``decay`` times the parameter;
    ``like`` is the parameter."""
    found = flat(build.values.wanted(gradient, like.layout))
    if clip is not None:
        found = multiplied(build, found, build.values.plain(clip), "clip")
    return found if not decay else weighted_sum(build, [(found, 1.0), (flat(like), decay)])


def weighted_sum(
    build: Builder,
    terms: list[tuple[Tensor, float]],
    into: Tensor | None = None,
    operation: str = "weighted_sum",
) -> Tensor:
    """The sum of rows, each times its factor; ``into`` may be the first of them."""
    tensors = [tensor for tensor, _ in terms]
    layouts = [tensor.layout for tensor in tensors]
    factors = numbers([factor for _, factor in terms])
    primitive = Primitive(build.engine, "sum", layouts[0], len(terms), factors, array(layouts))
    result = into or like(build, tensors[0])
    reads = {MULTIPLE_SRC + index: tensor for index, tensor in enumerate(tensors)}
    build.steps.call(primitive, reads, {DST: result}, operation)
    return result


def multiplied(build: Builder, row: Tensor, by: Tensor, operation: str) -> Tensor:
    """A row times a single number, or another row."""
    result = like(build, row)
    combine(build, BINARY_MUL, row, by, result, operation)
    return result


def combine(
    build: Builder,
    algorithm: int,
    one: Tensor,
    other: Tensor,
    into: Tensor,
    operation: str,
    *post_ops: PostOp,
    factor: Tensor | None = None,
) -> None:
    """Add a step: one op other, then ``factor`` (a single number) as a first post-operation and the
    other post-operations, into a row."""
    scaled = [PostOp("mul", descriptor=factor.layout)] if factor is not None else []
    primitive = Primitive(
        build.engine, "binary", algorithm, one.layout, other.layout, into.layout,
        post_ops=[*scaled, *post_ops],
    )  # fmt: skip
    reads = {SRC: one, SRC_1: other} | _first_post_op(factor)
    build.steps.call(primitive, reads, {DST: into}, operation)


def root(build: Builder, squares: Tensor, epsilon: float, factor: Tensor | None = None) -> Tensor:
    """sqrt(squares) times ``factor`` (a single number), plus epsilon."""
    result = like(build, squares)
    scaled = [PostOp("mul", descriptor=factor.layout)] if factor is not None else []
    primitive = Primitive(
        build.engine, "eltwise_forward", FORWARD_INFERENCE, ELTWISE["sqrt"], squares.layout,
        squares.layout, number(0.0), number(0.0),
        post_ops=[*scaled, PostOp("linear", 1.0, epsilon)],
    )  # fmt: skip
    build.steps.call(primitive, {SRC: squares} | _first_post_op(factor), {DST: result}, "root")
    return result


def new_squares(build: Builder, index: int, old: Tensor, gradient: Tensor, share: float) -> Tensor:
    """square <- share square + (1 - share) gradient^2: the current node's value of that index."""
    result = updated(build, index, old)
    combine(
        build, BINARY_MUL, gradient, gradient, flat(result), "new_square",
        PostOp("linear", 1.0 - share), PostOp("sum", share),
    )  # fmt: skip
    build.values.define(index, result)
    return flat(result)


def move(build: Builder, index: int, parameter: Tensor, change: Tensor, rate: Tensor) -> None:
    """parameter <- parameter - rate change: the current node's value of that index. The learning
    rate is stored with its sign reversed, so that this is one primitive."""
    result = updated(build, index, parameter)
    combine(build, BINARY_MUL, change, rate, flat(result), "new_parameter", PostOp("sum", 1.0))
    build.values.define(index, result)


def like(build: Builder, row: Tensor) -> Tensor:
    """Memory for a row of the same length."""
    return build.memory.new(f"{build.current.name}{SCRATCH}", row.shape, row.layout)


def _first_post_op(factor: Tensor | None) -> dict[int, Tensor]:
    return {} if factor is None else {POST_OP_STRIDE | SRC_1: factor}
