"""Elementwise kernels, generated from formulas."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

from golow.levels.direct.cudnn.problems.element_types import C_TYPES
from golow.levels.direct.cudnn.shared_kernels import FOLDER, Kernel
from golow.levels.direct.cudnn.shared_kernels.geometry import FLOATING, VECTOR, flat, vector

FILE = FOLDER / "pointwise.cu"
NAMES = "abcde"  # the inputs' names in a formula
WIDE_INDEX = 2**30  # from this many elements, index plus step no longer fits 32 bits


class Operand(NamedTuple):
    """An input: a value for each element ("full"), for each innermost channel ("channel"), or a
    single one in device memory ("scalar")."""

    dtype: str
    kind: Literal["full", "channel", "scalar"] = "full"


def pointwise(
    expressions: Sequence[str],
    inputs: Sequence[Operand],
    outputs: Sequence[str],
    count: int,
    channels: int = 1,
) -> Kernel:
    """Pointers: the inputs -> the outputs, of ``count`` elements with ``channels`` innermost.

    expressions: C over the floats a, b, c, d, e, which are the inputs in order; one for each dtype
    of ``outputs``. Write numbers with an f: ``0.5f * a``. An output may alias an input. Raises
    ValueError for what cannot be generated.
    """
    _require(expressions, inputs, outputs, count, channels)
    full = [operand.dtype for operand in inputs if operand.kind == "full"]
    each = vector(*full, *outputs)
    if any(operand.kind == "channel" for operand in inputs):
        each = math.gcd(each, channels)
    index = np.uint32 if count < WIDE_INDEX else np.uint64
    code = VECTOR + _code(expressions, inputs, outputs, each, index is np.uint64)
    grid, block = flat(count, each)
    return Kernel(FILE, "pointwise", grid, block, (index(count), index(channels)), 0, code)


def _code(
    expressions: Sequence[str],
    inputs: Sequence[Operand],
    outputs: Sequence[str],
    each: int,
    wide: bool,
) -> str:
    """Return the macros of pointwise.cu."""
    named = list(zip(NAMES, inputs, strict=False))
    results = [(f"y{i}", C_TYPES[dtype]) for i, dtype in enumerate(outputs)]
    parameters = [f"const {C_TYPES[operand.dtype]}* {name}_in" for name, operand in named]
    parameters += [f"{kind}* {name}_out" for name, kind in results]
    read = [_read(name, operand) for name, operand in named]
    read += [f"Vector<{kind}, VECTOR_LENGTH> {name};" for name, kind in results]
    compute = [_value(name, operand) for name, operand in named]
    for (name, kind), expression in zip(results, expressions, strict=True):
        compute.append(f"{name}.item[k] = convert<{kind}>({expression});")
    write = [f"store({name}_out, i, count, {name});" for name, _ in results]
    lines = (
        f"using Index = {'size_t' if wide else 'unsigned'};",
        f"#define VECTOR_LENGTH {each}",
        f"#define PARAMETERS {', '.join(parameters)}",
        f"#define READ {' '.join(read)}",
        f"#define COMPUTE {' '.join(compute)}",
        f"#define WRITE {' '.join(write)}",
    )
    return "\n".join(lines) + "\n\n"


def _read(name: str, operand: Operand) -> str:
    if operand.kind == "full":
        return f"const auto {name}_values = load<VECTOR_LENGTH>({name}_in, i, count);"
    if operand.kind == "channel":
        return f"const auto {name}_values = load<VECTOR_LENGTH>({name}_in + i % channels);"
    return f"const float {name} = static_cast<float>(*{name}_in);"


def _value(name: str, operand: Operand) -> str:
    if operand.kind == "scalar":
        return ""
    return f"const float {name} = static_cast<float>({name}_values.item[k]);"


def _require(
    expressions: Sequence[str],
    inputs: Sequence[Operand],
    outputs: Sequence[str],
    count: int,
    channels: int,
) -> None:
    if not 1 <= len(inputs) <= len(NAMES):
        raise ValueError(f"{len(inputs)} inputs; a formula takes from 1 to {len(NAMES)}")
    if len(expressions) != len(outputs) or not outputs:
        raise ValueError(f"{len(expressions)} expressions for {len(outputs)} outputs")
    for dtype in outputs:
        if dtype not in (*FLOATING, "bool"):
            raise ValueError(f"an output of {dtype}; it must be floating point or bool")
    for operand in inputs:
        if operand.dtype not in C_TYPES:
            raise ValueError(f"an input of {operand.dtype}; it must be one of {', '.join(C_TYPES)}")
        if operand.kind not in ("full", "channel", "scalar"):
            raise ValueError(f'an input of kind {operand.kind}; take "full", "channel" or "scalar"')
    if count < 1 or channels < 1 or count % channels:
        raise ValueError(f"{count} elements with {channels} channels innermost do not fit together")
