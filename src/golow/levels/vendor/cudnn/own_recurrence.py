"""Recurrent networks in inference by golow's own kernel, layer by layer: for every layer a product
of all its input's rows, and one launch for all its time steps. cuDNN launches kernels for each
step, or keeps the weights of few sizes on the GPU's multiprocessors."""

from __future__ import annotations

from golow.levels.vendor.cudnn.cublaslt import Problem
from golow.levels.vendor.cudnn.kernels.recurrent import Layer, Slices, slices
from golow.levels.vendor.cudnn.layouts import TENSOR_ALIGNMENT
from golow.levels.vendor.cudnn.recurrent import RecurrentNetwork

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
        arithmetic=problem.arithmetic, transpose_b=True, alignment=TENSOR_ALIGNMENT,
        frozen=True,
    )  # fmt: skip
