"""Plans of `cudnn` whose matrix products run on this processor, too: NumPy computes them in float64
from what lies in memory, as cuBLASLt is told where it is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cublaslt_cases import places, read, stored
from cuda_on_cpu import Machine
from golow.levels.vendor.cudnn.cublaslt import Problem
from golow.levels.vendor.cudnn.kernels import ITEM_BYTES
from golow.levels.vendor.cudnn.layouts import NUMPY_TYPES
from golow.levels.vendor.cudnn.steps import Call, EngineCall, Tensor
from test_cudnn_plans import Asked, AskedEngines


class Known(Asked):
    """Stands for an engine, and knows its operation."""

    def __init__(self, operation: Any) -> None:
        self.operation = operation


class KnownEngines(AskedEngines):
    """Engines that know their operations."""

    def choose(self, operation: Any) -> Known:
        super().choose(operation)
        return Known(operation)


class ProductMachine(Machine):
    """Runs products of matrices. Gaps hold NaN, so that a product that reads one gives NaN."""

    def call(self, call: Call) -> bool:
        engine = call.engine if isinstance(call, EngineCall) else None
        if not isinstance(engine, Known) or not isinstance(engine.operation, Problem):
            return super().call(call)
        assert isinstance(call, EngineCall)
        multiply(engine.operation, [self._elements(tensor) for tensor in call.arguments])
        for tensor in call.arguments:
            assert tensor.offset % engine.operation.alignment == 0
        return True

    def _elements(self, tensor: Tensor) -> np.ndarray:
        memory, item = self.seen(tensor), ITEM_BYTES[tensor.dtype]
        return memory[: len(memory) // item * item].view(NUMPY_TYPES[tensor.dtype])


def multiply(problem: Problem, memory: Sequence[np.ndarray]) -> None:
    """Compute the product. memory: of each operand, in the problem's order, from its first element
    on; bfloat16 as its bits."""
    a, b, *others, d = memory
    rest, batch, matrices = iter(others), problem.batch, problem.matrices
    bias = next(rest) if problem.bias else None
    added = next(rest) if problem.residual else None

    def matrix(name: str, held: np.ndarray, turned: bool = False) -> np.ndarray:
        dtype = problem.dtype if name in "ab" else problem.result
        found = read(held[places(matrices[name], batch)], dtype)
        return found.swapaxes(1, 2) if turned else found

    product = matrix("a", a, problem.transpose_a) @ matrix("b", b, problem.transpose_b)
    result = problem.factor * product
    if bias is not None:
        result = result + read(bias[: problem.n], problem.result)
    if added is not None:
        result = result + matrix("c", added)
    if problem.relu:
        result = np.maximum(result, 0)
    d[places(matrices["d"], batch)] = stored(result, problem.result)
