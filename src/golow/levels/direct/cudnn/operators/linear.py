"""Linear layers. A transposed matrix is a view, so nothing is copied for it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING

from golow.levels.direct.cudnn.build.kernel_indices import divided
from golow.levels.direct.cudnn.build.layout_propagation import read_through, seen_first
from golow.levels.direct.cudnn.build.refusing import without_formula
from golow.levels.direct.cudnn.build.weights import is_cold, is_frozen, may_lie_anyhow
from golow.levels.direct.cudnn.engines.one_pixel import as_convolution
from golow.levels.direct.cudnn.problems.epilogue import GELU, activating, copy_ns
from golow.levels.direct.cudnn.problems.gemm import CONTIGUOUS, Problem, Strides
from golow.levels.direct.cudnn.problems.layouts import TENSOR_ALIGNMENT, Layout, pitch_of
from golow.levels.direct.cudnn.steps.built_plan import Tensor, is_aligned
from golow.levels.direct.cudnn.steps.elementwise import activated
from golow.levels.direct.cudnn.steps.long_rows import LONG, Product, in_parts
from golow.levels.direct.cudnn.steps.split_axis_views import Folded, folded, of_rows
from golow.levels.direct.cudnn.steps.strided_copies import copy
from golow.levels.direct.formulas.activation_formulas import NO_CLIP, RELU, clip_of
from golow.levels.direct.implementation import Implementation, Question
from golow.levels.direct.kernel_views import View
from golow.levels.direct.refusing import refuse_integers
from golow.levels.direct.split_axes import rows_in_memory
from golow.lower.ir.graph import Activation, Ref
from golow.lower.operators.linear import Linear

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.build.builder import Builder
    from golow.levels.direct.cudnn.engines.engines import Engine


def linear(build: Builder, arguments: Linear) -> None:
    """Add one product with bias, residual and relu; leading dimensions of x count as rows. It does
    not depend on their order: rows that follow one another are taken as they are stored, and what
    is copied in any case is copied in the order in which the result is read."""
    shape, layout = build.current.output().shape, Layout(build.types.computed)
    outputs, features = build.current.value(arguments.weight).shape
    clip = clip_of(arguments.activation)
    pitch = _pitch(outputs, layout, arguments.residual is not None)
    problem = Problem(
        m=math.prod(shape[:-1]),
        n=outputs,
        k=features,
        dtype=layout.dtype,
        result=layout.dtype,
        arithmetic=build.types.products,
        transpose_b=True,
        bias=arguments.bias is not None,
        residual=arguments.residual is not None,
        relu=clip == RELU,
        alignment=TENSOR_ALIGNMENT,
        frozen=is_frozen(build, arguments.weight),
        cold=is_cold(build, arguments.weight),
        d=CONTIGUOUS if pitch == outputs else Strides(row=pitch),
    )
    view = None
    if not problem.residual:
        _copy_in_order(build, arguments.x, layout)
        view = _as_it_lies(build, arguments.x, layout)
    if view is None and pitch != outputs:
        view = folded(build.values.wanted(arguments.x, layout))
    x = build.values.wanted(arguments.x, layout) if view is None else view.tensor
    rows = shape if view is None else (problem.m, pitch)
    result = build.memory.new(build.current.output().name, rows, layout)
    problem = _faster_order(build, problem, arguments.weight)
    engine = _activating(build, problem, arguments.activation)
    if engine is None and arguments.activation == GELU:
        problem = _with_gelu(build, problem)
    turned = engine is None and not problem.transpose_b
    weight = build.values.wanted(
        arguments.weight, Layout(layout.dtype, "transposed" if turned else "rows")
    )
    operands = (arguments.bias, arguments.residual)
    reads = [weight, *(build.values.wanted(item, layout) for item in operands if item is not None)]
    if engine is not None:
        build.steps.engine(engine, [x, *reads], [result])
    else:
        for product in in_parts(Product(problem, [x, *reads], result)):
            build.steps.engine(build.engine_for(product.problem), product.reads, [product.result])
        if clip not in (NO_CLIP, RELU) and not problem.gelu:
            activated(build, [result], result, arguments.activation)
    if view is not None:
        build.values.fold(of_rows(view, result, features, outputs))
    else:
        build.values.define(0, result)


def _faster_order(build: Builder, problem: Problem, weight: Ref) -> Problem:
    """The product with its weight stored transposed, if that is faster and costs
    nothing: it is written so when loading, and no other node reads it."""
    if not build.engines.times or problem.d != CONTIGUOUS or not may_lie_anyhow(build, weight):
        return problem
    turned = replace(problem, transpose_b=False)
    return min((problem, turned), key=build.engines.time_of)


def _activating(build: Builder, problem: Problem, activation: Activation | None) -> Engine | None:
    """An engine that has the activation in its kernel, if that is faster: the product as a
    convolution of images of one pixel. Of what does not clip, cuBLASLt has only the GELU by
    tanh."""
    if problem.residual:
        return None
    whole = as_convolution(replace(problem, transpose_b=True), activation)
    if whole is None:
        return None
    return activating(build.engines, whole, problem)


def _with_gelu(build: Builder, problem: Problem) -> Problem:
    """The product with GELU in its kernel, in half precision: a pass over memory less. If engines
    are timed, where this is faster."""
    if problem.dtype == "float32":
        return problem
    whole = replace(problem, gelu=True)
    if not build.engines.times:
        return whole
    apart = build.engines.time_of(problem) + copy_ns(build.engines, 2 * problem.operand_bytes[-1])
    return whole if build.engines.time_of(whole) < apart else problem


def _as_it_lies(build: Builder, x: Ref, layout: Layout) -> Folded | None:
    """The operand as a view whose rows follow one another; None if they do not."""
    view = build.values.folded(x)
    tensor, features = view.tensor, build.current.value(x).shape[-1]
    fits = tensor.dtype == layout.dtype and is_aligned(tensor)
    return view if fits and rows_in_memory(view) == features else None


def _copy_in_order(build: Builder, x: Ref, layout: Layout) -> None:
    """Copy an operand whose rows do not follow one another, with its rows in the order in
    which the result is read through views, if that is another one than theirs."""
    view, output = build.values.folded(x), build.current.output()
    shape = build.current.value(x).shape
    copied = view.strides is None and rows_in_memory(view) is None
    if not copied or view.tensor.dtype != layout.dtype or 1 in (shape[-1], output.shape[-1]):
        return
    chain = read_through(build.current, output.name)
    wanted = seen_first(Tensor(view.tensor.buffer, output.shape, layout), chain)
    if wanted is None or wanted.strides is not None or rows_in_memory(wanted) != output.shape[-1]:
        return
    there = of_rows(wanted, wanted.tensor._replace(shape=shape), output.shape[-1], shape[-1])
    indices = divided(shape, {"from": view, "to": there})
    if indices is not None:
        made = build.memory.new(x.name, shape, layout)
        source = View(view.tensor.dtype, indices.strides_of("from"))
        target = View(layout.dtype, indices.strides_of("to"))
        copy(build, view.tensor, source, made, target, indices.sizes, "reshape")
        build.values.replace(x, there._replace(tensor=made))


def _pitch(outputs: int, layout: Layout, residual: bool) -> int:
    """Elements from one row of the result to the next."""
    return outputs if outputs < LONG or residual else pitch_of(outputs, layout.dtype)


def _refuse(arguments: Linear, question: Question) -> str:
    integers = refuse_integers(arguments, question)
    return integers or without_formula(question, arguments.activation)


IMPLEMENTATIONS = (Implementation(Linear, linear, _refuse),)
