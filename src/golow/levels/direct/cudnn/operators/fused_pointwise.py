"""Several functions of elements as one generated kernel."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from golow.levels.direct.cudnn.build.kernel_indices import Indices, divided, indices_for
from golow.levels.direct.cudnn.build.kernel_indices import whole as whole_indices
from golow.levels.direct.cudnn.build.layout_propagation import copied_in_order, seen_first
from golow.levels.direct.cudnn.operators.pointwise import FLOATING, stored_in
from golow.levels.direct.cudnn.operators.quantize import rounded
from golow.levels.direct.cudnn.problems.layouts import Layout, dense, fills_memory
from golow.levels.direct.cudnn.shared_kernels.fused_pointwise import (
    Statement,
    Written,
    fused,
    input_name,
)
from golow.levels.direct.cudnn.steps.built_plan import Tensor, aligned
from golow.levels.direct.cudnn.steps.split_axis_views import Folded, folded
from golow.levels.direct.cudnn.steps.strided_copies import repeated
from golow.levels.direct.formulas.expressions import Name, expression
from golow.levels.direct.implementation import Implementation
from golow.levels.direct.kernel_views import View
from golow.lower.fuse.softmax_prologue import only_products_read
from golow.lower.ir.graph import Node, Ref
from golow.lower.ir.operator import Operator, record_of
from golow.lower.operators import fused as group
from golow.lower.operators.activation import ActivateBackward
from golow.lower.operators.batch_norm import BatchNormInference
from golow.lower.operators.binary import Binary
from golow.lower.operators.fused import Fused
from golow.lower.operators.pointwise import Pointwise
from golow.lower.operators.quantize import Quantize

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.build.builder import Builder


VECTOR = Layout("float32")


def build_fused(build: Builder, arguments: Fused) -> None:
    """Add one kernel. It reads views as they are, and writes in the layout of what it reads."""
    parts = list(arguments.parts)
    shape, vectors = build.current.output().shape, _of_channels(parts)
    wide = [item for name, item in _named(arguments.inputs) if name not in vectors]
    indices = indices_for(build, wide, shape)
    *_, values = inputs_of(build, arguments.inputs, parts, shape, indices)
    statements = [statement(index, part, values) for index, part in enumerate(parts)]
    whole = [item for item in arguments.inputs if item.name not in indices.views]
    layout = _layout(build, whole, shape)
    results: list[Tensor] = []
    for index, name in enumerate(arguments.yields):
        made = layout._replace(dtype=_result_type(build, name, values[name].stored))
        there = build.concatenations.place(name, shape, dense(made, shape))
        there = there or _in_reading_order(build, name, made)
        divides = there and divided(shape, {**indices.views, name: there})
        if there is not None and divides is not None:
            indices = divides
            results.append(there.tensor)
        else:
            taken = _in_place(build, whole, made, results)
            results.append(taken or build.values.result(index, made))
    seen, views, _ = inputs_of(build, arguments.inputs, parts, shape, indices)
    pairs = list(zip(arguments.yields, results, strict=True))
    written = [_written(name, result, values[name].text, indices) for name, result in pairs]
    keeps = _keeps(build, arguments, parts, results)
    kernel = fused(statements, views, written, indices.sizes, keeps)
    places = [aligned(result)[0] for result in results]
    build.steps.kernel(kernel, seen, places, names=tuple(_names(arguments, parts)))
    for index, (name, result) in enumerate(pairs):
        if name in indices.views:
            build.values.fold(indices.views[name], index)
        else:
            build.values.define(index, result)


def _in_reading_order(build: Builder, name: str, made: Layout) -> Folded | None:
    """Memory for a result in the order in which a layer or a norm reads its rows; None if that is
    the order in which it is stored anyway."""
    shape = build.current.output().shape
    chain = copied_in_order(build.current, name, dense(made, shape))
    if chain is None or 0 in shape:
        return None
    rows = Layout(made.dtype)
    if seen_first(Tensor(0, shape, rows), chain) is None:
        return None
    return seen_first(build.memory.new(name, shape, rows), chain)


def _written(name: str, result: Tensor, text: str, indices: Indices) -> Written:
    """Where the kernel stores a value; text: its name there."""
    if name in indices.views:
        strides = indices.strides_of(name)
    else:
        strides = indices.strides(result.layout.strides(result.shape))
    return Written(text, View(result.dtype, strides, aligned(result)[1]))


def _result_type(build: Builder, name: str, stored: str) -> str:
    """Type of a result: in inference that of products where only products read it. Values computed
    only at loading are not rounded: in half precision a mask could overflow, and what reads it has
    it in the group in float32."""
    if stored not in FLOATING:
        return stored
    if build.loading.once:
        return "float32"
    rounded = not build.current.trains and only_products_read(build.current.links, name)
    return build.types.computed if rounded else stored


def inputs_of(
    build: Builder,
    inputs: Sequence[Ref],
    parts: Sequence[Node],
    shape: tuple[int, ...],
    indices: Indices | None = None,
) -> tuple[list[Tensor], list[View], dict[str, Name]]:
    """Inputs that a kernel reads at the indices of this shape, as it is stored: the tensors, how
    they are seen, and their names in the program."""
    vectors, indices = _of_channels(parts), indices or whole_indices(shape)
    seen: list[Tensor] = []
    views: list[View] = []
    values: dict[str, Name] = {}
    for name, reference in _named(inputs):
        if reference.name in indices.views:
            tensor = indices.views[reference.name].tensor
            strides = indices.strides_of(reference.name)
        elif name in vectors:
            tensor = build.values.wanted(reference, VECTOR)
            strides = repeated(tensor, shape[:2]).strides
            strides = indices.strides((*strides, *[0] * (len(shape) - len(strides))))
        else:
            tensor = _as_it_lies(build, reference)
            strides = indices.strides(repeated(tensor, shape).strides)
        base, start = aligned(tensor)
        views.append(View(tensor.dtype, strides, start))
        dtype = build.current.value(reference).dtype
        values[name] = Name(input_name(len(seen)), dtype, tensor.dtype)
        seen.append(base)
    return seen, views, values


def _named(inputs: Sequence[Ref]) -> Iterator[tuple[str, Ref]]:
    """Inputs of a kernel, with their names in the program."""
    for index, reference in enumerate(inputs):
        yield group.input_name(index), reference


def _as_it_lies(build: Builder, reference: Ref) -> Tensor:
    """The operand; what is the same in every iteration in its own order, which costs nothing."""
    tensor = build.values.view(reference)
    turned = tensor.layout.order == "strided" and fills_memory(tensor.layout, tensor.shape)
    ordered = turned and build.current.is_constant(reference)
    return build.values.tensor(reference) if ordered else tensor


def _names(arguments: Fused, parts: Sequence[Node]) -> Iterator[tuple[str, str]]:
    """Names of the kernel's inputs, functions and results in the graph."""
    yield from names_of(arguments.inputs, parts)
    for index, name in enumerate(arguments.yields):
        yield f"y{index}", name


def names_of(inputs: Sequence[Ref], parts: Sequence[Node]) -> Iterator[tuple[str, str]]:
    """Names of a kernel's inputs and functions in the graph."""
    for index, reference in enumerate(inputs):
        yield input_name(index), reference.name
    for index, part in enumerate(parts):
        output = part.outputs[0]
        yield f"t{index}", f"{'_' if output is None else output.name} = {part.op}"


def _of_channels(parts: Sequence[Node]) -> set[str]:
    """The inputs that have one value for each channel, the second axis."""
    norms = [BatchNormInference.of(part) for part in parts]
    found = [
        reference
        for norm in norms
        if norm is not None
        for reference in (norm.mean, norm.variance, norm.scale, norm.shift)
    ]
    return {reference.name for reference in found if reference is not None}


def _layout(build: Builder, inputs: Sequence[Ref], shape: tuple[int, ...]) -> Layout:
    """The layout of most inputs of the results' shape, so that they are read side by side."""

    def order(layout: Layout) -> Layout:
        return layout if fills_memory(layout, shape) else dense(layout, shape)

    made = [build.values.view(reference) for reference in inputs]
    wide = [order(t.layout) for t in made if t.shape == shape and t.dtype in FLOATING]
    wide = wide or [order(t.layout) for t in made if t.shape == shape]
    orders = [layout._replace(dtype="", channels=0) for layout in wide]
    if not orders:
        return Layout("")
    most = max(orders, key=orders.count)
    return most._replace(channels=shape[1] if most.order == "channels_last" else 0)


def _in_place(
    build: Builder, inputs: Sequence[Ref], layout: Layout, taken: Sequence[Tensor]
) -> Tensor | None:
    """The memory of an input that nothing reads afterwards, if it is seen as the result is."""
    for reference in inputs:
        tensor = build.values.view(reference)
        alike = tensor.shape == build.current.output().shape and tensor.layout == layout
        alike = alike and fills_memory(tensor.layout, tensor.shape) and tensor.offset == 0
        used = any(tensor.buffer == other.buffer for other in taken)
        ends = build.values.dies(reference) and build.current.reads_once(reference)
        if alike and not used and ends:
            return tensor
    return None


def _keeps(
    build: Builder, arguments: Fused, parts: Sequence[Node], results: Sequence[Tensor]
) -> int | None:
    """The input that leaves the result as it is where it is true: the condition under which an
    operand stays in its own memory."""
    function = Pointwise.of(parts[0]) if len(parts) == 1 else None
    if function is None or function.function != "choose":
        return None
    names = [group.input_name(index) for index in range(len(arguments.inputs))]
    condition, kept = (
        names.index(item.name) if isinstance(item, Ref) else None for item in function.operands[:2]
    )
    stays = kept is not None and build.values.folded(arguments.inputs[kept]) == folded(results[0])
    return condition if stays else None


# ---------------------------------------------------------------- expressions


def statement(index: int, part: Node, values: dict[str, Name]) -> Statement:
    """One function as C; also names its value."""
    operator, output = record_of(part), part.outputs[0]
    if operator is None or output is None:
        raise ValueError(f"{part.op} is not an elementwise function")
    if isinstance(operator, Quantize):
        product = f"{values[operator.x.name].text} * {values[operator.scale.name].text}"
        text = rounded(product, operator.dtype)
    else:
        text = expression(operator, values)
    stored = _stored(operator, part, values)
    made = Name(f"t{index}", output.dtype, stored)
    values[output.name] = made
    return Statement(made.text, output.dtype, text)


def _stored(operator: Operator, part: Node, values: Mapping[str, Name]) -> str:
    """The type in which a separate step would store the value."""
    dtype = part.outputs[0].dtype if part.outputs[0] is not None else ""
    if isinstance(operator, Pointwise):
        references = [item for item in operator.operands if isinstance(item, Ref)]
        return stored_in(operator, dtype, [values[item.name].stored for item in references])
    if isinstance(operator, Quantize):
        return operator.dtype
    main = {Binary: "a", ActivateBackward: "value"}.get(type(operator), "x")
    return values[getattr(operator, main).name].stored


IMPLEMENTATIONS = (Implementation(Fused, build_fused),)
