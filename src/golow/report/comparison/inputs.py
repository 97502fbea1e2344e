"""The inputs of a workload in a few words: shapes, counts and types."""

from __future__ import annotations

from collections import Counter

from golow.records.workload import TensorType, Workload
from golow.report.units import batch_text

LISTED = 4  # inputs, or kinds of them, that are named one by one
CACHE = "past_key_values"  # as transformers calls keys and values of earlier tokens


def inputs_text(workload: Workload) -> str:
    """``input 8x3x224x224 float32``; several inputs each with its type, many by kind:
    ``32 caches of 1x8x1024x64 float32, 1 input of 1x1 int64; decode after 1,024 tokens``."""
    types = workload.inputs[: len(workload.inputs) - workload.draws]
    if len(types) > LISTED:
        return _start(workload) + _by_kind(workload, types) + _phase_text(workload)
    listed = ", ".join(map(_type_text, types))
    return f"{_start(workload)}input{'s' * (len(types) > 1)} {listed}{_phase_text(workload)}"


def _start(workload: Workload) -> str:
    ranks = workload.ranks
    return f"{batch_text(workload.batch, ranks)}, " if ranks > 1 else ""


def _by_kind(workload: Workload, types: tuple[TensorType, ...]) -> str:
    names = workload.source.keywords
    words = ["cache" if name.startswith(CACHE) else "input" for name in names]
    words += ["input"] * (len(types) - len(words))
    kinds = Counter(zip(words, types, strict=False)).most_common()
    shown = [
        f"{count} {word}{'s' * (count > 1)} of {_type_text(kind)}"
        for (word, kind), count in kinds[:LISTED]
    ]
    left = sum(count for _, count in kinds[LISTED:])
    return ", ".join([*shown, f"{left} more"] if left else shown)


def _type_text(item: TensorType) -> str:
    return f"{'x'.join(map(str, item.shape)) or 'a number'} {item.dtype}"


def _phase_text(workload: Workload) -> str:
    if workload.phase == "decode":
        return f"; decode after {workload.inputs[1].shape[2]:,} tokens"
    return f"; {workload.phase}" if workload.phase else ""


def draws_text(workload: Workload) -> str:
    """Inputs that a written program has instead of a model's draws; empty if it draws none."""
    if not workload.draws:
        return ""
    first = len(workload.inputs) - workload.draws
    drawn = list(enumerate(workload.inputs))[first:]
    given = ", ".join(f"input {place} ({_type_text(one)})" for place, one in drawn)
    return f"The model draws random numbers, which it gets as inputs here: {given}."
