"""Sizes of matrices that tensor cores do not take well, from the shapes of operators.

NVIDIA's libraries want the sizes of a product in multiples of 16 bytes: 8 elements in half
precision, 4 in TF32.
https://docs.nvidia.com/deeplearning/performance/dl-performance-matrix-multiplication/
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from golow.programs.profiling.kernels import KernelTime
from golow.programs.profiling.operators import OperatorTime
from golow.records.workload import Precision

HALF_MULTIPLE, TF32_MULTIPLE = 8, 4

WEIGHTS = {
    "aten::cudnn_convolution": 1,
    "aten::convolution_backward": 2,
    "aten::mm": 1,
    "aten::addmm": 2,
    "aten::linear": 1,
}
"""Which input of an operator is the weight, or the right factor. Its first two sizes are channels,
or columns and rows."""


def multiple(precision: Precision) -> int:
    """The number of elements of which the sizes have to be multiples."""
    return HALF_MULTIPLE if precision in ("bf16", "fp16") else TF32_MULTIPLE


def unaligned_sizes(
    operators: Sequence[OperatorTime],
    kernels: Sequence[KernelTime],
    least: float,
    precision: Precision,
) -> tuple[int, ...]:
    """The sizes that are not multiples, of operators of which all calls have such a size.

    Empty if kernels of these operators take less than the least seconds, or if operators are not
    told apart by their shapes.
    """
    found: dict[str, set[int]] = {}
    for name in {kernel.operator for kernel in kernels} & set(WEIGHTS):
        sizes = [
            {size for size in _weight(item) if size % multiple(precision)}
            for item in operators
            if item.name == name and item.shapes
        ]
        if sizes and all(sizes):
            found[name] = set().union(*sizes)
    explained = sum(kernel.seconds for kernel in kernels if kernel.operator in found)
    return tuple(sorted(set().union(*found.values()))) if found and explained > least else ()


def _weight(item: OperatorTime) -> tuple[int, ...]:
    """The first two sizes of the weight; empty if the shapes do not report it."""
    try:
        shape = json.loads(item.shapes)[WEIGHTS[item.name]][:2]
    except (ValueError, LookupError, TypeError):
        return ()
    return tuple(size for size in shape if isinstance(size, int))
