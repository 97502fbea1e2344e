"""The steps of a recurrent network in training, and of its gradients, that golow's own kernels
compute, layer by layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from golow.levels.direct.cudnn.engines.golow_recurrence import (
    Shares,
    gradient_products,
    layer_of,
    number_of,
)
from golow.levels.direct.cudnn.problems.element_types import ITEM_BYTES
from golow.levels.direct.cudnn.problems.gemm import Problem
from golow.levels.direct.cudnn.problems.layouts import Layout
from golow.levels.direct.cudnn.problems.recurrent_network import (
    OfResults,
    Parameter,
    RecurrentNetwork,
    States,
    Wanted,
)
from golow.levels.direct.cudnn.shared_kernels.recurrent import Slices, recurrent
from golow.levels.direct.cudnn.shared_kernels.recurrent_backward import Columns, recurrent_backward
from golow.levels.direct.cudnn.shared_kernels.recurrent_backward import words as words_backward
from golow.levels.direct.cudnn.shared_kernels.reduction import reduction
from golow.levels.direct.cudnn.steps.built_plan import Tensor
from golow.levels.direct.cudnn.steps.recurrent_by_layers import (
    BIASES,
    STEP,
    Weighed,
    of_layer,
    weighed,
    zeros,
)
from golow.levels.direct.cudnn.steps.sums import launch
from golow.lower.ir.graph import Ref

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.build.builder import Builder


class Passed(NamedTuple):
    """Tensors that a layer read and left for its gradients. given: with its gates where its input's
    part was; memory: in which y is stored."""

    x: Tensor
    given: Weighed
    kept: Tensor | None
    memory: Tensor
    first_cell: Tensor | None


class Layers(NamedTuple):
    """Tensors that forward saves for backward."""

    problem: RecurrentNetwork
    forward: Slices
    backward: Columns
    passed: list[Passed]

    @property
    def order(self) -> Layout:
        """Order of the results and of their gradient."""
        return Layout(self.problem.dtype)

    @property
    def x_order(self) -> Layout:
        """Order of the gradient of x."""
        return Layout(self.problem.dtype)

    def gradients(self, build: Builder, given: OfResults, wanted: Wanted) -> None:
        """Add the steps of all gradients, and define those of the parameters."""
        words, of_y = zeros(build, words_backward(layer_of(self.problem))), given.y
        for index in reversed(range(self.problem.layers)):
            of_gates = _of_gates(build, self.problem)
            _step_back(build, self, index, given._replace(y=of_y), wanted, of_gates, words)
            _of_weights(build, self, index, of_gates, wanted)
            of_x, passed = wanted.x, self.passed[index]
            if index > 0:
                of_x = build.memory.new(
                    f"{build.current.name}.gradient", passed.x.shape, passed.x.layout
                )
            if of_x is not None:
                engine = build.engine_for(gradient_products(self.problem, index).x)
                reads = [of_gates[0], passed.given.input_weight]
                build.steps.engine(engine, reads, [of_x], "input_gradient")
                of_y = of_x


def forward(
    build: Builder,
    problem: RecurrentNetwork,
    shares: Shares,
    ends: Sequence[Mapping[Parameter, Ref]],
    states: States,
    x: Tensor,
) -> tuple[Tensor, Layers]:
    """Add the layers' steps; return the results [L, N, D H] of the last one. ends: the parameters
    of each layer and side."""
    if shares.backward is None:
        raise ValueError("kernels for inference alone")
    layer, name, exact = layer_of(problem), build.current.name, Layout("float32")
    words, passed = zeros(build, layer.words), list[Passed]()
    shape = (problem.steps, problem.rows, problem.sides * problem.hidden)
    for index in range(problem.layers):
        sides = ends[index * problem.sides : (index + 1) * problem.sides]
        given = weighed(build, problem, index, sides, x)
        memory = build.memory.new(f"{name}.y", (layer.y_elements,), Layout(problem.dtype))
        kept = build.memory.new(f"{name}.kept", shape, exact) if layer.gates > 1 else None
        first, first_cell, last_cell = (
            None if of is None else of_layer(of, index, problem) for of in states
        )
        reads = [given.inputs, given.hidden_weight, *given.biases, first, first_cell]
        writes = [memory, given.inputs, kept, None, last_cell, words]
        kernel = recurrent(layer, shares.forward, number_of(problem, index))
        build.steps.kernel(kernel, reads, writes, STEP)
        passed.append(Passed(x, given, kept, memory, first_cell))
        x = _part(memory, layer.lead, shape)
    return x, Layers(problem, shares.forward, shares.backward, passed)


def _of_gates(build: Builder, problem: RecurrentNetwork) -> tuple[Tensor, Tensor]:
    """Memory for the gradients of both parts of the gates: one where they are equal."""
    shape = (problem.steps * problem.rows, problem.sides * problem.gates * problem.hidden)
    made = [
        build.memory.new(f"{build.current.name}.of_gates", shape, Layout(problem.dtype))
        for _ in range(1 + (problem.kind == "gru"))
    ]
    return made[0], made[-1]


def _step_back(
    build: Builder,
    layers: Layers,
    index: int,
    given: OfResults,
    wanted: Wanted,
    of_gates: tuple[Tensor, Tensor],
    words: Tensor,
) -> None:
    """Add the launch for a layer's gradients."""
    problem, passed = layers.problem, layers.passed[index]
    reads = [given.y, passed.given.inputs, passed.kept, passed.memory, passed.given.hidden_weight]
    firsts = [
        None if of is None else of_layer(of, index, problem) for of in (wanted.hidden, wanted.cell)
    ]
    apart = None if of_gates[1] is of_gates[0] else of_gates[1]
    kernel = recurrent_backward(
        layer_of(problem), layers.backward, number_of(problem, problem.layers - 1 - index)
    )
    build.steps.kernel(
        kernel,
        [*reads, passed.first_cell, given.last_cell],
        [of_gates[0], apart, *firsts, words],
        f"{STEP}_backward",
    )


def _of_weights(
    build: Builder, layers: Layers, index: int, of_gates: tuple[Tensor, Tensor], wanted: Wanted
) -> None:
    """Define the gradients of a layer's parameters."""
    problem, passed, layer = layers.problem, layers.passed[index], layer_of(layers.problem)
    products, rows = gradient_products(problem, index), Layout(problem.dtype)
    wide = problem.gates * problem.hidden
    targets = wanted.parameters[index * problem.sides : (index + 1) * problem.sides]
    for side, target in enumerate(targets):
        start = layer.lead + (1 if side else -1) * layer.step_elements + side * problem.hidden
        rest = layer.steps * layer.step_elements - side * problem.hidden
        before = _part(passed.memory, start, (rest,))
        matrices: tuple[tuple[Parameter, Problem, Tensor], ...] = (
            ("input_weight", products.input_weight, passed.x),
            ("hidden_weight", products.hidden_weight, before),
        )
        for (name, product, read), of in zip(matrices, of_gates, strict=True):
            result = build.values.result(target[name], rows)
            own = _part(of, side * wide, (of.elements - side * wide,))
            build.steps.engine(build.engine_for(product), [own, read], [result], f"{name}_gradient")
            build.values.define(target[name], result)
    if problem.biased:
        sums = [_sums(build, of) for of in dict.fromkeys(of_gates)]
        for name, of_all in zip(BIASES, (sums[0], sums[-1]), strict=True):
            for side, target in enumerate(targets):
                build.values.define(target[name], _part(of_all, side * wide, (wide,)))


def _sums(build: Builder, rows: Tensor) -> Tensor:
    """Sums of all rows, in float32."""
    lines, wide = rows.shape
    made = build.memory.new(f"{build.current.name}.of_biases", (wide,), Layout("float32"))
    launch(build, reduction(rows.dtype, "float32", 1, lines, wide), [rows], [made])
    return made


def _part(memory: Tensor, start: int, shape: Sequence[int]) -> Tensor:
    """Part of the tensor that begins that many elements after the first."""
    offset = memory.offset + start * ITEM_BYTES[memory.dtype]
    return memory._replace(shape=tuple(shape), offset=offset)
