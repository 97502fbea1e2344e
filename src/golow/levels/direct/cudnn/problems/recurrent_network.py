"""A recurrent network as cuDNN takes it: its sizes, its parameters, its operands, and how a step of
the plan runs it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from golow.levels.direct.cudnn.problems.element_types import ITEM_BYTES
from golow.levels.direct.cudnn.problems.products import Arithmetic
from golow.lower.operators.recurrence import GATES, Cell
from golow.records.record import Record

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.bindings.device import Gpu
    from golow.levels.direct.cudnn.bindings.rnn_api import Network
    from golow.levels.direct.cudnn.steps.built_plan import Tensor

Parameter = Literal["input_weight", "hidden_weight", "input_bias", "hidden_bias", "projection"]
Operand = Literal[
    "weights", "x", "hidden", "cell", "y", "last_hidden", "last_cell", "reserve",
    "gradient", "last_cell_gradient",
    "x_gradient", "hidden_gradient", "cell_gradient", "weight_gradients",
]  # fmt: skip
"""weights: all parameters in the library's order. reserve: what forward keeps for backward."""


class RecurrentNetwork(Record, frozen=True, kw_only=True):
    """Layers of one kind of cell, in one or two directions (sides).

    steps L, rows N, inputs I, hidden H, results R; R is H without a projection. x is [L, N, I] in
    memory, or [N, L, I] with batch_major, and the results are stored likewise. trains: whether
    forward keeps what backward reads.
    """

    kind: Cell
    layers: int
    sides: int
    steps: int
    rows: int
    inputs: int
    hidden: int
    results: int
    biased: bool
    batch_major: bool
    dtype: str
    arithmetic: Arithmetic
    trains: bool

    @property
    def gates(self) -> int:
        """How many blocks of H rows a weight has."""
        return GATES[self.kind]

    @property
    def projected(self) -> bool:
        """True if a matrix makes the results of the hidden state."""
        return self.results != self.hidden

    def parameters(self, layer: int) -> dict[Parameter, tuple[int, ...]]:
        """Shapes of the parameters of one side of a layer, by name, in PyTorch's order."""
        wide = self.gates * self.hidden
        inputs = self.inputs if layer == 0 else self.sides * self.results
        found: dict[Parameter, tuple[int, ...]] = {
            "input_weight": (wide, inputs),
            "hidden_weight": (wide, self.results),
        }
        if self.biased:
            found |= {"input_bias": (wide,), "hidden_bias": (wide,)}
        if self.projected:
            found["projection"] = (self.results, self.hidden)
        return found

    @property
    def operand_bytes(self) -> dict[Operand, int]:
        """Sizes of the operands whose size does not depend on the library, in bytes."""
        item, ends = ITEM_BYTES[self.dtype], self.layers * self.sides
        x = self.steps * self.rows * self.inputs * item
        y = self.steps * self.rows * self.sides * self.results * item
        hidden, cell = (ends * self.rows * width * item for width in (self.results, self.hidden))
        sizes: dict[Operand, int] = {
            "x": x,
            "y": y,
            "hidden": hidden,
            "x_gradient": x,
            "gradient": y,
        }
        return sizes | ({"cell": cell} if self.kind == "lstm" else {})


class States(NamedTuple):
    """The first states of all layers and sides, one after the other; of an LSTM also the cell, and
    last cell state, if used."""

    hidden: Tensor
    cell: Tensor | None
    last_cell: Tensor | None


class OfResults(NamedTuple):
    """Gradients of the results, and of the last cell state, if used."""

    y: Tensor
    last_cell: Tensor | None


class Wanted(NamedTuple):
    """Memory for the gradients of the first states [ends, N, H] and of x, each only if it is read;
    and which of the node's results are the gradients of each end's parameters."""

    hidden: Tensor | None
    cell: Tensor | None
    x: Tensor | None
    parameters: Sequence[Mapping[Parameter, int]]


class NetworkEngine:
    """A network in one direction of training, as a step of the plan runs it. operands: those that
    are there, in the order of the step's tensors."""

    kind = "cudnn"

    def __init__(
        self, network: Network, gpu: Gpu, operands: Sequence[Operand], backward: bool = False
    ) -> None:
        self._network, self._gpu, self._operands = network, gpu, tuple(operands)
        self._backward = backward
        self.workspace = network.workspace
        self.name = f"cudnn rnn {network.algorithm}"

    def run(self, addresses: Sequence[int], workspace: int, side: bool = False) -> None:
        """Enqueue it on the main stream."""
        given = dict(zip(self._operands, addresses, strict=True))
        if not self._backward:
            self._network.forward(given, workspace)
            return
        # The library adds gradients of weights to what is there.
        self._gpu.fill(given["weight_gradients"], self._network.weight_bytes)
        self._network.backward(given, workspace)

    def encode(self) -> bytes:
        """Return the algorithm."""
        return self._network.algorithm.encode()
