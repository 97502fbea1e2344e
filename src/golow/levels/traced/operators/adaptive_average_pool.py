"""Adaptive average pooling."""

from __future__ import annotations

from golow.levels.direct.implementation import Implementation
from golow.levels.traced.writer import Writer
from golow.lower.operators.adaptive_average_pool import AdaptiveAveragePool


def build(writer: Writer, given: AdaptiveAveragePool) -> None:
    """The framework's own; or, with channels last, the mean over all pixels, or a product with the
    share of each pixel in each window."""
    dialect = writer.dialect
    shape = writer.value(given.x).shape[2:]
    x = writer.image(given.x)
    own = dialect.adaptive_mean(x, given.size)
    if own is not None:
        writer.put(own, image=True)
        return
    if tuple(given.size) == (1, 1):
        writer.put(dialect.reduced("mean", x, (1, 2), keep=True), image=True)
        return
    if tuple(given.size) == tuple(shape):
        writer.put(x, image=True)
        return
    if all(size % parts == 0 for size, parts in zip(shape, given.size, strict=True)):
        kernel = (shape[0] // given.size[0], shape[1] // given.size[1])
        writer.put(dialect.mean_of_windows(x, kernel), image=True)
        return
    rows, columns = (
        writer.line(name, f"{dialect.array}({_shares(size, parts)})")
        for name, size, parts in zip(("rows", "columns"), shape, given.size, strict=True)
    )
    product = f'{dialect.module}.einsum("nhwc,ih,jw->nijc", {x}, {rows}, {columns})'
    writer.put(product, image=True)


def _shares(size: int, parts: int) -> list[list[float]]:
    """Weights with which each of ``size`` pixels contributes to each of this many windows."""
    rows = []
    for part in range(parts):
        start, end = part * size // parts, -(-(part + 1) * size // parts)
        rows.append([1 / (end - start) if start <= i < end else 0.0 for i in range(size)])
    return rows


IMPLEMENTATIONS = (Implementation(AdaptiveAveragePool, build),)
