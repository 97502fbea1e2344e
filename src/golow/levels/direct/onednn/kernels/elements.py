"""Functions of elements over strided tensors, as one loop."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from golow.levels.direct.kernel_views import Axes, View, merged_axes
from golow.levels.direct.onednn.kernels import C_TYPES, Kernel, parts

FIRST = 2  # numbers before the sizes


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


def elements(
    statements: Sequence[Statement],
    inputs: Sequence[View],
    outputs: Sequence[Written],
    shape: Sequence[int],
) -> Kernel:
    """Pointers: the inputs -> the outputs; all are seen at the indices of ``shape``.

    Expressions are C over the inputs, whose names are `input_name`, and earlier statements. An
    output may be an input that is seen in the same way. A part is a row of the last axis, or an
    element where there is one axis.
    """
    views = [*inputs, *(output.view for output in outputs)]
    axes = merged_axes(shape, views, len(inputs))
    names = [*map(input_name, range(len(inputs))), *(f"y{k}" for k in range(len(outputs)))]
    count = math.prod(axes.sizes[:-1]) if len(axes.sizes) > 1 else axes.sizes[0]
    steps = [steps for row in axes.strides for steps in row[:-1]]
    loose = [row[-1] for row in axes.strides if row[-1] not in (0, 1)]
    numbers = (
        *parts(count, math.prod(shape)),
        *axes.sizes,
        *(view.start for view in views),
        *steps,
        *loose,
    )
    return Kernel("\n".join(_code(statements, names, views, outputs, axes)), numbers)


def of_each(expression: str, dtype: str, count: int) -> Kernel:
    """Pointers: x [count] -> the expression of x0 [count]; both are row-major."""
    view = View(dtype, (1,))
    return elements([Statement("y", dtype, expression)], [view], [Written("y", view)], [count])


def _code(
    statements: Sequence[Statement],
    names: Sequence[str],
    views: Sequence[View],
    outputs: Sequence[Written],
    axes: Axes,
) -> Iterator[str]:
    outer, inner = len(axes.sizes) - 1, FIRST + len(axes.sizes) - 1
    starts = inner + 1
    strides = starts + len(views)
    yield "static void body(void* const* pointers, const long* n, long begin, long end) {"
    for position, (name, view) in enumerate(zip(names, views, strict=True)):
        kind = _in_memory(name, view)
        constant = "" if name.startswith("y") else "const "
        pointer = f"static_cast<{kind}*>(pointers[{position}]) + n[{starts + position}]"
        yield f"  {constant}{kind}* const {name}_all = {pointer};"
    if outer:
        yield "  long rest = begin;"
        for axis in reversed(range(1, outer)):
            yield f"  long i_{axis} = rest % n[{FIRST + axis}]; rest /= n[{FIRST + axis}];"
        yield "  long i_0 = rest;"
        yield "  for (long row = begin; row < end; row++) {"
    for position, name in enumerate(names):
        places = (f"i_{k} * n[{strides + position * outer + k}]" for k in range(outer))
        constant = "" if name.startswith("y") else "const "
        kind = _in_memory(name, views[position])
        yield f"    {constant}{kind}* const {name}_in = {' + '.join([f'{name}_all', *places])};"
    yield from _loop(statements, names, views, outputs, axes, strides + len(views) * outer)
    if outer:
        for axis in reversed(range(1, outer)):
            yield f"    if (++i_{axis} == n[{FIRST + axis}]) {{ i_{axis} = 0;"
        yield f"    i_0++;{' }' * (outer - 1)}"
        yield "  }"
    yield "}"


def _in_memory(name: str, view: View) -> str:
    """The type of a tensor's elements. Truth values are read as bytes: GCC 12 makes no vectors of a
    loop that reads them as what they are."""
    if view.dtype == "bool" and not name.startswith("y"):
        return C_TYPES["uint8"]
    return C_TYPES[view.dtype]


def _loop(
    statements: Sequence[Statement],
    names: Sequence[str],
    views: Sequence[View],
    outputs: Sequence[Written],
    axes: Axes,
    loose: int,
) -> Iterator[str]:
    """The innermost axis. What does not change along it is read before it."""
    places: dict[str, str] = {}
    for name, row in zip(names, axes.strides, strict=True):
        if row[-1] in (0, 1):
            places[name] = "k" if row[-1] else "0"
        else:
            places[name] = f"k * n[{loose}]"
            loose += 1
    reads = list(zip(names, views, strict=True))[: len(views) - len(outputs)]
    for name, view in reads:
        if places[name] == "0":
            yield f"    const {C_TYPES[view.dtype]} {name} = {name}_in[0];"
    single = len(axes.sizes) == 1
    size = FIRST + len(axes.sizes) - 1
    bounds = "begin; k < end" if single else f"0; k < n[{size}]"
    yield "    #pragma omp simd"
    yield f"    for (long k = {bounds}; k++) {{"
    for name, view in reads:
        if places[name] != "0":
            yield f"      const {C_TYPES[view.dtype]} {name} = {name}_in[{places[name]}];"
    for made in statements:
        kind = C_TYPES[made.dtype]
        yield f"      const {kind} {made.name} = static_cast<{kind}>({made.expression});"
    for position, output in enumerate(outputs):
        yield f"      y{position}_in[{places[f'y{position}']}] = {output.name};"
    yield "    }"
