"""Weight normalisation and its gradients, of several layers at once, by golow's own kernel."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from golow.levels.direct.cudnn.problems.element_types import C_TYPES
from golow.levels.direct.cudnn.problems.layouts import IMAGES, Layout, layout_of
from golow.levels.direct.cudnn.shared_kernels import Kernel
from golow.levels.direct.cudnn.shared_kernels.blocks import integers
from golow.levels.direct.cudnn.shared_kernels.fused_pointwise import macro
from golow.levels.direct.cudnn.shared_kernels.geometry import require_positive
from golow.levels.direct.cudnn.shared_kernels.rows import ROWS, threads_for
from golow.levels.direct.cudnn.steps.built_plan import Tensor, is_aligned
from golow.levels.direct.implementation import Implementation
from golow.levels.direct.kernel_views import View, merged_axes
from golow.lower.ir.graph import Ref
from golow.lower.operators.weight_norm import WeightNorm, WeightNormBackward

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.build.builder import Builder

FILE = Path(__file__).with_suffix(".cu")
EXACT = Layout("float32")

Types = tuple[str, ...]


class Rows(NamedTuple):
    """The rows of a layer: how many, and the elements of each, which are side by side in v. inner:
    elements of a row that are ``inner_step`` apart in its weight; those after as many are
    ``outer_step`` further, those of the next row ``row_step``."""

    rows: int
    columns: int
    inner: int
    row_step: int
    outer_step: int
    inner_step: int


class Layer(NamedTuple):
    """A layer of a launch: tensors that it reads and writes, and its rows."""

    reads: tuple[Tensor, ...]
    writes: tuple[Tensor | None, ...]
    rows: Rows


def weight_norm(build: Builder, arguments: WeightNorm) -> None:
    """Weights are in the type of products, in the order in which convolutions read them; norms are
    float32."""
    layers, count = [], len(arguments.v)
    for index, (v, g) in enumerate(zip(arguments.v, arguments.g, strict=True)):
        given, length = _parameters(build, v, g)
        order = weight_layout(build.types.computed, given.shape)
        rows = rows_of(given, order)
        assert rows is not None  # noqa: S101 - channels and pixels are two axes
        written = (_new(build, index, order), _new(build, count + index, EXACT))
        layers.append(Layer((given, length), written, rows))
    _launch(build, forward_kernel(build.types.computed, [layer.rows for layer in layers]), layers)
    for index, layer in enumerate(layers):
        for place, tensor in zip((index, count + index), layer.writes, strict=True):
            if tensor is not None:
                build.values.define(place, tensor)


def weight_norm_backward(build: Builder, arguments: WeightNormBackward) -> None:
    """Gradients of weights are read where they are stored, in any order of channels and pixels."""
    launches: dict[Types, list[Layer]] = defaultdict(list)
    count = len(arguments.v)
    for index, (v, g) in enumerate(zip(arguments.v, arguments.g, strict=True)):
        given, length = _parameters(build, v, g)
        outer, rows = _outer(build, arguments.gradients[index], given)
        norm = build.values.wanted(arguments.norms[index], EXACT)
        written = (_gradient(build, index, given.layout), _gradient(build, count + index, EXACT))
        types = (outer.dtype, *("float32" if t is None else t.dtype for t in written))
        launches[types].append(Layer((outer, given, length, norm), written, rows))
        for place, tensor in zip((index, count + index), written, strict=True):
            if tensor is not None:
                build.values.define(place, tensor)
    for types, layers in launches.items():
        _launch(build, backward_kernel(types, [layer.rows for layer in layers]), layers)


def _launch(build: Builder, kernel: Kernel, layers: Sequence[Layer]) -> None:
    reads = [t for same in zip(*(layer.reads for layer in layers), strict=True) for t in same]
    writes = [t for same in zip(*(layer.writes for layer in layers), strict=True) for t in same]
    build.steps.kernel(kernel, reads, writes)


# ---------------------------------------------------------------- where values are stored


def _parameters(build: Builder, v: Ref, g: Ref) -> tuple[Tensor, Tensor]:
    """The originals, from which weights are computed in every precision."""
    order = own_layout(build.current.value(v).shape)
    return build.values.wanted(v, order), build.values.wanted(g, EXACT)


def own_layout(shape: tuple[int, ...]) -> Layout:
    """The order of v: the channels of a pixel are side by side if it is of images or volumes,
    otherwise it is PyTorch's."""
    return Layout("float32", "channels_last", shape[1]) if len(shape) in IMAGES else EXACT


def weight_layout(dtype: str, shape: tuple[int, ...]) -> Layout:
    """The order in which convolutions read a weight: the channels of a pixel are side by side."""
    if len(shape) < 3:
        return Layout(dtype)
    return layout_of(dtype, shape, Layout(dtype, "channels_last", shape[1]).strides(shape))


def _outer(build: Builder, gradient: Ref, v: Tensor) -> tuple[Tensor, Rows]:
    """The gradient of a weight, as it is stored if rows can tell where its elements are."""
    outer = build.values.view(gradient)
    rows = rows_of(v, outer.layout) if is_aligned(outer) else None
    if rows is None:
        outer = build.values.wanted(gradient, weight_layout(outer.dtype, v.shape))
        rows = rows_of(v, outer.layout)
    assert rows is not None  # noqa: S101 - as in the forward pass
    return outer, rows


def rows_of(v: Tensor, weight: Layout) -> Rows | None:
    """The rows of v and of its weight in that layout; None if more than two axes are needed."""
    first, *steps = weight.strides(v.shape)
    own = v.layout.strides(v.shape)[1:]
    axes = merged_axes(v.shape[1:], [View("", own), View("", tuple(steps))], 0)
    if len(axes.sizes) > 2:
        return None
    outer, inner = (0, *axes.strides[1])[-2:]
    return Rows(v.shape[0], math.prod(v.shape[1:]), axes.sizes[-1], first, outer, inner)


def _new(build: Builder, index: int, layout: Layout) -> Tensor | None:
    """Memory for the current node's value of that index; None if nothing reads it."""
    if not build.current.is_read(index):
        return None
    value = build.current.output(index)
    return build.memory.new(value.name, value.shape, layout)


def _gradient(build: Builder, index: int, order: Layout) -> Tensor | None:
    """Memory for a parameter's gradient: its place, in the type that it has there."""
    if not build.current.is_read(index):
        return None
    place = build.training.place(index)
    dtype = build.types.computed if place is None else place.dtype
    return build.values.result(index, order._replace(dtype=dtype))


# ---------------------------------------------------------------- kernels


def forward_kernel(dtype: str, layers: Sequence[Rows]) -> Kernel:
    """Pointers: every v, every g (float32) -> every weight, every norm (float32). A result that
    nothing reads is absent."""
    pointers = ("const float", "const float", C_TYPES[dtype], "float")
    return _kernel(f"Weights<{C_TYPES[dtype]}>", pointers, layers)


def backward_kernel(types: Types, layers: Sequence[Rows]) -> Kernel:
    """Pointers: every weight's gradient, every v, every g, every norm (float32) -> the gradients of
    every v and of every g. types: of the weights' gradients, of v's and of g's."""
    h, of_v, of_g = (C_TYPES[dtype] for dtype in types)
    pointers = (f"const {h}", "const float", "const float", "const float", of_v, of_g)
    return _kernel(f"Gradients<{h}, {of_v}, {of_g}>", pointers, layers)


def _kernel(kind: str, pointers: Sequence[str], layers: Sequence[Rows]) -> Kernel:
    """A block for each row. kind: in C, the struct of these pointers and a row."""
    end, numbers, found = 0, dict[str, int](), list[str]()
    for k, layer in enumerate(layers):
        require_positive(rows=layer.rows, columns=layer.columns)
        begin, end = f" - end_{k - 1}" if k else "", end + layer.rows
        own = {f"{name}_{k}": number for name, number in layer._asdict().items() if name != "rows"}
        numbers |= {f"end_{k}": end, **own}
        given = ", ".join(f"p{place}_{k}" for place in range(len(pointers)))
        row = ", ".join((f"block{begin}", *own))
        found.append(f"{'else ' if k else ''}if (block < end_{k}) layer = {{{given}, {{{row}}}}};")
    require_positive(rows=end)
    named = [
        f"{pointer}* p{place}_{k}"
        for place, pointer in enumerate(pointers)
        for k in range(len(layers))
    ]
    head = (
        f"#define POINTERS {', '.join(named)}",
        f"#define SIZES {''.join(f', int {name}' for name in numbers)}",
        macro("FIND", found),
    )
    threads = threads_for(max(layer.columns for layer in layers))
    return Kernel(
        FILE,
        f"weight_norm<{kind}, {threads}>",
        (end, 1, 1),
        (threads, 1, 1),
        integers(*numbers.values()),
        code=ROWS + "\n".join(head) + "\n\n",
    )


IMPLEMENTATIONS = (
    Implementation(WeightNorm, weight_norm),
    Implementation(WeightNormBackward, weight_norm_backward),
)
