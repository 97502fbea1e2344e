"""Products for cuBLASLt with their operands in memory, and what NumPy makes of them in float64."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pytest

from golow.levels.direct.cudnn.bindings.cublaslt import library
from golow.levels.direct.cudnn.problems.gemm import Matrix, Problem
from golow.levels.direct.cudnn.problems.layouts import NUMPY_TYPES
from golow.lower.operators.quantize import E4M3

KINDS = [  # dtype, result, arithmetic
    ("float32", "float32", "ieee"),
    ("float32", "float32", "tf32"),
    ("bfloat16", "bfloat16", "half"),
    ("bfloat16", "float32", "half"),
    ("float16", "float16", "half"),
    ("float16", "float32", "half"),
]
NARROW = [  # dtype, result, scaled
    ("int8", "int32", False),
    (E4M3, "float32", False),
    (E4M3, "bfloat16", False),
    (E4M3, "float32", True),
    (E4M3, "bfloat16", True),
    (E4M3, "float16", True),
]
TRANSPOSES = list(itertools.product((False, True), repeat=2))
LIMIT = 32 << 20


def require_library() -> None:
    """Skip the test where the library is not there; a GPU need not be."""
    try:
        library()
    except OSError as error:
        pytest.skip(str(error))


def places(matrix: Matrix, batch: int) -> np.ndarray:
    """Where in memory the elements [batch, row, column] are."""
    steps = (matrix.batch, matrix.row, 1)
    sizes = (batch, matrix.rows, matrix.columns)
    return sum(
        (np.arange(size) * step).reshape([-1 if i == axis else 1 for i in range(3)])
        for axis, (size, step) in enumerate(zip(sizes, steps, strict=True))
    )


def stored(values: np.ndarray, dtype: str) -> np.ndarray:
    """Rounded to the storage type; whole numbers of 8 bits are up to about 100."""
    if dtype == "int8":
        values = np.clip(np.rint(32 * values), -127, 127)
    return values.astype(NUMPY_TYPES[dtype])


@dataclass
class Case:
    """A problem with its operands: `memory` as it is stored, padding included."""

    problem: Problem
    memory: dict[str, np.ndarray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        problem, draw = self.problem, np.random.default_rng(7).standard_normal
        for name, matrix in problem.matrices.items():
            size = matrix.extent(problem.batch)
            self.memory[name] = stored(draw(size), self.dtype(name))
        self.memory["bias"] = stored(draw(max(problem.m, problem.n)), problem.result)
        if problem.scaled:
            for name, size in (("columns", problem.n), ("rows", problem.m)):
                self.memory[name] = np.exp(draw(size) / 4).astype(np.float32)
        whole = problem.result == "int32"
        self.memory["d"][:] = -(2**31) if whole else np.nan  # never to be read

    def dtype(self, name: str) -> str:
        return self.problem.dtype if name in ("a", "b") else self.problem.result

    def matrix(self, name: str) -> np.ndarray:
        """As stored, [batch, row, column] in float64."""
        where = places(self.problem.matrices[name], self.problem.batch)
        return self.memory[name].astype(np.float64)[where]

    def factors(self) -> tuple[np.ndarray, np.ndarray]:
        """op(A) and op(B)."""
        a, b = self.matrix("a"), self.matrix("b")
        a = a.swapaxes(1, 2) if self.problem.transpose_a else a
        return a, b.swapaxes(1, 2) if self.problem.transpose_b else b

    def added(self) -> np.ndarray | float:
        """C + bias."""
        problem, total = self.problem, 0.0
        if problem.residual:
            total = total + self.matrix("c")
        if problem.bias:
            total = total + self.memory["bias"][: problem.n].astype(np.float64)
        return total

    def scaled(self, sums: np.ndarray) -> np.ndarray:
        """The sums, times the numbers of columns and rows."""
        if not self.problem.scaled:
            return sums
        columns, rows = (self.memory[name].astype(np.float64) for name in ("columns", "rows"))
        return sums * columns * rows[:, None]

    @cached_property
    def expected(self) -> np.ndarray:
        a, b = self.factors()
        result = self.problem.factor * self.scaled(a @ b) + self.added()
        if self.problem.gelu:
            inner = np.sqrt(2 / np.pi) * (result + 0.044715 * result**3)
            return result * (1 + np.tanh(inner)) / 2
        return np.maximum(result, 0) if self.problem.relu else result

    @cached_property
    def tolerance(self) -> np.ndarray:
        """What the roundings of the arithmetic can come to, element by element. GELU is steeper
        than 1, and its tanh rounds, too."""
        if self.problem.result == "int32":
            return np.full(self.expected.shape, 0.5)
        a, b = self.factors()
        # Sums of e4m3 on tensor cores have 14 bits until they are added to others in float32.
        factors = {"ieee": 0.0, "tf32": 2.0**-9, "half": 0.0, "quarter": 2.0**-12}
        factor = factors[self.problem.arithmetic]
        # Tensor cores cut off what they shift out of a sum, which costs up to four times as much.
        step = 2.0**-24 if self.problem.arithmetic == "ieee" else 2.0**-22
        product = abs(self.problem.factor) * self.scaled(np.abs(a) @ np.abs(b))
        scale = product + np.abs(self.added())
        last = {"float32": 2.0**-23, "bfloat16": 2.0**-7, "float16": 2.0**-10}
        # Some kernels round the product to the result's type before they add to it.
        terms = np.abs(self.expected) + np.abs(self.problem.factor * self.scaled(a @ b))
        terms = terms + (np.abs(self.matrix("c")) if self.problem.residual else 0)
        roundings = last[self.problem.result] * terms
        steep = 3 if self.problem.gelu else 1
        return steep * (scale * (factor + step * (self.problem.k + 4)) + roundings) + 1e-6
