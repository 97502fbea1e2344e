"""Pooling, of images with their channels last."""

from __future__ import annotations

from golow.levels.direct.implementation import Implementation
from golow.levels.traced.windows import Sizes, counted, largest_pixels, padded_ends
from golow.levels.traced.writer import Writer
from golow.lower.operators.average_pool import AveragePool
from golow.lower.operators.max_pool import MaxPool


def largest(writer: Writer, given: MaxPool) -> None:
    """``max_pool2d``; with gaps in the window, the maximum of its pixels."""
    output = writer.output()
    if output is None:
        return
    shape = writer.value(given.x).shape[2:]
    ends = padded_ends(
        shape, output.shape[2:], given.kernel, given.stride, given.padding, given.dilation
    )
    x = _padded(writer, writer.image(given.x), ends, "-math.inf")
    if given.dilation == (1, 1):
        pooled = f'tf.nn.max_pool2d({x}, {given.kernel}, {given.stride}, "VALID")'
        writer.put(pooled, image=True)
        return
    writer.put(largest_pixels(writer, x, given, output.shape[2:]), image=True)


def average(writer: Writer, given: AveragePool) -> None:
    """``avg_pool2d``; where not all of a window counts, scaled by what does."""
    output = writer.output()
    if output is None:
        return
    shape = writer.value(given.x).shape[2:]
    ends = padded_ends(shape, output.shape[2:], given.kernel, given.stride, given.padding, (1, 1))
    x = _padded(writer, writer.image(given.x), ends, "0.0")
    mean = f'tf.nn.avg_pool2d({x}, {given.kernel}, {given.stride}, "VALID")'
    size = given.kernel[0] * given.kernel[1]
    if given.divisor is not None:
        writer.put(f"{mean} * {size / given.divisor!r}", image=True)
        return
    found = [counted(given, axis, shape[axis], output.shape[2 + axis]) for axis in (0, 1)]
    factors = [
        [kernel / count for count in counts]
        for kernel, counts in zip(given.kernel, found, strict=True)
    ]
    if all(factor == 1 for each in factors for factor in each):
        writer.put(mean, image=True)
        return
    rows, columns = factors
    outer = [[[row * column] for column in columns] for row in rows]
    writer.put(f"{mean} * tf.constant({outer})", image=True)


def _padded(writer: Writer, x: str, ends: tuple[Sizes, ...], value: str) -> str:
    """x with pixels added: XLA pools without padding of its own."""
    if not any(map(any, ends)):
        return x
    return writer.line("padded", f"tf.pad({x}, {((0, 0), *ends, (0, 0))}, constant_values={value})")


IMPLEMENTATIONS = (
    Implementation(MaxPool, largest),
    Implementation(AveragePool, average),
)
