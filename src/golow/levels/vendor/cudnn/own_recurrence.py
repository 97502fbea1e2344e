"""Recurrent networks in inference by golow's own kernel, layer by layer: for every layer a product
of all its input's rows, and one launch for all its time steps. cuDNN launches kernels for each
step, or keeps the weights of few sizes on the GPU's multiprocessors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from golow.levels.nvidia.memory import Region
from golow.levels.vendor.cudnn.cublaslt import Problem
from golow.levels.vendor.cudnn.kernels import ITEM_BYTES
from golow.levels.vendor.cudnn.kernels.recurrent import Layer, Slices, recurrent, slices
from golow.levels.vendor.cudnn.recurrent import RecurrentNetwork

if TYPE_CHECKING:
    from golow.levels.vendor.cudnn.engines import Engines

GRAPHS = 4  # how often it runs for its time; the fastest counts
FIRST_NUMBER = 1  # of a state, in memory of zeros


def layer_of(problem: RecurrentNetwork) -> Layer:
    """Return any of its layers: they differ only in the width of their input."""
    return Layer(
        problem.kind, problem.sides, problem.steps, problem.rows, problem.hidden, problem.dtype,
        problem.batch_major,
    )  # fmt: skip


def takes(problem: RecurrentNetwork, multiprocessors: int) -> Slices | None:
    """Return how the blocks share a layer's units; None if there is no kernel for the network."""
    if problem.trains or problem.projected or problem.arithmetic == "ieee":
        return None
    return slices(layer_of(problem), multiprocessors)


def number_of(problem: RecurrentNetwork, layer: int) -> int:
    """The number of the first state of a layer: those of all its steps are the ones behind it."""
    return FIRST_NUMBER + layer * problem.steps


def input_product(problem: RecurrentNetwork, layer: int) -> Problem:
    """What a layer's input gives to its gates, in float32 and without biases."""
    wide, inputs = problem.parameters(layer)["input_weight"]
    return Problem(
        m=problem.steps * problem.rows, n=problem.sides * wide, k=inputs, dtype=problem.dtype,
        arithmetic=problem.arithmetic, transpose_b=True, alignment=ITEM_BYTES[problem.dtype],
        frozen=True,
    )  # fmt: skip


def time_of(problem: RecurrentNetwork, found: Slices, engines: Engines) -> float:
    """Nanoseconds of the network on temporary memory; infinity if the library lacks a product."""
    gpu, layer = engines.gpu, layer_of(problem)
    products = [engines.choose(input_product(problem, k)) for k in range(problem.layers)]
    if None in products:
        return float("inf")
    item, width = ITEM_BYTES[problem.dtype], max(problem.inputs, problem.sides * problem.hidden)
    lines, wide = problem.steps * problem.rows, problem.sides * problem.gates * problem.hidden
    x, inputs = Region(lines * width * item), Region(4 * lines * wide)
    weight, bias = Region(wide * width * item), Region(4 * wide)
    states = Region(problem.sides * problem.rows * problem.hidden * item)
    words = Region(8 * layer.words)
    workspace = Region(max(product.workspace for product in products if product is not None))
    addresses = [region.address for region in (inputs, weight, bias, bias, states, states, x)]

    def run() -> None:
        gpu.fill(words.address, words.size)
        for index, product in enumerate(products):
            if product is not None:
                product.run([x.address, weight.address, inputs.address], workspace.address)
            kernel = recurrent(layer, found, number_of(problem, index))
            gpu.launch(kernel, [*addresses, 0, 0, words.address])

    run()
    gpu.synchronize()
    return gpu.time(run, GRAPHS)
