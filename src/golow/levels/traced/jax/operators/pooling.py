"""Pooling, of images with their channels last."""

from __future__ import annotations

from golow.levels.direct.implementation import Implementation
from golow.levels.traced.jax.writer import Writer
from golow.levels.traced.windows import Sizes, counted, padded_ends, pixels, shares
from golow.lower.operators.adaptive_average_pool import AdaptiveAveragePool
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
        writer.put(_window(x, "-jnp.inf", "lax.max", given.kernel, given.stride, ends), image=True)
        return
    sides = ", ".join(f"({before}, {after}, 0)" for before, after in ends)
    least = f"jnp.array(-jnp.inf, {x}.dtype)"
    padded = writer.line("padded", f"lax.pad({x}, {least}, ((0, 0, 0), {sides}, (0, 0, 0)))")
    found = ""
    for row in range(given.kernel[0]):
        for column in range(given.kernel[1]):
            taken = pixels(padded, (row, column), given.dilation, output.shape[2:], given.stride)
            # An earlier pixel wins a tie, as in PyTorch, and takes the whole gradient.
            pixel = writer.line(f"at_{row}_{column}", taken)
            if found:
                chosen = f"jnp.where({pixel} > {found}, {pixel}, {found})"
                pixel = writer.line(f"largest_{row}_{column}", chosen)
            found = pixel
    writer.put(found, image=True)


def average(writer: Writer, given: AveragePool) -> None:
    """``reduce_window`` with the sum, divided by what counts of each window."""
    output = writer.output()
    if output is None:
        return
    shape = writer.value(given.x).shape[2:]
    ends = padded_ends(shape, output.shape[2:], given.kernel, given.stride, given.padding, (1, 1))
    total = _window(writer.image(given.x), "0.0", "lax.add", given.kernel, given.stride, ends)
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


def adaptive(writer: Writer, given: AdaptiveAveragePool) -> None:
    """The mean over all pixels, or a product with the share of each pixel in each window."""
    shape = writer.value(given.x).shape[2:]
    x = writer.image(given.x)
    if tuple(given.size) == (1, 1):
        writer.put(f"jnp.mean({x}, axis=(1, 2), keepdims=True)", image=True)
        return
    if tuple(given.size) == tuple(shape):
        writer.put(x, image=True)
        return
    if all(size % parts == 0 for size, parts in zip(shape, given.size, strict=True)):
        kernel = (shape[0] // given.size[0], shape[1] // given.size[1])
        total = _window(x, "0.0", "lax.add", kernel, kernel, ((0, 0), (0, 0)))
        writer.put(f"{total} / {kernel[0] * kernel[1]}", image=True)
        return
    rows, columns = (
        writer.line(name, f"jnp.array({shares(size, parts)})")
        for name, size, parts in zip(("rows", "columns"), shape, given.size, strict=True)
    )
    writer.put(f'jnp.einsum("nhwc,ih,jw->nijc", {x}, {rows}, {columns})', image=True)


def _window(
    x: str, start: str, function: str, kernel: Sizes, stride: Sizes, ends: tuple[Sizes, ...]
) -> str:
    sizes, steps, sides = (1, *kernel, 1), (1, *stride, 1), ((0, 0), *ends, (0, 0))
    return f"lax.reduce_window({x}, {start}, {function}, {sizes}, {steps}, {sides})"


IMPLEMENTATIONS = (
    Implementation(MaxPool, largest),
    Implementation(AveragePool, average),
    Implementation(AdaptiveAveragePool, adaptive),
)
