"""The steps of a recurrent network by cuDNN, and of its gradients: all layers in one call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from golow.levels.direct.cudnn.bindings.rnn_api import CudnnError, Network
from golow.levels.direct.cudnn.problems.element_types import ITEM_BYTES
from golow.levels.direct.cudnn.problems.layouts import Layout, layout_of
from golow.levels.direct.cudnn.problems.recurrent_network import (
    NetworkEngine,
    OfResults,
    Operand,
    Parameter,
    RecurrentNetwork,
    States,
    Wanted,
)
from golow.levels.direct.cudnn.steps.built_plan import Tensor
from golow.lower.ir.graph import Ref
from golow.lower.plan.memory_traffic import SCRATCH

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.build.builder import Builder

Given = dict[Operand, Tensor]
STEP = "recurrent_layers"


class Call(NamedTuple):
    """Call that forward saves for backward: the network, and the tensors that it read and wrote."""

    network: Network
    given: Given

    @property
    def problem(self) -> RecurrentNetwork:
        """The network's sizes."""
        return self.network.problem

    @property
    def order(self) -> Layout:
        """Order of the results and of their gradient."""
        return self.given["y"].layout

    @property
    def x_order(self) -> Layout:
        """Order of the gradient of x."""
        return self.given["x"].layout

    def gradients(self, build: Builder, given: OfResults, wanted: Wanted) -> None:
        """Add the step of all gradients, and define those of the parameters. The library always
        computes those of x and of the weights."""
        network, problem, name = self.network, self.problem, build.current.name
        reads: Given = self.given | {"gradient": given.y}
        reads.pop("last_cell", None)
        if given.last_cell is not None:
            reads["last_cell_gradient"] = given.last_cell
        x, rows = self.given["x"], Layout(problem.dtype)
        of_x = wanted.x or build.memory.new(f"{name}{SCRATCH}", x.shape, x.layout)
        elements = network.weight_bytes // ITEM_BYTES[problem.dtype]
        space = build.memory.new(f"{name}.weight_gradients", (elements,), rows)
        writes: Given = {"x_gradient": of_x}
        if wanted.hidden is not None:
            writes["hidden_gradient"] = wanted.hidden
        if wanted.cell is not None:
            writes["cell_gradient"] = wanted.cell
        _run(build, network, reads, writes | {"weight_gradients": space}, backward=True)
        for end, (places, at) in enumerate(zip(network.places, wanted.parameters, strict=True)):
            for parameter, shape in problem.parameters(end // problem.sides).items():
                build.values.define(at[parameter], _part(space, places[parameter], shape))


def forward(
    build: Builder,
    problem: RecurrentNetwork,
    ends: Sequence[Mapping[Parameter, Ref]],
    states: States,
    x: Tensor,
    y: Tensor | None = None,
    last_hidden: Tensor | None = None,
) -> tuple[Tensor, Call]:
    """Add the library's step; return the results. ends: the parameters of each layer and side. y:
    where they are to be stored. Raises `Unsupported` if the library does not have the network."""
    try:
        network = build.engines.recurrent(problem)
    except CudnnError as error:
        raise build.current.unsupported(f"{build.current.node.op}: {error}") from error
    shape = (problem.steps, problem.rows, problem.sides * problem.results)
    reads: Given = {"weights": _weights(build, network, ends), "x": x, "hidden": states.hidden}
    if states.cell is not None:
        reads["cell"] = states.cell
    writes: Given = {
        "y": y or build.memory.new(f"{build.current.name}.y", shape, _order(problem, shape))
    }
    for name, tensor in (("last_hidden", last_hidden), ("last_cell", states.last_cell)):
        if tensor is not None:
            writes[name] = tensor  # type: ignore[index]
    if problem.trains:
        reserve = build.memory.new(
            f"{build.current.name}.reserve", (network.reserve,), Layout("uint8")
        )
        writes["reserve"] = reserve
    _run(build, network, reads, writes)
    return writes["y"], Call(network, reads | writes)


def batch_major(dtype: str, shape: Sequence[int]) -> Layout:
    """[L, N, I] with all time steps of a row side by side."""
    steps, _, width = shape
    return layout_of(dtype, shape, (width, steps * width, 1))


def _order(problem: RecurrentNetwork, shape: Sequence[int]) -> Layout:
    return batch_major(problem.dtype, shape) if problem.batch_major else Layout(problem.dtype)


def _weights(build: Builder, network: Network, ends: Sequence[Mapping[Parameter, Ref]]) -> Tensor:
    """All parameters in the library's one piece of memory: copied there when loading, in training
    in every iteration."""
    layout = Layout(build.types.computed)
    elements = network.weight_bytes // ITEM_BYTES[layout.dtype]
    with build.loading.of(*(ref.name for end in ends for ref in end.values())):
        space = build.memory.new(f"{build.current.name}.weights", (elements,), layout)
        for end, places in zip(ends, network.places, strict=True):
            for name, reference in end.items():
                weight = build.values.wanted(reference, layout)
                build.values.copy(weight, _part(space, places[name], weight.shape))
    return space


def _part(space: Tensor, offset: int, shape: Sequence[int]) -> Tensor:
    return space._replace(shape=tuple(shape), offset=space.offset + offset)


def _run(
    build: Builder, network: Network, reads: Given, writes: Given, backward: bool = False
) -> None:
    engine = NetworkEngine(network, build.engines.gpu, (*reads, *writes), backward)
    operation = f"{STEP}_backward" if backward else STEP
    build.steps.engine(engine, list(reads.values()), list(writes.values()), operation)
