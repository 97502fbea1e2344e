"""Several functions of elements as one generated kernel."""

from __future__ import annotations

import math
from collections.abc import Sequence

from golow.levels.direct.formulas.expressions import Name, expression
from golow.levels.direct.implementation import Implementation
from golow.levels.direct.onednn.bindings.library import Descriptor
from golow.levels.direct.onednn.build.builder import Builder
from golow.levels.direct.onednn.kernels.elements import Statement, Written, elements, input_name
from golow.levels.direct.onednn.steps.built_plan import Tensor
from golow.levels.direct.onednn.steps.strided_views import dense, fits, follows, seen
from golow.lower.ir.graph import Node, Ref
from golow.lower.ir.operator import record_of
from golow.lower.operators import fused as group
from golow.lower.operators.batch_norm import BatchNormInference
from golow.lower.operators.fused import Fused


def build_fused(build: Builder, arguments: Fused) -> None:
    """Add one kernel. It reads strided tensors as they are, and writes in the layout of most."""
    parts = list(arguments.parts)
    layout = _layout(build, arguments.inputs, build.current.output().shape)
    vectors = _of_channels(parts)
    tensors = [
        _given(build, reference, layout, group.input_name(index) in vectors)
        for index, reference in enumerate(arguments.inputs)
    ]
    values = {
        group.input_name(index): Name(input_name(index), tensor.dtype, tensor.dtype)
        for index, tensor in enumerate(tensors)
    }
    statements = [_statement(index, part, values) for index, part in enumerate(parts)]
    results: list[Tensor] = []
    for index, name in enumerate(arguments.yields):
        made = _in_place(build, arguments, tensors, values[name].dtype, layout, results)
        results.append(made or _new(build, index, values[name].dtype, layout))
    written = [
        Written(values[name].text, seen(result, layout).view)
        for name, result in zip(arguments.yields, results, strict=True)
    ]
    views = [seen(tensor, layout) for tensor in tensors]
    sizes = seen(results[0], layout).sizes
    if math.prod(sizes):
        kernel = elements(statements, [item.view for item in views], written, sizes)
        build.steps.kernel(kernel, tensors, results)
    for index, result in enumerate(results):
        build.values.define(index, result)


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


def _layout(build: Builder, inputs: Sequence[Ref], shape: tuple[int, ...]) -> Descriptor:
    """The layout of most inputs of the results' shape, without gaps; row-major without any."""
    made = [build.views.as_it_lies(reference) for reference in inputs]
    wide = [t.descriptor for t in made if t.shape == shape and t.descriptor is not None]
    usable = [item for item in wide if item.shape == shape and fits(item)]
    filled = [item if item.blocks else dense(shape, item.strides) for item in usable]
    if not filled:
        return Descriptor.plain(shape)
    names = [str(item) for item in filled]
    return filled[names.index(max(names, key=names.count))]


def _given(build: Builder, reference: Ref, layout: Descriptor, by_channel: bool) -> Tensor:
    tensor = build.views.as_it_lies(reference)
    if not follows(tensor, layout) or by_channel:
        tensor = build.values.plain(reference)
    if not by_channel:
        return tensor
    wide = (*tensor.shape, *[1] * (len(layout.shape) - 2))
    return tensor._replace(shape=wide, descriptor=Descriptor.plain(wide))


def _new(build: Builder, index: int, dtype: str, layout: Descriptor) -> Tensor:
    """Memory for a result; non-float tensors are row-major."""
    name, shape = build.current.output_name(index), build.current.output().shape
    return build.memory.new(name, shape, layout if dtype == "float32" else None, dtype)


def _in_place(
    build: Builder,
    arguments: Fused,
    tensors: Sequence[Tensor],
    dtype: str,
    layout: Descriptor,
    taken: Sequence[Tensor],
) -> Tensor | None:
    """The memory of an input that nothing reads afterwards, if it is seen as the result is, and no
    other input is a view of it."""
    shape = build.current.output().shape
    buffers = [tensor.buffer for tensor in (*tensors, *taken)]
    for reference, tensor in zip(arguments.inputs, tensors, strict=True):
        alike = tensor.dtype == dtype == "float32" and tensor.shape == shape
        if not alike or buffers.count(tensor.buffer) > 1 or tensor.layout != layout:
            continue
        if build.values.tensor(reference).buffer == tensor.buffer and build.values.dies(reference):
            return tensor
    return None


def _statement(index: int, part: Node, values: dict[str, Name]) -> Statement:
    """One function as C; also names its value."""
    operator, output = record_of(part), part.outputs[0]
    if operator is None or output is None:
        raise ValueError(f"{part.op} is not an elementwise function")
    text = expression(operator, values)
    values[output.name] = Name(f"t{index}", output.dtype, output.dtype)
    return Statement(f"t{index}", output.dtype, text)


IMPLEMENTATIONS = (Implementation(Fused, build_fused),)
