"""How long golow's own kernels take for a recurrent network, as `recurrent_engines` times the
library's: on temporary memory, forward, and backward if it trains."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from golow.levels.direct.cudnn.engines.golow_recurrence import (
    Shares,
    gradient_products,
    input_product,
    layer_of,
    number_of,
)
from golow.levels.direct.cudnn.engines.recurrent_engines import GRAPHS, REPETITIONS
from golow.levels.direct.cudnn.problems.element_types import ITEM_BYTES
from golow.levels.direct.cudnn.problems.gemm import Problem
from golow.levels.direct.cudnn.problems.recurrent_network import RecurrentNetwork
from golow.levels.direct.cudnn.shared_kernels.recurrent import recurrent
from golow.levels.direct.cudnn.shared_kernels.recurrent_backward import recurrent_backward, words
from golow.levels.nvidia.memory import Region

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.engines.engines import Engines


def own_time_of(problem: RecurrentNetwork, shares: Shares, engines: Engines) -> float:
    """Nanoseconds of the network; infinity if the library lacks one of its products. The sums for
    biases, a short launch for each layer, are not timed."""
    products = [(product, engines.choose(product)) for product in _products(problem)]
    found = [(product, engine) for product, engine in products if engine is not None]
    if len(found) < len(products):
        return float("inf")
    gpu, layer, memory = engines.gpu, layer_of(problem), _Memory(problem)
    forward, backward = memory.forward(), memory.backward() if problem.trains else []
    sizes = zip(*(product.operand_bytes for product, _ in found), strict=True)
    factors = [Region(max(of_all)) for of_all in sizes]
    workspace = Region(max(engine.workspace for _, engine in found))

    def run() -> None:
        for _ in range(REPETITIONS):
            for room in memory.rooms:
                gpu.fill(room.address, room.size)
            for _, engine in found:
                engine.run([factor.address for factor in factors], workspace.address)
            for index in range(problem.layers):
                number = number_of(problem, index)
                gpu.launch(recurrent(layer, shares.forward, number), forward)
                if shares.backward is not None:
                    gpu.launch(recurrent_backward(layer, shares.backward, number), backward)

    run()
    gpu.synchronize()
    return gpu.time(run, GRAPHS) / REPETITIONS


def _products(problem: RecurrentNetwork) -> list[Problem]:
    found = [input_product(problem, index) for index in range(problem.layers)]
    for index in range(problem.layers if problem.trains else 0):
        products = gradient_products(problem, index)
        found += [products.x, *[products.input_weight, products.hidden_weight] * problem.sides]
    return found


class _Memory:
    """Temporary memory, which all layers share, for both kernels. rooms: for their words."""

    def __init__(self, problem: RecurrentNetwork) -> None:
        layer, item = layer_of(problem), ITEM_BYTES[problem.dtype]
        self._problem, units = problem, problem.sides * problem.hidden
        gates = problem.gates * units
        lines, weight = problem.steps * problem.rows, gates * problem.hidden
        self._inputs, self._weight = Region(4 * lines * gates), Region(item * weight)
        self._bias, self._state = Region(4 * gates), Region(item * problem.rows * units)
        self._y = Region(item * layer.y_elements)
        self._kept, self._of_y = Region(4 * lines * units), Region(item * lines * units)
        self._of_gates = Region(item * lines * gates)
        self.rooms = [Region(8 * layer.words), Region(8 * words(layer))][: 1 + problem.trains]

    def forward(self) -> list[int]:
        """Addresses of the operands of `recurrent`."""
        given = [self._inputs, self._weight, self._bias, self._bias, self._state, self._state]
        kept = [self._inputs, self._kept] if self._problem.trains else [None, None]
        return _addresses([*given, self._y, *kept, None, None, self.rooms[0]])

    def backward(self) -> list[int]:
        """Addresses of the operands of `recurrent_backward`."""
        given = [self._of_y, self._inputs, self._kept, self._y, self._weight, self._state, None]
        return _addresses([*given, self._of_gates, self._of_gates, None, None, self.rooms[1]])


def _addresses(regions: Sequence[Region | None]) -> list[int]:
    return [0 if region is None else region.address for region in regions]
