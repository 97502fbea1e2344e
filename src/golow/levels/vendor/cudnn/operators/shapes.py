"""Views, copies of parts, sums over axes, constants and dropout."""

from __future__ import annotations

import math

from golow.levels.vendor.cudnn.builder import Builder, Operator
from golow.levels.vendor.cudnn.kernels import ITEM_BYTES
from golow.levels.vendor.cudnn.kernels.dropout import dropout as dropout_kernel
from golow.levels.vendor.cudnn.kernels.pointwise import Operand, number, pointwise
from golow.levels.vendor.cudnn.kernels.reduction import reduction
from golow.levels.vendor.cudnn.kernels.strided import strided_copy
from golow.levels.vendor.cudnn.layouts import Layout, Order
from golow.levels.vendor.cudnn.steps import Tensor
from golow.lower.graph import Node, Ref
from golow.lower.rewriting import given

FILLED = {"ones": 1.0, "zeros": 0.0}


def reshape(build: Builder, node: Node) -> None:
    """The same elements under another shape, in PyTorch's order."""
    tensor, shape = build.rows(node.arguments[0]), build.output().shape
    build.define(0, tensor._replace(shape=shape, layout=Layout(tensor.dtype)))


def transpose(build: Builder, node: Node) -> None:
    """A matrix read the other way, which moves nothing; a copy for other axes."""
    tensor = build.tensor(node.arguments[0])
    axes = list(range(len(tensor.shape)))
    if node.op == "aten.permute.default":
        order = [int(a) % len(axes) for a in node.arguments[1]]  # type: ignore[union-attr, arg-type]
    else:
        one, other = node.arguments[1:3] if len(node.arguments) == 3 else (0, 1)
        order = axes
        first, second = int(one) % len(axes), int(other) % len(axes)  # type: ignore[arg-type]
        order[first], order[second] = order[second], order[first]
    if order == [1, 0] and tensor.layout.order in ("rows", "transposed"):
        turned: Order = "transposed" if tensor.layout.order == "rows" else "rows"
        view = tensor._replace(
            shape=build.output().shape, layout=tensor.layout._replace(order=turned)
        )
        build.define(0, view)
        return
    strides = tensor.layout.strides(tensor.shape)
    _gather(build, tensor, [strides[axis] for axis in order])


def _gather(build: Builder, tensor: Tensor, strides: list[int], start: int = 0) -> None:
    """The current node's value as a row-major copy that reads the tensor with these strides."""
    shape, layout = build.output().shape, Layout(tensor.dtype)
    result = build.new(build.output().name, shape, layout)
    target = layout.strides(shape)
    kernel = strided_copy(tensor.dtype, tensor.dtype, shape, strides, target, start)
    build.kernel(kernel, [tensor], [result])
    build.define(0, result)


def concatenate(build: Builder, node: Node) -> None:
    """Tensors one after another along an axis, in the order of the first."""
    parts, axis = given(node, "tensors dim", 0)
    assert isinstance(parts, tuple) and isinstance(axis, int)  # noqa: S101
    shape = build.output().shape
    first = build.tensor(parts[0])
    layout = Layout(first.dtype)
    if first.layout.order == "channels_last":
        layout = Layout(first.dtype, "channels_last", shape[1])
    result = build.new(build.output().name, shape, layout)
    target, start = layout.strides(shape), 0
    for part in parts:
        tensor = build.tensor(part)
        source = tensor.layout.strides(tensor.shape)
        build.kernel(
            strided_copy(tensor.dtype, first.dtype, tensor.shape, source, target, 0, start),
            [tensor],
            [result],
        )
        start += tensor.shape[axis % len(shape)] * target[axis % len(shape)]
    build.define(0, result)


def sliced(build: Builder, node: Node) -> None:
    """A copy of a range along an axis."""
    x, axis, start, _, step = given(node, "self dim start end step", 0, None, None, 1)
    tensor = build.tensor(x)
    place = int(axis) % len(tensor.shape)  # type: ignore[arg-type]
    first = range(tensor.shape[place])[slice(start, None)].start  # type: ignore[arg-type]
    strides = list(tensor.layout.strides(tensor.shape))
    offset = first * strides[place]
    strides[place] *= int(step)  # type: ignore[arg-type]
    _gather(build, tensor, strides, offset)


def unshuffled(build: Builder, node: Node) -> None:
    """Blocks of 2x2 pixels as channels; of an input, taken so from the batch."""
    x, factor = node.arguments
    images, depth, height, width = build.output().shape
    if factor != 2:
        raise build.unsupported(f"{node.op} by {factor}")
    if build.is_input(x):
        # A multiple of what tensor cores load at once.
        each = 16 // ITEM_BYTES[build.types.computed]
        result = build.fetched_blocks(x, -(-depth // each) * each)
        build.define(0, result)
        return
    tensor = build.tensor(x)
    n, c, h, w = tensor.layout.strides(tensor.shape)
    layout = Layout(tensor.dtype)
    result = build.new(build.output().name, build.output().shape, layout)
    area = height * width
    for row in (0, 1):
        kernel = strided_copy(
            tensor.dtype,
            tensor.dtype,
            (images, depth // 4, 2, height, width),
            (n, c, w, 2 * h, 2 * w),
            (depth * area, 4 * area, area, width, 1),
            row * h,
            2 * row * area,
        )
        build.kernel(kernel, [tensor], [result])
    build.define(0, result)


def padded(build: Builder, node: Node) -> None:
    """x with a number around it; where the padding is negative x is cut."""
    x, sides, value = given(node, "self pad value", 0)
    assert isinstance(sides, tuple) and isinstance(value, int | float)  # noqa: S101
    tensor, shape = build.tensor(x), build.output().shape
    layout = Layout(tensor.dtype)
    result = build.new(build.output().name, shape, layout)
    fill = pointwise([number(value)], [Operand(tensor.dtype, "scalar")], [tensor.dtype],
                     result.elements)  # fmt: skip
    build.kernel(fill, [tensor], [result])
    before = [0] * len(shape)
    for index, amount in enumerate(sides[::2]):
        before[-1 - index] = int(amount)  # type: ignore[arg-type]
    inner = [max(0, -b) for b in before]
    outer = [max(0, b) for b in before]
    sizes = [
        min(old - i, new - o)
        for old, new, i, o in zip(tensor.shape, shape, inner, outer, strict=True)
    ]
    source, target = tensor.layout.strides(tensor.shape), layout.strides(shape)
    starts = [
        sum(index * stride for index, stride in zip(*pair, strict=True))
        for pair in ((inner, source), (outer, target))
    ]
    if math.prod(sizes):
        kernel = strided_copy(tensor.dtype, tensor.dtype, sizes, source, target, *starts)
        build.kernel(kernel, [tensor], [result])
    build.define(0, result)


def expand(build: Builder, node: Node) -> None:
    """A copy that repeats along axes of one element."""
    tensor, shape = build.tensor(node.arguments[0]), build.output().shape
    strides = [0] * (len(shape) - len(tensor.shape)) + [
        0 if size == 1 else stride
        for size, stride in zip(tensor.shape, tensor.layout.strides(tensor.shape), strict=True)
    ]
    _gather(build, tensor, strides)


def reduce(build: Builder, node: Node) -> None:
    """Sum or mean over neighbouring axes, over all where none is named."""
    x, axes, _ = given(node, "self dim keepdim", (), False)
    shape = build.value(x).shape
    rank = len(shape)
    chosen = axes if isinstance(axes, tuple) else () if axes is None else (axes,)
    over = sorted({int(a) % rank for a in chosen} or set(range(rank)))  # type: ignore[arg-type]
    tensor = build.tensor(x)
    if over != list(range(over[0], over[-1] + 1)):
        if over != [0, 2, 3] or rank != 4:
            raise build.unsupported(f"{node.op} over axes that are not neighbours")
        tensor = build.image(x)
        sizes = (1, math.prod(shape) // shape[1], shape[1])
    elif over == [2, 3] and tensor.layout.order == "channels_last":
        sizes = (shape[0], shape[2] * shape[3], shape[1])
    else:
        tensor = build.rows(x)
        first, last = over[0], over[-1] + 1
        sizes = (math.prod(shape[:first]), math.prod(shape[first:last]), math.prod(shape[last:]))
    factor = 1 / sizes[1] if "mean" in node.op else 1.0
    reduced(build, tensor, sizes, 0, factor)


def reduced(
    build: Builder, tensor: Tensor, sizes: tuple[int, int, int], index: int, factor: float = 1.0
) -> None:
    """The current node's value of that index: sums of the tensor, seen as [outer, reduced, inner],
    over its middle axis. The gradient of a bias is float32 whatever the activations are."""
    value = build.node.outputs[index]
    gradient = value is not None and build.is_gradient(value.name)
    dtype = "float32" if gradient or not build.output(index).shape else tensor.dtype
    result = build.result(index, Layout(dtype))
    found = reduction(tensor.dtype, dtype, *sizes, factor)
    if found.second is None:
        build.kernel(found.first, [tensor], [result])
    else:
        partial = build.scratch(found.partial)
        build.kernel(found.first, [tensor], [partial])
        build.kernel(found.second, [partial], [result])
    build.define(index, result)


def filled(build: Builder, node: Node) -> None:
    """A tensor of one number; the loss's own gradient is the scale of the loss."""
    value, kind = build.output(), node.op.split(".")[1]
    found = FILLED[kind] if kind in FILLED else node.arguments[1]
    if value.dtype != "float32" or not isinstance(found, int | float):
        raise build.unsupported(f"{node.op} of {value}")
    if build.types.scaled and node.phase == "backward" and value.shape == ():
        scale = build.cell("loss_scale")
        build.define(0, scale._replace(shape=(), layout=Layout("float32")))
        return
    scalar = build.number(float(found))
    if math.prod(value.shape) == 1:
        build.define(0, scalar._replace(shape=value.shape))
        return
    result = build.new(value.name, value.shape, Layout(build.types.computed))
    operand = Operand("float32", "scalar")
    build.kernel(pointwise(["a"], [operand], [result.dtype], result.elements), [scalar], [result])
    build.define(0, result)


def dropout(build: Builder, node: Node) -> None:
    """x with elements set to zero at random and the others scaled up, and the mask."""
    x, probability, train = node.arguments
    if train is not True:
        raise build.unsupported("dropout that is switched off")
    source = build.tensor(x)
    control = build.cell(f"dropout {probability}")
    mask = build.new(f"{node.name}.mask", source.shape, source.layout._replace(dtype="bool"))
    result = build.new(build.output().name, source.shape, source.layout)
    kernel = dropout_kernel(source.dtype, source.elements, build.position)
    build.kernel(kernel, [source, control], [result, mask])
    build.define(0, result)
    build.define(1, mask)
    if node.outputs[1] is not None:
        build.saved[node.outputs[1].name] = control


def dropout_backward(build: Builder, node: Node) -> None:
    """The gradient where the mask let the value through, scaled as the value was."""
    gradient, mask, _ = node.arguments
    assert isinstance(mask, Ref)  # noqa: S101
    kept = build.tensor(mask)
    outer = build.wanted(gradient, kept.layout._replace(dtype=build.types.computed))
    result = build.new(build.output().name, outer.shape, outer.layout)
    # The probability in force, which is zero while the levels are compared.
    control = build.saved[mask.name]
    probability = control._replace(shape=(), layout=Layout("float32"), offset=8)
    operands = [Operand(outer.dtype), Operand("bool"), Operand("float32", "scalar")]
    kernel = pointwise(["c < 1.0f ? a * b / (1.0f - c) : 0.0f"], operands, [result.dtype],
                       result.elements)  # fmt: skip
    build.kernel(kernel, [outer, kept, probability], [result])
    build.define(0, result)


OPERATORS: dict[str, Operator] = {
    **{
        f"aten.{name}": reshape
        for name in "view.default reshape.default flatten.using_ints squeeze.dim "
        "unsqueeze.default _unsafe_view.default".split()
    },
    "aten.t.default": transpose,
    "aten.transpose.int": transpose,
    "aten.permute.default": transpose,
    "aten.cat.default": concatenate,
    "aten.sum.dim_IntList": reduce,
    "aten.sum.default": reduce,
    "aten.mean.dim": reduce,
    "aten.slice.Tensor": sliced,
    "aten.pixel_unshuffle.default": unshuffled,
    "aten.constant_pad_nd.default": padded,
    "aten.expand.default": expand,
    "aten.ones.default": filled,
    "aten.zeros.default": filled,
    "aten.full.default": filled,
    "aten.native_dropout.default": dropout,
    "aten.native_dropout_backward.default": dropout_backward,
}
