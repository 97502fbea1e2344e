"""Pooling, of images with their channels last."""

from __future__ import annotations

from golow.levels.direct.implementation import Implementation
from golow.levels.traced.jax.dialect import window
from golow.levels.traced.windows import counted, largest_pixels, padded_ends
from golow.levels.traced.writer import Writer
from golow.lower.operators.average_pool import AveragePool
from golow.lower.operators.max_pool import MaxPool


def largest(writer: Writer, given: MaxPool) -> None:
    """``reduce_window`` with the maximum; with gaps in the window, the maximum of its pixels."""
    output = writer.output()
    if output is None:
        return
    x, shape = writer.image(given.x), writer.value(given.x).shape[2:]
    ends = padded_ends(
        shape, output.shape[2:], given.kernel, given.stride, given.padding, given.dilation
    )
    if given.dilation == (1, 1):
        writer.put(window(x, "-jnp.inf", "lax.max", given.kernel, given.stride, ends), image=True)
        return
    sides = ", ".join(f"({before}, {after}, 0)" for before, after in ends)
    least = f"jnp.array(-jnp.inf, {x}.dtype)"
    padded = writer.line("padded", f"lax.pad({x}, {least}, ((0, 0, 0), {sides}, (0, 0, 0)))")
    writer.put(largest_pixels(writer, padded, given, output.shape[2:]), image=True)


def average(writer: Writer, given: AveragePool) -> None:
    """``reduce_window`` with the sum, divided by what counts of each window."""
    output = writer.output()
    if output is None:
        return
    shape = writer.value(given.x).shape[2:]
    ends = padded_ends(shape, output.shape[2:], given.kernel, given.stride, given.padding, (1, 1))
    total = window(writer.image(given.x), "0.0", "lax.add", given.kernel, given.stride, ends)
    if given.divisor is not None:
        writer.put(f"{total} / {given.divisor}", image=True)
        return
    found = [counted(given, axis, shape[axis], output.shape[2 + axis]) for axis in (0, 1)]
    rows, columns = found
    if len({*rows}) == 1 and len({*columns}) == 1:
        writer.put(f"{total} / {rows[0] * columns[0]}", image=True)
        return
    divisor = f"jnp.outer(jnp.array({rows}), jnp.array({columns}))[:, :, None]"
    writer.put(f"{total} / {divisor}", image=True)


IMPLEMENTATIONS = (
    Implementation(MaxPool, largest),
    Implementation(AveragePool, average),
)
