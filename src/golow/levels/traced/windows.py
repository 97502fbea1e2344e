"""The windows of pooling: which pixels each reads, how many of them count, and with which share."""

from __future__ import annotations

from golow.lower.operators.average_pool import AveragePool

Sizes = tuple[int, ...]


def padded_ends(
    shape: tuple[int, ...],
    output: tuple[int, ...],
    kernel: Sizes,
    stride: Sizes,
    padding: Sizes,
    dilation: Sizes,
) -> tuple[Sizes, ...]:
    """Padding before and after each axis, so that every window lies inside."""
    found = []
    for axis in (0, 1):
        reach = (output[axis] - 1) * stride[axis] + dilation[axis] * (kernel[axis] - 1) + 1
        found.append((padding[axis], max(0, reach - shape[axis] - padding[axis])))
    return tuple(found)


def pixels(
    padded: str, place: Sizes, dilation: Sizes, output: tuple[int, ...], stride: Sizes
) -> str:
    """The source of one pixel of every window."""
    parts = []
    for axis in (0, 1):
        start = place[axis] * dilation[axis]
        end = start + (output[axis] - 1) * stride[axis] + 1
        parts.append(f"{start}:{end}:{stride[axis]}")
    return f"{padded}[:, {parts[0]}, {parts[1]}]"


def counted(given: AveragePool, axis: int, size: int, output: int) -> list[float]:
    """How many pixels of each window count, as PyTorch counts them."""
    before, found = given.padding[axis], []
    for index in range(output):
        start = index * given.stride[axis] - before
        end = min(start + given.kernel[axis], size + before)
        inside = end - start if given.with_padding else min(end, size) - max(start, 0)
        found.append(float(inside))
    return found


def shares(size: int, parts: int) -> list[list[float]]:
    """What each of ``size`` pixels gives to each of so many windows that share them out."""
    rows = []
    for part in range(parts):
        start, end = part * size // parts, -(-(part + 1) * size // parts)
        rows.append([1 / (end - start) if start <= i < end else 0.0 for i in range(size)])
    return rows
