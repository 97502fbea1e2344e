"""Generates and launches `elements.cu`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from golow.levels.direct.cudnn.problems.element_types import C_TYPES
from golow.levels.direct.cudnn.shared_kernels import FOLDER, Kernel
from golow.levels.direct.cudnn.shared_kernels.geometry import flat
from golow.levels.direct.kernel_views import View

FILE = FOLDER / "elements.cu"
VALUES = (FOLDER / "values.cuh").read_text()  # included before kernels with generated formulas
NAMES = "abcdefgh"  # of what is read, in formulas
WIDE = 2**30  # from this many elements, an index plus a step no longer fits 32 bits


class Lookup(NamedTuple):
    """How an input moves the place where a table is read or a result is written: its value counts
    steps of ``stride`` elements along an axis of ``size``."""

    input: int
    size: int
    stride: int


def elements(
    formula: str,
    inputs: Sequence[View],
    result: View,
    shape: Sequence[int],
    computed: str = "float32",
    lookups: Sequence[Lookup] = (),
    adds: bool = False,
) -> Kernel:
    """Pointers: the inputs -> the result.

    formula: C over a, b, ..., the inputs in the type ``computed`` (float32, int64, bool, which
    computes as int64, or mixed: each in its own), and ``i_0``, ``i_1``, ..., the indices. lookups
    move the place in the result. adds: atomically, to what is there. Raises ValueError for too many
    inputs.
    """
    if len(inputs) > len(NAMES):
        raise ValueError(f"{len(inputs)} inputs; the limit is {len(NAMES)}")
    views = [*inputs, result]
    sizes, strides = _merged(shape, [view.strides for view in views], "i_" in formula)
    count = math.prod(shape)
    kind = {"float32": "float", "mixed": "auto"}.get(computed, "long long")
    names = [*NAMES[: len(inputs)], "y"]
    numbers: list[tuple[str, int]] = [(f"size_{k}", n) for k, n in enumerate(sizes)]
    for name, view, steps in zip(names, views, strides, strict=True):
        numbers.append((f"{name}_start", view.start))
        numbers += [(f"{name}_{k}", step) for k, step in enumerate(steps)]
    for k, lookup in enumerate(lookups):
        numbers += [(f"look_size_{k}", lookup.size), (f"look_stride_{k}", lookup.stride)]
    code = _code(formula, names, views, len(sizes), kind, numbers, lookups, adds, count)
    grid, block = flat(max(count, 1), 1)
    scalars = (np.int64(count), *(np.int64(number) for _, number in numbers))
    return Kernel(FILE, "elements", grid, block, scalars, 0, code)


def _merged(
    shape: Sequence[int], strides: Sequence[Sequence[int]], keep: bool
) -> tuple[list[int], list[list[int]]]:
    """The fewest axes that describe the same places; all of them if a formula names indices."""
    sizes = list(shape)
    found = [list(steps) for steps in strides]
    if keep:
        return sizes, found
    axis = 0
    while axis < len(sizes):
        if sizes[axis] == 1:
            del sizes[axis]
            for steps in found:
                del steps[axis]
        else:
            axis += 1
    for axis in reversed(range(len(sizes) - 1)):
        if all(steps[axis] == steps[axis + 1] * sizes[axis + 1] for steps in found):
            sizes[axis] *= sizes.pop(axis + 1)
            for steps in found:
                del steps[axis]
    return sizes, found


def _code(
    formula: str,
    names: Sequence[str],
    views: Sequence[View],
    rank: int,
    kind: str,
    numbers: Sequence[tuple[str, int]],
    lookups: Sequence[Lookup],
    adds: bool,
    count: int,
) -> str:
    types = [C_TYPES[view.dtype] for view in views]
    pointers = [
        f"{'' if name == 'y' else 'const '}{c}* {name}_in"
        for name, c in zip(names, types, strict=True)
    ]
    locate = ["Index rest = i;"]
    for axis in reversed(range(rank)):
        size = f"static_cast<Index>(size_{axis})"  # 64-bit divisions take several times as long
        locate.append(f"const long long i_{axis} = rest % {size}; rest /= {size};")
    read = [
        f"const {kind} {name} = {_as(kind, f'{name}_in[{_place(name, rank)}]')};"
        for name in names[:-1]
    ]
    place = [f"long long place = {_place('y', rank)};"]
    for k, lookup in enumerate(lookups):
        index = f"static_cast<long long>({NAMES[lookup.input]})"
        place.append(f"place += wrapped({index}, look_size_{k}) * look_stride_{k};")
    made = f"decltype({formula})" if kind == "auto" else kind
    value = f"Stored<{types[-1]}, {made}>::of({formula})"
    write = f"atomicAdd(&y_in[place], {value});" if adds else f"y_in[place] = {value};"
    lines = (
        f"using Index = {'unsigned' if count < WIDE else 'size_t'};",
        f"#define POINTERS {', '.join(pointers)}",
        f"#define SCALARS {''.join(f', long long {name}' for name, _ in numbers)}",
        f"#define LOCATE {' '.join(locate)}",
        f"#define COMPUTE {' '.join([*read, *place, write])}",
    )
    return VALUES + "\n".join(lines) + "\n\n"


def _as(kind: str, element: str) -> str:
    return f"plain({element})" if kind == "auto" else f"static_cast<{kind}>(plain({element}))"


def _place(name: str, rank: int) -> str:
    return " + ".join([f"{name}_start", *(f"i_{axis} * {name}_{axis}" for axis in range(rank))])
