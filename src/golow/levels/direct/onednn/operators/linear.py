"""A linear layer with bias, residual and activation fused.

In training it is a product with the weight as it is stored: forward and both gradients read it, and
it is never reordered. In inference the library has three ways to compute it, and which one is
faster depends on the shape, by up to 40% (``tuning.py`` measures it): an inner product, whose
weight is in blocks; a 1x1 convolution of an image with a pixel for each row; and a matrix product.
A single row has a kernel of golow's own, where there is a compiler. A flattened image in channels
last is read as it is: the columns of the weight are put into its order while a plan is loaded.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from golow.levels.direct.formulas.activation_formulas import formulas
from golow.levels.direct.implementation import Implementation, Question
from golow.levels.direct.onednn.bindings.constants import (
    ANY,
    BIAS,
    CHANNELS_LAST,
    CONVOLUTION_DIRECT,
    DST,
    FORWARD_INFERENCE,
    POST_OP_STRIDE,
    SRC,
    SRC_1,
    WEIGHTS,
)
from golow.levels.direct.onednn.bindings.library import Descriptor, dims
from golow.levels.direct.onednn.bindings.primitive import PostOp, Primitive
from golow.levels.direct.onednn.build.builder import Builder
from golow.levels.direct.onednn.build.refusing import without_algorithm
from golow.levels.direct.onednn.kernels.line import line_product
from golow.levels.direct.onednn.steps.built_plan import Tensor
from golow.levels.direct.onednn.steps.eltwise import post_ops
from golow.levels.direct.onednn.steps.rows import Rows, as_rows, in_rows, in_rows_of_any_order
from golow.levels.direct.onednn.steps.value_views import ITEM_BYTES, folded
from golow.levels.direct.refusing import refuse_integers
from golow.levels.direct.split_axes import Axis
from golow.lower.ir.graph import Activation, Ref
from golow.lower.operators.linear import Linear

AS_STORED = -1
"""Instead of a format tag: the weight is read in PyTorch's order."""


LARGEST_TURNED = 2**25
"""Bytes of a weight whose columns are put into another order. Reading a larger one takes so long
that the copy of a flattened image does not matter, and loading would need as much again."""


class Product(NamedTuple):
    """rows, inner and columns: x is [rows, inner], the weight [columns, inner], the result [rows,
    columns]. activation: the post-ops after the residual."""

    build: Builder
    rows: int
    inner: int
    columns: int
    weight: Ref
    biased: bool
    residual: bool
    activation: list[PostOp]

    def after(self, result: Descriptor) -> list[PostOp]:
        """All post-ops, for a result in this layout."""
        added = [PostOp("add", descriptor=result)] if self.residual else []
        return [*added, *self.activation]


class Made(NamedTuple):
    """A primitive with its weight, and the layouts in which it takes x, bias and the result."""

    primitive: Primitive
    weight: Tensor
    x: Descriptor
    bias: Descriptor
    result: Descriptor


def linear(build: Builder, arguments: Linear) -> None:
    """activation(x weight^T + bias + residual); leading dimensions of x count as rows."""
    output, bias = build.current.output(), arguments.bias
    columns, inner = build.current.value(arguments.weight).shape
    rows, residual = _alike(build, arguments)
    number = math.prod(output.shape[:-1])
    weight = _in_order_of(build, arguments.weight, rows.columns)
    product = Product(
        build, number, inner, columns, weight, bias is not None, residual is not None,
        post_ops(arguments.activation),
    )  # fmt: skip
    shape = number, columns
    result = build.memory.new(output.name, shape, Descriptor.plain(shape))
    if number == 1 and not build.current.trains and _has_kernel(build, arguments.activation):
        _one_row(build, arguments, weight, rows, residual, result)
        return
    made = _way(build, product)(product)
    reads = {SRC: rows.tensor._replace(descriptor=made.x), WEIGHTS: made.weight}
    if bias is not None:
        line = build.values.wanted(bias, Descriptor.plain((columns,)))
        reads[BIAS] = line._replace(descriptor=made.bias)
    if residual is not None:
        reads[POST_OP_STRIDE | SRC_1] = residual.tensor._replace(descriptor=made.result)
    build.steps.call(made.primitive, reads, {DST: result._replace(descriptor=made.result)})
    build.views.define(rows.result(result))


def _has_kernel(build: Builder, activation: Activation | None) -> bool:
    return build.generates and (activation is None or activation.name in formulas())


def _one_row(
    build: Builder,
    arguments: Linear,
    weight: Ref,
    rows: Rows,
    residual: Rows | None,
    result: Tensor,
) -> None:
    columns, inner = build.current.value(arguments.weight).shape
    reads = [rows.tensor, build.values.wanted(weight, Descriptor.plain((columns, inner)))]
    if arguments.bias is not None:
        reads.append(build.values.wanted(arguments.bias, Descriptor.plain((columns,))))
    if residual is not None:
        reads.append(residual.tensor)
    biased, added = arguments.bias is not None, residual is not None
    kernel = line_product(inner, columns, biased, added, arguments.activation)
    build.steps.kernel(kernel, reads, [result])
    build.views.define(rows.result(result))


def _alike(build: Builder, arguments: Linear) -> tuple[Rows, Rows | None]:
    """The rows of x and of the residual, in the same order: row-major if they are stored
    differently."""
    seen = in_rows_of_any_order if _may_turn(build, arguments.weight) else in_rows
    rows = seen(build, arguments.x)
    if arguments.residual is None:
        return rows, None
    residual = in_rows(build, arguments.residual)
    if rows.outer == residual.outer:
        return rows, residual
    both = (build.values.plain(arguments.x), build.values.plain(arguments.residual))
    first, second = (as_rows(folded(tensor)) for tensor in both)
    return first, second


def _may_turn(build: Builder, weight: Ref) -> bool:
    """True if the columns of the weight may be put into another order while loading."""
    size = math.prod(build.current.value(weight).shape) * ITEM_BYTES
    if size > LARGEST_TURNED or not build.values.is_constant(weight):
        return False
    return build.layout_of(build.current.position) != AS_STORED


def _in_order_of(build: Builder, weight: Ref, columns: Axis) -> Ref:
    """The weight with its columns in the order in which these parts are in memory."""
    if not columns:
        return weight
    name = f"{weight.name}_by_{'_'.join(f'{part.size}x{part.step}' for part in columns)}"
    if not build.values.is_known(name):
        given = build.values.plain(weight)
        rows, inner = given.shape
        sizes = rows, *(part.size for part in columns)
        target = Descriptor.strided(sizes, (inner, *(part.step for part in columns)))
        split = given._replace(shape=sizes, descriptor=Descriptor.plain(sizes))
        made = build.values.reordered(split, target)
        turned = made._replace(shape=given.shape, descriptor=Descriptor.plain(given.shape))
        build.values.keep(name, turned, private=True)
    return Ref(name=name)


def _way(build: Builder, product: Product) -> Callable[[Product], Made]:
    """The implementation chosen for this node. A weight that is not stored row-major is read as it
    is stored, or arranged by the inner product. In training, and where a plan has no separate
    weights, each is read as it is stored."""
    if build.current.trains:
        return _as_stored
    tag = build.layout_of(build.current.position)
    if tag == AS_STORED:
        return _as_stored
    if tag == ANY:
        return _inner_product
    plain = build.values.tensor(product.weight).layout.is_plain
    return _convolution if tag == CHANNELS_LAST and plain else _matrix_product


def _inner_product(product: Product) -> Made:
    x = Descriptor.plain((product.rows, product.inner))
    result, bias = Descriptor.plain((product.rows, product.columns)), _line(product)
    primitive = Primitive(
        product.build.engine, "inner_product_forward", FORWARD_INFERENCE, x,
        Descriptor.tagged((product.columns, product.inner)), bias if product.biased else None,
        result, post_ops=product.after(result),
    )  # fmt: skip
    weight = product.build.values.wanted(product.weight, primitive.descriptor(WEIGHTS))
    return Made(primitive, weight, x, bias, result)


def _convolution(product: Product) -> Made:
    """The rows are the pixels of an image in channels last, which are the same bytes."""
    x = Descriptor.tagged((1, product.inner, product.rows, 1), CHANNELS_LAST)
    result = Descriptor.tagged((1, product.columns, product.rows, 1), CHANNELS_LAST)
    bias, nothing = _line(product), dims((0, 0))
    primitive = Primitive(
        product.build.engine, "convolution_forward", FORWARD_INFERENCE, CONVOLUTION_DIRECT, x,
        Descriptor.tagged((product.columns, product.inner, 1, 1)),
        bias if product.biased else None, result, dims((1, 1)), nothing, nothing, nothing,
        post_ops=product.after(result),
    )  # fmt: skip
    weight = product.build.values.wanted(product.weight, primitive.descriptor(WEIGHTS))
    return Made(primitive, weight, x, bias, result)


def _as_stored(product: Product) -> Made:
    """A matrix product with the weight in PyTorch's order."""
    return _matrix_product(product, as_stored=True)


def _matrix_product(product: Product, as_stored: bool = False) -> Made:
    """With the weight as it is stored, unless the library wants blocks."""
    build, turned = product.build, (product.inner, product.columns)
    x = Descriptor.plain((product.rows, product.inner))
    result = Descriptor.plain((product.rows, product.columns))
    bias = Descriptor.plain((1, product.columns))

    def make(weight: Descriptor) -> Primitive:
        return Primitive(
            build.engine, "matmul", x, weight, bias if product.biased else None, result,
            post_ops=product.after(result),
        )  # fmt: skip

    if not as_stored:
        primitive = make(Descriptor.tagged(turned))
        wanted = primitive.descriptor(WEIGHTS)
        if wanted.blocks:
            weight = build.values.wanted(product.weight, wanted.permuted((1, 0)))
            return Made(primitive, weight._replace(descriptor=wanted), x, bias, result)
        given = build.values.tensor(product.weight)
        if given.layout.blocks or 1 not in given.layout.strides:
            given = build.values.plain(product.weight)
    else:
        given = build.values.wanted(product.weight, Descriptor.plain(turned[::-1]))
    weight = given._replace(descriptor=given.layout.permuted((1, 0)))
    return Made(make(weight.layout), weight, x, bias, result)


def _line(product: Product) -> Descriptor:
    return Descriptor.plain((product.columns,))


def _refuse(arguments: Linear, question: Question) -> str:
    integers = refuse_integers(arguments, question)
    return integers or without_algorithm(question, arguments.activation)


IMPLEMENTATIONS = (Implementation(Linear, linear, _refuse),)
