"""Pooling, of images with their channels second, as PyTorch has them."""

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
    x, shape = writer.image(given.x), writer.value(given.x).shape[2:]
    ends = padded_ends(
        shape, output.shape[2:], given.kernel, given.stride, given.padding, given.dilation
    )
    if given.dilation == (1, 1):
        writer.put(f"F.max_pool2d({x}, {given.kernel}, {given.stride}, {_sides(ends)})", image=True)
        return
    if any(map(any, ends)):
        sides = [0, 0, 0, 0, *_sides(ends)]
        x = writer.line("padded", f"F.pad({x}, {sides}, value=-math.inf)")
    writer.put(largest_pixels(writer, x, given, output.shape[2:]), image=True)


def average(writer: Writer, given: AveragePool) -> None:
    """``avg_pool2d``; where not all of a window counts, scaled by what does."""
    output = writer.output()
    if output is None:
        return
    x, shape = writer.image(given.x), writer.value(given.x).shape[2:]
    ends = padded_ends(shape, output.shape[2:], given.kernel, given.stride, given.padding, (1, 1))
    mean = f"F.avg_pool2d({x}, {given.kernel}, {given.stride}, {_sides(ends)}, exclusive=False)"
    size = given.kernel[0] * given.kernel[1]
    if given.divisor is not None:
        writer.put(f"{mean} * {size / given.divisor!r}", image=True)
        return
    found = [counted(given, axis, shape[axis], output.shape[2 + axis]) for axis in (0, 1)]
    rows, columns = (
        [kernel / count for count in counts]
        for kernel, counts in zip(given.kernel, found, strict=True)
    )
    if {*rows, *columns} == {1.0}:
        writer.put(mean, image=True)
        return
    factors = [[row * column for column in columns] for row in rows]
    writer.put(f"{mean} * paddle.to_tensor({factors})", image=True)


def _sides(ends: tuple[Sizes, ...]) -> list[int]:
    """Top, bottom, left and right."""
    return [side for both in ends for side in both]


IMPLEMENTATIONS = (
    Implementation(MaxPool, largest),
    Implementation(AveragePool, average),
)
