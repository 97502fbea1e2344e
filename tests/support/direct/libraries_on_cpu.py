"""Plans of `cudnn` whose matrix products and attention run on this processor, too: NumPy and
PyTorch stand in for the libraries, on the memory that the plan gives them, with the strides that
they are told."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from golow.levels.direct.cudnn.problems.element_types import ITEM_BYTES
from golow.levels.direct.cudnn.problems.gemm import Problem
from golow.levels.direct.cudnn.problems.layouts import NUMPY_TYPES
from golow.levels.direct.cudnn.problems.products import AttentionProblem, Placed
from golow.levels.direct.cudnn.steps.built_plan import Call, EngineCall
from golow.levels.direct.cudnn.steps.built_plan import Tensor as Lying
from golow.lower.operators.attention import Attention, AttentionBackward
from support.direct.cublaslt_cases import places, stored
from support.direct.cuda_on_cpu import Machine
from support.direct.cudnn_plans import Asked, AskedEngines


class Known(Asked):
    """Stands for an engine, and knows its operation."""

    def __init__(self, operation: Any) -> None:
        self.operation = operation


class KnownEngines(AskedEngines):
    """Engines that know their operations."""

    def choose(self, operation: Any) -> Known:
        super().choose(operation)
        return Known(operation)


class LibrariesMachine(Machine):
    """Runs products of matrices in float64, and attention of float32. Gaps hold NaN, so that a
    product that reads one gives NaN."""

    def call(self, call: Call) -> bool:
        engine = call.engine if isinstance(call, EngineCall) else None
        operation = engine.operation if isinstance(engine, Known) else None
        if isinstance(call, EngineCall) and isinstance(operation, Problem):
            assert all(tensor.offset % operation.alignment == 0 for tensor in call.arguments)
            multiply(operation, [self._elements(tensor) for tensor in call.arguments])
            return True
        if isinstance(call, EngineCall) and isinstance(operation, AttentionProblem):
            self._attend(operation, list(call.arguments))
            return True
        return super().call(call)

    def _elements(self, tensor: Lying) -> np.ndarray:
        memory, item = self.seen(tensor), ITEM_BYTES[tensor.dtype]
        return memory[: len(memory) // item * item].view(NUMPY_TYPES[tensor.dtype])

    def _at(self, tensor: Lying, shape: Sequence[int], strides: Sequence[int]) -> Tensor:
        """Memory from the tensor's first element on."""
        flat = torch.from_numpy(self._elements(tensor))
        return flat.as_strided(tuple(shape), tuple(strides))

    def _attend(self, problem: AttentionProblem, tensors: list[Lying]) -> None:
        def taken(*places: Placed | None) -> list[Tensor | None]:
            return [place and self._at(tensors.pop(0), *place) for place in places]

        query, key, value, added = taken(problem.query, problem.key, problem.value, problem.added)
        given = {
            "query": query, "key": key, "value": value, "added": added,
            "causal": problem.causal, "scale": problem.scale,
        }  # fmt: skip
        if problem.kept:
            given |= self._dropped(problem, tensors.pop(0), tensors.pop(0))
        rows = Placed(problem.rows.shape[:3], problem.rows.strides[:3])
        if problem.gradient is None:
            found = Attention.meaning(**given)
            wanted = taken(problem.output, rows if problem.keeps else None)
        else:
            output, gradient, logarithm = taken(problem.output, problem.gradient, rows)
            given |= {"output": output, "gradient": gradient, "logarithm": logarithm}
            found = AttentionBackward.meaning(**given)
            wanted = taken(problem.of_query, problem.of_key, problem.of_value)
        for place, tensor in zip(wanted, found, strict=True):
            if place is not None:
                place[...] = tensor

    def _dropped(self, problem: AttentionProblem, kept: Lying, probability: Lying) -> Any:
        size = (*problem.query.shape[:3], problem.key.shape[2])
        which = torch.from_numpy(self.seen(kept)[: math.prod(size)].view(np.bool_).reshape(size))
        return {"kept": which, "probability": float(self.read(probability))}


def multiply(problem: Problem, memory: Sequence[np.ndarray]) -> None:
    """Compute the product. memory: of each operand, in the problem's order, from its first element
    on."""
    a, b, *others, d = memory
    rest, batch, matrices = iter(others), problem.batch, problem.matrices
    scales = (next(rest)[: problem.n], next(rest)[: problem.m, None]) if problem.scaled else ()
    bias = next(rest) if problem.bias else None
    added = next(rest) if problem.residual else None

    def matrix(name: str, held: np.ndarray, turned: bool = False) -> np.ndarray:
        found = held[places(matrices[name], batch)].astype(np.float64)
        return found.swapaxes(1, 2) if turned else found

    product = matrix("a", a, problem.transpose_a) @ matrix("b", b, problem.transpose_b)
    result = problem.factor * product
    for scale in scales:
        result = result * scale.astype(np.float64)
    if bias is not None:
        result = result + bias[: problem.n].astype(np.float64)
    if added is not None:
        result = result + matrix("c", added)
    if problem.relu:
        result = np.maximum(result, 0)
    if problem.gelu:
        result *= (1 + np.tanh(np.sqrt(2 / np.pi) * (result + 0.044715 * result**3))) / 2
    d[places(matrices["d"], batch)] = stored(result, problem.result)
