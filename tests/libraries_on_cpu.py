"""Products of matrices and attention of `cudnn` without a GPU, in float32: PyTorch stands in for
the libraries, on the memory that the plan gives them, with the strides that they are told."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from cuda_on_cpu import Machine
from golow.levels.vendor.cudnn.cublaslt import Matrix, Problem
from golow.levels.vendor.cudnn.products import AttentionProblem, Convolution, Placed
from golow.levels.vendor.cudnn.steps import Call, EngineCall
from golow.levels.vendor.cudnn.steps import Tensor as Lying
from golow.lower.operators.attention import Attention, AttentionBackward
from test_cudnn_plans import Asked, AskedEngines


class Solving(Asked):
    """An engine that knows what it computes."""

    def __init__(self, operation: Convolution | Problem | AttentionProblem) -> None:
        self.operation = operation


class SolvingEngines(AskedEngines):
    """Engines for a `Multiplying` machine."""

    def choose(self, operation: Convolution | Problem | AttentionProblem) -> Solving:
        super().choose(operation)  # type: ignore[arg-type]
        return Solving(operation)


class Multiplying(Machine):
    """Also runs products and attention."""

    def call(self, call: Call) -> bool:
        operation = getattr(getattr(call, "engine", None), "operation", None)
        if isinstance(call, EngineCall) and isinstance(operation, Problem):
            self._multiply(operation, list(call.arguments))
            return True
        if isinstance(call, EngineCall) and isinstance(operation, AttentionProblem):
            self._attend(operation, list(call.arguments))
            return True
        return super().call(call)

    def _at(self, tensor: Lying, shape: Sequence[int], strides: Sequence[int]) -> Tensor:
        """Memory from the tensor's first element on."""
        memory = self.seen(tensor)
        flat = torch.from_numpy(memory[: len(memory) // 4 * 4]).view(torch.float32)
        return flat.as_strided(tuple(shape), tuple(strides))

    def _matrix(self, tensor: Lying, matrix: Matrix, batch: int) -> Tensor:
        shape, strides = (batch, matrix.rows, matrix.columns), (matrix.batch, matrix.row, 1)
        return self._at(tensor, shape, strides)

    def _multiply(self, problem: Problem, tensors: list[Lying]) -> None:
        stored = problem.matrices
        a = self._matrix(tensors.pop(0), stored["a"], problem.batch)
        b = self._matrix(tensors.pop(0), stored["b"], problem.batch)
        a = a.transpose(1, 2) if problem.transpose_a else a
        result = problem.factor * (a @ (b.transpose(1, 2) if problem.transpose_b else b))
        if problem.bias_gradient:
            self._at(tensors.pop(0), (problem.m,), (1,))[...] = a.sum((0, 2))
        if problem.bias:
            result += self._at(tensors.pop(0), (problem.n,), (1,))
        if problem.residual:
            result += self._matrix(tensors.pop(0), stored["c"], problem.batch)
        [made] = tensors
        self._matrix(made, stored["d"], problem.batch)[...] = (
            result.relu() if problem.relu else result
        )

    def _attend(self, problem: AttentionProblem, tensors: list[Lying]) -> None:
        def taken(*places: Placed | None) -> list[Tensor | None]:
            return [place and self._at(tensors.pop(0), *place) for place in places]

        query, key, value, added = taken(problem.query, problem.key, problem.value, problem.added)
        given = {
            "query": query, "key": key, "value": value, "added": added,
            "causal": problem.causal, "scale": problem.scale,
        }  # fmt: skip
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
