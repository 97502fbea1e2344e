"""Layers in GPTQ's layout: 4-bit weights, eight inputs of one output in a word.

qweight: int32 [inputs / 8, outputs], the first input in the lowest four bits. scales: [groups,
outputs]. qzeros: int32 [groups, outputs / 8], the zero points minus one, with wrap-around; in the
later format, ``gptq_v2``, the zero points. g_idx: [inputs], the group of each input. A weight is
its scale times the difference between its number and its zero point.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from golow.records.quantization import QuantizedLayer
from golow.workload.quantization.foreign.foreign_layer import ForeignLayer, refused
from golow.workload.quantization.foreign.words import MIDDLE, int4_tensors, numbers_of

LATER = "gptq_v2"


def gptq_layer(path: str, given: Mapping[str, Tensor], form: str) -> ForeignLayer:
    """Return the layer. form: the format that the checkpoint's configuration states, if any.
    Raises `GolowError` for widths other than 4 bits, and for groups of different sizes."""
    words, scales = given["qweight"], given["scales"]
    groups, outputs = scales.shape
    bits = 32 * given["qzeros"].shape[1] / outputs
    if bits != 4:
        raise refused(path, f"its weights have {bits:g} bits, and golow reads only 4-bit GPTQ")
    inputs = 8 * words.shape[0]
    zeros = _zeros(path, given["qzeros"], form)
    order = _order(path, given.get("g_idx"), groups, inputs)
    rule = QuantizedLayer(
        path=path,
        rule="int4-weights",
        group=inputs // groups,
        zeros=zeros is not None,
        ordered=order is not None,
    )
    return ForeignLayer(
        rule, lambda: int4_tensors(numbers_of(words.T).contiguous(), scales, zeros, order)
    )


def _zeros(path: str, words: Tensor, form: str) -> Tensor | None:
    """Return the zero point of each group, [groups, outputs]; None if all are 8."""
    stored = numbers_of(words)
    if form == LATER:
        zeros = stored
    elif bool((stored == MIDDLE).all()):
        raise refused(
            path,
            "all its zero points are stored as 8: that is 8 in the format gptq_v2 and 9 in gptq",
            "put the checkpoint's config.json, which states checkpoint_format, beside the file.",
        )
    else:
        zeros = (stored + 1) & 15
    return None if bool((zeros == MIDDLE).all()) else zeros


def _order(path: str, group_of: Tensor | None, groups: int, inputs: int) -> Tensor | None:
    """Return the order of inputs by group; None if they are in this order already."""
    group = inputs // groups
    if group * groups != inputs or group % 2:
        raise refused(path, f"its {inputs} inputs are not {groups} groups of one even size")
    if group_of is None or torch.equal(group_of.long(), torch.arange(inputs) // group):
        return None
    if group_of.shape != (inputs,) or not bool(((group_of >= 0) & (group_of < groups)).all()):
        raise refused(path, f"its g_idx does not name one of {groups} groups for each input")
    sizes = torch.bincount(group_of.long(), minlength=groups)
    if bool((sizes != group).any()):
        raise refused(
            path, f"its g_idx has groups of {int(sizes.min())} to {int(sizes.max())} inputs"
        )
    return torch.argsort(group_of.long(), stable=True)
