"""Generates and launches `fused_pointwise.cu`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np

from golow.levels.direct.cudnn.problems.element_types import C_TYPES
from golow.levels.direct.cudnn.shared_kernels import FOLDER, Kernel
from golow.levels.direct.cudnn.shared_kernels.elements import VALUES, Lookup
from golow.levels.direct.cudnn.shared_kernels.geometry import (
    FLOATING,
    THREADS,
    VECTOR,
    approximate,
    flat,
    vector,
)
from golow.levels.direct.kernel_views import Axes, View, merged_axes

FILE = FOLDER / "fused_pointwise.cu"
WIDE = 2**31 - 2**24  # from this many elements on, an index plus a step may not fit 32 bits
# Threads that keep a large GPU busy: a block for each of 132 multiprocessors.
BUSY = 132 * THREADS

# How a thread reads an input: a vector, one element for all of its elements, or each by its place.
Access = Literal["vector", "same", "each"]
# Inputs that are read where earlier inputs say.
Tables = Mapping[int, Sequence[Lookup]]
NO_TABLES: Tables = {}


class Statement(NamedTuple):
    """One function: its result's name and type, and a C expression over earlier names."""

    name: str
    dtype: str
    expression: str


class Written(NamedTuple):
    """A result that is stored: its name, and where."""

    name: str
    view: View


def input_name(index: int) -> str:
    """Return the name of an input in expressions."""
    return f"x{index}"


def fused(
    statements: Sequence[Statement],
    inputs: Sequence[View],
    outputs: Sequence[Written],
    shape: Sequence[int],
    keeps: int | None = None,
    tables: Tables = NO_TABLES,
) -> Kernel:
    """Pointers: the inputs -> the outputs; all are seen at the indices of ``shape``.

    Expressions are C over the inputs, whose names are `input_name`, and earlier statements: floats,
    or integers as their types say. Pointers are multiples of 16 bytes; a view may start at any
    element. An output may be an input that is seen in the same way. keeps: the input which, where
    it is true, leaves such an output as it is; nothing else is read there if it is the same for all
    elements of a thread. tables: inputs by their positions, each with earlier inputs that move the
    place where it is read. Raises ValueError without outputs.
    """
    if not outputs:
        raise ValueError("a kernel without outputs")
    views = [*inputs, *(output.view for output in outputs)]
    axes = merged_axes(shape, views, len(inputs))
    width = _width(views, axes, len(inputs))
    names = [*map(input_name, range(len(inputs))), *(f"y{k}" for k in range(len(outputs)))]
    accesses = [
        access_of(v, steps, axes, width) for v, steps in zip(views, axes.strides, strict=True)
    ]
    for table, lookups in tables.items():
        accesses[table] = _access_of_table(accesses, table, lookups, width)
    numbers = [*numbers_of(names, views, axes), *_numbers_of_tables(names, tables)]
    index = np.uint32 if _furthest(views, axes, tables) < WIDE else np.uint64
    read = list(read_of(names, views, accesses, axes, len(inputs), tables))
    compute = compute_of(statements, names[: len(inputs)], accesses, outputs, axes, tables)
    if keeps is not None and accesses[keeps] == "same":
        read = [read.pop(keeps), f"if ({names[keeps]}) continue;", *read]
    lines = (
        f"using Index = {'unsigned' if index is np.uint32 else 'size_t'};",
        f"#define WIDTH {width}",
        f"#define POINTERS {', '.join(pointers_of(names, views, len(inputs)))}",
        f"#define SIZES {''.join(f', Index {name}' for name, _ in numbers)}",
        macro("READ", [*indices_of(axes, "i"), *read]),
        macro("COMPUTE", compute),
        macro("WRITE", _write(names[len(inputs) :], axes)),
    )
    count = math.prod(shape)
    grid, block = flat(max(count, 1), width)
    scalars = (index(count), *(as_index(index, number) for _, number in numbers))
    formulas = approximate("\n".join(lines), *(output.view.dtype for output in outputs))
    code = f"{VECTOR}{VALUES}{formulas}\n\n"
    return Kernel(FILE, "fused", grid, block, scalars, 0, code)


# ---------------------------------------------------------------- geometry


def _width(views: Sequence[View], axes: Axes, first_output: int) -> int:
    """The longest vector that every output can take, and that leaves enough threads."""
    adjacent = [
        view.dtype for view, steps in zip(views, axes.strides, strict=True) if steps[-1] == 1
    ]
    width = vector(*adjacent) if adjacent else 1
    while width > 1 and math.prod(axes.sizes) < BUSY * width:
        width //= 2
    outputs = list(zip(views, axes.strides, strict=True))[first_output:]
    while width > 1 and not all(access_of(v, s, axes, width) == "vector" for v, s in outputs):
        width //= 2
    return width


def access_of(view: View, steps: Sequence[int], axes: Axes, width: int) -> Access:
    """A vector must not go over the end of an axis, and begins at a multiple of its length."""
    if steps[-1] == 0:
        return "same"
    places = (view.start, axes.sizes[-1], *steps[:-1])
    if steps[-1] == 1 and all(place % width == 0 for place in places):
        return "vector"
    return "each"


def _access_of_table(
    accesses: Sequence[Access], table: int, lookups: Sequence[Lookup], width: int
) -> Access:
    """Access to an input that is read where others say: as it is stored if these are the same for
    all elements of a thread and move it by whole vectors."""
    if any(accesses[lookup.input] != "same" for lookup in lookups):
        return "each"
    whole = all(lookup.stride % width == 0 for lookup in lookups)
    return "each" if accesses[table] == "vector" and not whole else accesses[table]


def _furthest(views: Sequence[View], axes: Axes, tables: Tables) -> int:
    """As `reach`, wherever tables are read."""
    moved = list(views)
    for table, lookups in tables.items():
        most = sum((lookup.size - 1) * lookup.stride for lookup in lookups)
        moved[table] = views[table]._replace(start=views[table].start + most)
    return reach(moved, axes)


def as_index(kind: type[np.uint32] | type[np.uint64], number: int) -> np.generic:
    """Return a size or a step as an unsigned index. Indices wrap around, so a negative step is one
    modulo the type's range."""
    return kind(number % 2 ** (8 * np.dtype(kind).itemsize))


def reach(views: Sequence[View], axes: Axes) -> int:
    """Return the largest index of any element, or their number if it is larger."""
    ends = (
        view.start + sum((n - 1) * step for n, step in zip(axes.sizes, steps, strict=True))
        for view, steps in zip(views, axes.strides, strict=True)
    )
    return max(math.prod(axes.sizes), *ends)


def numbers_of(
    names: Sequence[str], views: Sequence[View], axes: Axes
) -> Iterator[tuple[str, int]]:
    """The kernel's sizes and strides, which are arguments, so that shapes share its code."""
    for axis, size in enumerate(axes.sizes):
        yield f"size_{axis}", size
    for name, view, steps in zip(names, views, axes.strides, strict=True):
        yield f"{name}_start", view.start
        for axis, step in enumerate(steps):
            yield f"{name}_{axis}", step


def _numbers_of_tables(names: Sequence[str], tables: Tables) -> Iterator[tuple[str, int]]:
    """The sizes and steps of lookups, which are arguments, too."""
    for table, lookups in tables.items():
        for k, lookup in enumerate(lookups):
            yield f"{names[table]}_size_{k}", lookup.size
            yield f"{names[table]}_step_{k}", lookup.stride


# ---------------------------------------------------------------- code


def held(dtype: str) -> str:
    """Return the C type of a value while it is computed with."""
    return "float" if dtype in FLOATING else C_TYPES[dtype]


def macro(name: str, lines: Iterable[str]) -> str:
    """Return the definition of a macro of several lines."""
    return " \\\n  ".join([f"#define {name}", *lines])


def definitions_of(
    statements: Sequence[Statement],
    names: Sequence[str],
    inputs: Sequence[View],
    sizes: Iterable[tuple[str, int]],
    index: type[np.uint32 | np.uint64],
    width: int,
) -> tuple[str, ...]:
    """Return the definitions, beside its macros, of a template that computes the last statement.
    sizes: as of `numbers_of`; index: the type of these; width: elements that a thread reads at
    once."""
    return (
        f"using Index = {'unsigned' if index is np.uint32 else 'size_t'};",
        f"#define WIDTH {width}",
        f"#define RESULT {statements[-1].name}",
        f"#define POINTERS {', '.join(pointers_of(names, inputs, len(inputs)))}",
        f"#define SIZES {''.join(f', Index {name}' for name, _ in sizes)}",
    )


def pointers_of(names: Sequence[str], views: Sequence[View], first_output: int) -> Iterator[str]:
    """The kernel's pointers, as C writes parameters."""
    for position, (name, view) in enumerate(zip(names, views, strict=True)):
        constant = "const " if position < first_output else ""
        yield f"{constant}{C_TYPES[view.dtype]}* {name}_in"


def indices_of(axes: Axes, counter: str, within: int = 0) -> list[str]:
    """The indices from a counter, the innermost first, but for the last ``within`` axes."""
    last = len(axes.sizes) - within
    if last == 1:
        return [f"const Index i_0 = {counter};"]
    lines = [f"Index rest = {counter};"]
    for axis in reversed(range(1, last)):
        lines.append(f"const Index i_{axis} = rest % size_{axis}; rest /= size_{axis};")
    return [*lines, "const Index i_0 = rest;"]


def _place(name: str, axes: Axes) -> str:
    terms = (f"i_{axis} * {name}_{axis}" for axis in range(len(axes.sizes)))
    return " + ".join([f"{name}_start", *terms])


def read_of(
    names: Sequence[str],
    views: Sequence[View],
    accesses: Sequence[Access],
    axes: Axes,
    first_output: int,
    tables: Tables = NO_TABLES,
) -> Iterator[str]:
    """Loads of a thread before it computes, and room for its stores."""
    for position, (name, access) in enumerate(zip(names, accesses, strict=True)):
        place = _place(name, axes)
        if position >= first_output:
            yield f"Vector<{C_TYPES[views[position].dtype]}, WIDTH> {name}_values;"
        elif access == "vector":
            moved = _moved(names, position, tables)
            yield f"const auto {name}_values = load<WIDTH>({name}_in + ({place}{moved}));"
        elif access == "same":
            yield f"const auto {name} = plain({name}_in[{place}{_moved(names, position, tables)}]);"
        else:
            yield f"const Index {name}_from = {place};"


def _moved(names: Sequence[str], table: int, tables: Tables) -> str:
    """How far lookups move the place where an input is read; empty if there are none."""
    name = names[table]
    return "".join(
        f" + static_cast<Index>(wrapped({names[lookup.input]}, {name}_size_{k})) * {name}_step_{k}"
        for k, lookup in enumerate(tables.get(table, ()))
    )


def compute_of(
    statements: Sequence[Statement],
    inputs: Sequence[str],
    accesses: Sequence[Access],
    outputs: Sequence[Written],
    axes: Axes,
    tables: Tables = NO_TABLES,
) -> Iterator[str]:
    """The functions for element k of those that a thread takes at once."""
    last = len(axes.sizes) - 1
    for position, (name, access) in enumerate(zip(inputs, accesses, strict=False)):
        if access == "vector":
            yield f"const auto {name} = plain({name}_values.item[k]);"
        elif access == "each":
            place = f"{name}_from + k * {name}_{last}{_moved(inputs, position, tables)}"
            yield f"const auto {name} = plain({name}_in[{place}]);"
    for made in statements:
        kind = held(made.dtype)
        yield f"const {kind} {made.name} = static_cast<{kind}>({made.expression});"
    for position, output in enumerate(outputs):
        kind = C_TYPES[output.view.dtype]
        value = f"Stored<{kind}, decltype({output.name})>::of({output.name})"
        yield f"y{position}_values.item[k] = {value};"


def _write(outputs: Sequence[str], axes: Axes) -> Iterator[str]:
    for name in outputs:
        yield f"store<WIDTH>({name}_in + ({_place(name, axes)}), {name}_values);"
