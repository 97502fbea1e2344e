"""Library computations of a project: plans of cuDNN and products of cuBLASLt."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np

from golow.levels.direct.cudnn.bindings.cublaslt import Algorithm, epilogue
from golow.levels.direct.cudnn.bindings.stored_plan import Scalar, stored_plan
from golow.levels.direct.cudnn.problems.gemm import Problem
from golow.levels.direct.emit.constants import Constants
from golow.levels.direct.emit.spelling import listed, single, text

HEADER = """// The computations of the libraries, as chosen on the machine that wrote the program.
#pragma once

#include "support/libraries.h"

namespace golow {

"""
MATRIX_TYPES = {"float32": "CUDA_R_32F", "float16": "CUDA_R_16F", "bfloat16": "CUDA_R_16BF"}
ARITHMETIC = {
    "ieee": "CUBLAS_COMPUTE_32F", "tf32": "CUBLAS_COMPUTE_32F_FAST_TF32",
    "half": "CUBLAS_COMPUTE_32F",
}  # fmt: skip
TURNED = {False: "CUBLAS_OP_N", True: "CUBLAS_OP_T"}


class LibraryCalls:
    """Numbers plans and products, equal ones once. cudnn, cublas: whether there are any."""

    def __init__(self, constants: Constants) -> None:
        self._constants = constants
        # Name and note, by kind and fields.
        self._known: dict[tuple[str, str], tuple[str, str]] = {}
        self.cudnn = self.cublas = False

    def plan(self, data: bytes, operands: Sequence[int], note: str) -> str:
        """The name of a plan that cuDNN's front end has stored. operands: identifiers, in the order
        of the step's values. note: a line to read. Raises `Unsupported` as `stored_plan`."""
        stored = stored_plan(data)
        known = {*operands, *(scalar.identifier for scalar in stored.scalars)}
        if not known.issuperset(stored.operands):
            raise ValueError(f"cuDNN's plan reads {stored.operands}, and a step gives {known}")
        code = np.frombuffer(stored.plan, np.uint8)
        name = self._constants.add(f"plan_{len(self._known)}", code)
        read = (item if item in stored.operands else 0 for item in operands)
        given = (s for s in stored.scalars if s.identifier in stored.operands)
        fields = text(name), listed(read), listed(map(_scalar, given)), stored.workspace
        self.cudnn = True
        return self._named("LibraryPlan", listed(fields), note)

    def product(self, problem: Problem, algorithm: Algorithm) -> str:
        """The name of a product with one of the library's algorithms."""
        self.cublas = True
        matrices = problem.matrices
        types = {"a": problem.dtype, "b": problem.dtype, "c": problem.result, "d": problem.result}
        # The library's matrices are column-major: it computes the transposed product.
        described = (
            listed(
                (MATRIX_TYPES[types[name]], matrix.columns, matrix.rows, matrix.row, matrix.batch)
            )
            for name, matrix in ((name, matrices[name]) for name in "bacd")
        )
        words = (f"{word:#x}u" for word in struct.unpack("<8Q", algorithm.data))
        fields = (
            ARITHMETIC[problem.arithmetic],
            TURNED[problem.transpose_b],
            TURNED[problem.transpose_a],
            f"static_cast<cublasLtEpilogue_t>({epilogue(problem)})",
            single(problem.factor),
            single(float(problem.residual)),
            problem.batch,
            listed(described),
            listed(words),
            algorithm.workspace,
        )
        sizes = f"{problem.m} x {problem.n} x {problem.k}, {problem.dtype}, {problem.arithmetic}"
        return self._named("Product", listed(fields), sizes)

    def header(self) -> str:
        """The file that defines them."""
        lines = (
            f"/// {note}\ninline const {kind} {name} = {fields};\n"
            for (kind, fields), (name, note) in self._known.items()
        )
        return HEADER + "".join(lines) + "\n}  // namespace golow\n"

    def _named(self, kind: str, fields: str, note: str) -> str:
        return self._known.setdefault((kind, fields), (f"engine_{len(self._known)}", note))[0]


def _scalar(scalar: Scalar) -> str:
    if scalar.dtype == "float32":
        value = single(float(np.float32(scalar.value)))
    elif scalar.dtype in ("int32", "int64"):
        value = f"std::int32_t{{{int(scalar.value)}}}"  # as the front end restores both
    elif scalar.dtype == "float16":
        value = f"std::uint16_t{{{int(np.float16(scalar.value).view(np.uint16))}u}}"
    else:
        value = f"std::uint16_t{{{np.float32(scalar.value).view(np.uint32) >> 16}u}}"
    return listed((scalar.identifier, value))
