"""Layers in AWQ's layout (``gemm``): 4-bit weights, eight outputs of one input in a word.

qweight: int32 [inputs, outputs / 8]; qzeros: int32 [groups, outputs / 8]; scales: [groups,
outputs]. Starting from the lowest four bits, a word holds outputs 0, 2, 4, 6, 1, 3, 5, 7. A weight
is its scale times the difference between its number and its zero point.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from golow.records.quantization import QuantizedLayer
from golow.workload.quantization.foreign.foreign_layer import ForeignLayer, refused
from golow.workload.quantization.foreign.words import MIDDLE, int4_tensors, numbers_of

ORDER = (0, 2, 4, 6, 1, 3, 5, 7)


def awq_layer(path: str, given: Mapping[str, Tensor]) -> ForeignLayer:
    """Return the layer. Raises `GolowError` for inputs that are not groups of one even size."""
    words, scales = given["qweight"], given["scales"]
    inputs, groups = words.shape[0], scales.shape[0]
    group = inputs // groups
    if group * groups != inputs or group % 2:
        raise refused(path, f"its {inputs} inputs are not {groups} groups of one even size")
    stored = numbers_of(given["qzeros"], ORDER)
    zeros = None if bool((stored == MIDDLE).all()) else stored
    rule = QuantizedLayer(path=path, rule="int4-weights", group=group, zeros=zeros is not None)
    return ForeignLayer(
        rule, lambda: int4_tensors(numbers_of(words, ORDER).T.contiguous(), scales, zeros)
    )
