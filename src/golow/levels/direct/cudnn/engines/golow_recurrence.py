"""Recurrent networks by golow's own kernels, layer by layer: for every layer a product of all its
input's rows, and one launch for all its time steps; in training another one for its gradients, and
products of these. cuDNN launches kernels for each step, or keeps the weights of few sizes on the
GPU's multiprocessors."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

from golow.levels.direct.cudnn.problems.element_types import ITEM_BYTES
from golow.levels.direct.cudnn.problems.gemm import Problem, Strides
from golow.levels.direct.cudnn.problems.layouts import TENSOR_ALIGNMENT
from golow.levels.direct.cudnn.problems.recurrent_network import RecurrentNetwork
from golow.levels.direct.cudnn.shared_kernels.recurrent import Layer, Slices, slices
from golow.levels.direct.cudnn.shared_kernels.recurrent_backward import Columns, columns

FIRST_NUMBER = 1  # of a state or a gradient, in memory of zeros


class Shares(NamedTuple):
    """How the blocks share a layer's units: forward, and in training backward."""

    forward: Slices
    backward: Columns | None


def layer_of(problem: RecurrentNetwork) -> Layer:
    """Return any of its layers: they differ only in the width of their input."""
    return Layer(
        problem.kind, problem.sides, problem.steps, problem.rows, problem.hidden, problem.dtype,
        problem.batch_major and not problem.trains, problem.trains,
    )  # fmt: skip


def takes(problem: RecurrentNetwork, multiprocessors: int) -> Shares | None:
    """Return how the blocks share a layer's units; None if there is no kernel for the network."""
    if problem.projected or problem.arithmetic == "ieee":
        return None
    layer = layer_of(problem)
    forward = slices(layer, multiprocessors)
    backward = columns(layer, multiprocessors) if problem.trains else None
    if forward is None or (problem.trains and backward is None):
        return None
    return Shares(forward, backward)


def number_of(problem: RecurrentNetwork, layer: int) -> int:
    """The number of the first state of a layer: those of all its steps are the ones after it."""
    return FIRST_NUMBER + layer * problem.steps


def input_product(problem: RecurrentNetwork, layer: int) -> Problem:
    """Product of a layer's input for its gates, in float32 and without biases."""
    wide, inputs = problem.parameters(layer)["input_weight"]
    return Problem(
        m=problem.steps * problem.rows, n=problem.sides * wide, k=inputs, dtype=problem.dtype,
        arithmetic=problem.arithmetic, transpose_b=True, alignment=TENSOR_ALIGNMENT,
        frozen=not problem.trains,
    )  # fmt: skip


class GradientProducts(NamedTuple):
    """A layer's products of the gradients of its gates: with its input weight, for all sides at
    once; and of each side with its input, and with the states before each step."""

    x: Problem
    input_weight: Problem
    hidden_weight: Problem


def gradient_products(problem: RecurrentNetwork, layer: int) -> GradientProducts:
    """Return the products of a layer whose kernels run in training."""
    wide, inputs = problem.parameters(layer)["input_weight"]
    lines, sides, item = problem.steps * problem.rows, problem.sides, ITEM_BYTES[problem.dtype]
    x = Problem(
        m=lines, n=inputs, k=sides * wide, dtype=problem.dtype, result=problem.dtype,
        arithmetic=problem.arithmetic, alignment=TENSOR_ALIGNMENT,
    )  # fmt: skip
    input_weight = replace(
        x, m=wide, k=lines, transpose_a=True, a=Strides(row=sides * wide),
        alignment=_alignment(wide * item),
    )  # fmt: skip
    hidden_weight = replace(
        input_weight, n=problem.hidden, b=Strides(row=sides * problem.hidden),
        # The states of a side begin after the other side's, a step before y's first or after it.
        alignment=_alignment(wide * item, problem.hidden * item),
    )  # fmt: skip
    return GradientProducts(x, input_weight, hidden_weight)


def _alignment(*offsets: int) -> int:
    """Alignment of addresses that many bytes after aligned ones."""
    return math.gcd(TENSOR_ALIGNMENT, *offsets)
