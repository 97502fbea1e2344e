"""The windows of pooling: which pixels each reads, and how many of them count."""

from __future__ import annotations

from golow.levels.traced.writer import Writer
from golow.lower.operators.average_pool import AveragePool
from golow.lower.operators.max_pool import MaxPool

Sizes = tuple[int, ...]


def padded_ends(
    shape: tuple[int, ...],
    output: tuple[int, ...],
    kernel: Sizes,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
) -> tuple[Sizes, ...]:
    """Padding before and after each axis, so that every window is inside."""
    found = []
    for axis in (0, 1):
        reach = (output[axis] - 1) * stride[axis] + dilation[axis] * (kernel[axis] - 1) + 1
        found.append((padding[axis], max(0, reach - shape[axis] - padding[axis])))
    return tuple(found)


def largest_pixels(writer: Writer, padded: str, given: MaxPool, output: Sizes) -> str:
    """The largest pixel of every window, written as a comparison of pixel after pixel. padded: the
    image in the framework's order. output: how many windows there are along each axis."""
    found, axes = "", ":" if writer.dialect.channels_last else ":, :"
    for row in range(given.kernel[0]):
        for column in range(given.kernel[1]):
            pixels = _pixels((row, column), given.dilation, output, given.stride)
            # An earlier pixel wins a tie, as in PyTorch, and takes the whole gradient.
            pixel = writer.line(f"at_{row}_{column}", f"{padded}[{axes}, {pixels}]")
            if found:
                chosen = f"{writer.dialect.module}.where({pixel} > {found}, {pixel}, {found})"
                pixel = writer.line(f"largest_{row}_{column}", chosen)
            found = pixel
    return found


def _pixels(place: Sizes, dilation: Sizes, output: tuple[int, ...], stride: Sizes) -> str:
    """The rows and columns of one pixel of every window."""
    parts = []
    for axis in (0, 1):
        start = place[axis] * dilation[axis]
        end = start + (output[axis] - 1) * stride[axis] + 1
        parts.append(f"{start}:{end}:{stride[axis]}")
    return ", ".join(parts)


def counted(given: AveragePool, axis: int, size: int, output: int) -> list[float]:
    """How many pixels of each window count, as PyTorch counts them."""
    before, found = given.padding[axis], []
    for index in range(output):
        start = index * given.stride[axis] - before
        end = min(start + given.kernel[axis], size + before)
        inside = end - start if given.with_padding else min(end, size) - max(start, 0)
        found.append(float(inside))
    return found
