"""Linear layers of numbers of 8 bits: a product on tensor cores, and a generated kernel for what
cuBLASLt does not add to it.

Numbers of e4m3 are multiplied with the scale of each output, bias, residual and relu in one call,
where the GPU has such products and nothing else follows. Sums of int8 are written as int32. Layers
that the library cannot multiply, and unsigned activations, are converted to the type of
activations, which holds their numbers exactly, and multiplied in that.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from golow.levels.direct.cudnn.build.refusing import without_formula
from golow.levels.direct.cudnn.build.weights import is_cold, is_frozen
from golow.levels.direct.cudnn.operators.quantize import rounded
from golow.levels.direct.cudnn.problems.element_types import OF_8_BITS
from golow.levels.direct.cudnn.problems.epilogue import copy_ns
from golow.levels.direct.cudnn.problems.gemm import Problem
from golow.levels.direct.cudnn.problems.layouts import TENSOR_ALIGNMENT, Layout
from golow.levels.direct.cudnn.shared_kernels.fused_pointwise import (
    Statement,
    Written,
    fused,
    input_name,
)
from golow.levels.direct.cudnn.steps.built_plan import Tensor
from golow.levels.direct.formulas.activation_formulas import RELU, clip_of, with_activation
from golow.levels.direct.implementation import Implementation, Question
from golow.levels.direct.kernel_views import View
from golow.levels.direct.refusing import not_floating
from golow.lower.ir.graph import Activation, Ref
from golow.lower.operators.quantize import E4M3
from golow.lower.operators.quantized_linear import QuantizedLinear

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.build.builder import Builder
    from golow.levels.direct.cudnn.engines.engines import Engine

EACH = 16
"""Outputs and inputs are multiples of it: rows of 8 bits begin at multiples of 16 bytes."""


class Rest(NamedTuple):
    """Work that remains after a product, in this order: multiply by the scale of each output, add
    bias and residual, apply the activation, round."""

    scale: Ref | None
    bias: Ref | None
    residual: Ref | None
    activation: Activation | None
    rounding: Ref | None


class Product(NamedTuple):
    """A product, and what is left of the layer after it."""

    problem: Problem
    rest: Rest


def quantized_linear(build: Builder, arguments: QuantizedLinear) -> None:
    """activation((x weight^T) * scale + bias + residual), rounded if the next layer reads numbers
    of 8 bits; leading dimensions of x count as rows."""
    (problem, rest), engine = _chosen(build, arguments)
    value, last = build.current.output(), not any(rest)
    name = value.name if last else f"{value.name}.sums"
    reads = _reads(build, arguments, problem)
    result = build.memory.new(name, value.shape, Layout(problem.result))
    build.steps.engine(engine, reads, [result])
    if not last:
        result = _finished(build, result, rest, arguments.result_type)
    build.values.define(0, result)


# ---------------------------------------------------------------- products


def _chosen(build: Builder, arguments: QuantizedLinear) -> tuple[Product, Engine]:
    """The first product that the library has on this GPU; if products are timed, the fastest with
    the kernels beside it."""
    wide = Product(_wide(build, arguments), _whole(arguments))
    tried = ((p, build.engines.choose(p.problem)) for p in (*_narrow(build, arguments), wide))
    known = ((product, engine) for product, engine in tried if engine is not None)
    if build.engines.times:
        found = min(known, key=lambda one: _nanoseconds(build, one[0]), default=None)
    else:
        found = next(known, None)
    return found or (wide, build.engine_for(wide.problem))


def _nanoseconds(build: Builder, product: Product) -> float:
    """Time of a product, of the pass after it, and of one that converts the rows before it."""
    engines, problem = build.engines, product.problem
    rows, *_, result = problem.operand_bytes
    after = copy_ns(engines, 2 * result) if any(product.rest) else 0.0
    before = 0.0 if problem.arithmetic == "quarter" else copy_ns(engines, 2 * rows)
    return engines.time_of(problem) + before + after


def _narrow(build: Builder, arguments: QuantizedLinear) -> Iterator[Product]:
    """Products of the numbers as they are, the best first; none of sizes that no library
    multiplies. Its sums of e4m3 are not those of full float32 arithmetic."""
    wide, dtype = _wide(build, arguments), build.current.value(arguments.x).dtype
    exact = dtype == "int8" or (dtype == E4M3 and build.types.convolutions != "ieee")
    if not exact or wide.n % EACH or wide.k % EACH:
        return
    whole = _whole(arguments)
    plain = replace(wide, dtype=dtype, result=_sums(dtype, wide.dtype), arithmetic="quarter")
    products = [Product(plain, whole)]
    if dtype == E4M3:
        scaled = _scaled(plain, whole, wide.dtype)
        # The plain product is the faster one, if a pass over as many bytes follows in any case.
        products.insert(any(scaled.rest) and plain.result == wide.dtype, scaled)
    yield from products


def _sums(dtype: str, computed: str) -> str:
    """The type of sums that a pass scales. Unscaled, those of e4m3 are too large for float16."""
    if dtype == "int8":
        return "int32"
    return computed if computed == "bfloat16" else "float32"


def _scaled(plain: Problem, rest: Rest, computed: str) -> Product:
    """The product with all that one call can do. The library adds no bias of float32."""
    biased = rest.bias is not None and computed != "float32"
    complete = biased or rest.bias is None
    relu = complete and clip_of(rest.activation) == RELU
    added = rest.residual is not None
    whole = replace(plain, result=computed, scaled=True, bias=biased, residual=added, relu=relu)
    bias, activation = None if complete else rest.bias, None if relu else rest.activation
    return Product(whole, Rest(None, bias, None, activation, rest.rounding))


def _wide(build: Builder, arguments: QuantizedLinear) -> Problem:
    """The sums in float32, of numbers in the type of activations."""
    outputs, *_, inputs = build.current.value(arguments.weight).shape
    return Problem(
        m=math.prod(build.current.output().shape[:-1]),
        n=outputs,
        k=inputs,
        dtype=build.types.computed,
        result="float32",
        arithmetic=build.types.products,
        transpose_b=True,
        alignment=TENSOR_ALIGNMENT,
        frozen=is_frozen(build, arguments.weight),
        cold=is_cold(build, arguments.weight),
    )


def _whole(arguments: QuantizedLinear) -> Rest:
    return Rest(
        arguments.scale,
        arguments.bias,
        arguments.residual,
        arguments.activation,
        arguments.result_scale,
    )


def _reads(build: Builder, arguments: QuantizedLinear, problem: Problem) -> list[Tensor]:
    """The operands of a product, in their order."""
    values, result = build.values, Layout(problem.result)
    reads = [values.wanted(arguments.x, Layout(problem.dtype))]
    reads.append(_weight(build, arguments.weight, problem.dtype))
    if problem.scaled:
        scale = values.wanted(arguments.scale, Layout("float32"))
        reads += [scale, _ones(build, problem.m, arguments.scale)]
    added = [arguments.bias if problem.bias else None]
    added += [arguments.residual if problem.residual else None]
    return [*reads, *(values.wanted(item, result) for item in added if item is not None)]


def _weight(build: Builder, reference: Ref, dtype: str) -> Tensor:
    """The weight in this type. That of e4m3 is in the graph as bits."""
    if build.current.value(reference).dtype != "uint8":
        return build.values.wanted(reference, Layout(dtype))
    numbers = build.values.wanted(reference, Layout("uint8"))._replace(layout=Layout(E4M3))
    if dtype == E4M3:
        return numbers
    with build.loading.of(reference.name):
        return build.values.copied(numbers, Layout(dtype))


def _ones(build: Builder, count: int, beside: Ref) -> Tensor:
    """A one for each row, made when loading as this constant is: the rule scales no rows."""
    with build.loading.of(beside.name):
        result = build.memory.new(f"{build.current.name}.ones", (count,), Layout("float32"))
        one, each = View("float32", (0,)), Written(input_name(0), View("float32", (1,)))
        kernel = fused((), [one], [each], [count])
        build.steps.kernel(kernel, [build.memory.number(1.0)], [result], "fill")
    return result


# ---------------------------------------------------------------- after them


def _finished(build: Builder, sums: Tensor, rest: Rest, result_type: str) -> Tensor:
    """Add a kernel that does the rest in one pass."""
    value, computed = build.current.output(), build.types.computed
    by_column, by_element, single = (0, 1), (value.shape[-1], 1), (0, 0)
    read, views = [sums], [View(sums.dtype, by_element)]

    def operand(item: Ref, dtype: str, strides: tuple[int, int]) -> str:
        read.append(build.values.wanted(item, Layout(dtype)))
        views.append(View(dtype, strides))
        return input_name(len(read) - 1)

    text = f"static_cast<float>({input_name(0)})"
    if rest.scale is not None:
        text += f" * {operand(rest.scale, 'float32', by_column)}"
    if rest.bias is not None:
        text += f" + {operand(rest.bias, computed, by_column)}"
    if rest.residual is not None:
        text += f" + {operand(rest.residual, computed, by_element)}"
    statements = [
        Statement("t0", "float32", text),
        Statement("t1", "float32", with_activation("t0", rest.activation)),
    ]
    dtype = computed
    if rest.rounding is not None:
        dtype = result_type
        product = f"t1 * {operand(rest.rounding, 'float32', single)}"
        statements.append(Statement("t2", dtype, rounded(product, dtype)))
    result = build.memory.new(value.name, value.shape, Layout(dtype))
    written = Written(statements[-1].name, View(dtype, by_element))
    shape = (math.prod(value.shape[:-1]), value.shape[-1])
    kernel = fused(statements, views, [written], shape)
    build.steps.kernel(kernel, read, [result], "scale")
    return result


def _refuse(arguments: QuantizedLinear, question: Question) -> str:
    floats = not_floating(
        question, arguments.scale, arguments.bias, arguments.residual, arguments.result_scale
    )
    return floats or without_formula(question, arguments.activation)


IMPLEMENTATIONS = (Implementation(QuantizedLinear, quantized_linear, _refuse, OF_8_BITS),)
