"""The ranges of what layers read, and its moments: seen in forward passes of real samples.

``min-max`` takes the largest size of all values. ``percentile`` takes the size that a share of them
does not exceed, so that a few outliers do not make all others coarse; what is larger is clipped. It
needs a second pass, which counts sizes in 4096 bins up to the largest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple
from weakref import ref

import torch
from torch import Tensor, nn

from golow.records.errors import GolowError
from golow.workload.quantization.transposed_linear import as_linear

BINS = 4096
MOST_BYTES = 2 << 30
"""Memory for moments at a time."""

Samples = Callable[[], Iterable[tuple[Tensor, ...]]]
"""The inputs of the forward passes, from the first one each time it is called."""


class Range(NamedTuple):
    """Range of a layer's activations: whether any is negative, and up to which size. like: the
    first layer that reads the same tensor each time; empty if it is this one."""

    signed: bool
    size: float
    like: str = ""


class Moments(NamedTuple):
    """products: [inputs, inputs], the mean product of each two inputs of the layer at the path."""

    path: str
    products: Tensor


def calibrated(
    module: nn.Module, paths: Sequence[str], samples: Samples, share: float = 1.0
) -> dict[str, Range]:
    """The range of what each layer reads, by its path; a layer that never ran is not in it. share:
    of its values that must be within the range. Raises `GolowError` for values that are not
    finite."""
    layers = {path: module.get_submodule(path) for path in paths}
    extremes: dict[str, Range] = {}
    readers = _Readers()

    def look(path: str, x: Tensor) -> None:
        readers.add(path, x)
        low, high = (float(end) for end in torch.aminmax(x))
        if not -torch.inf < low <= high < torch.inf:
            raise _not_finite(path)
        before = extremes.get(path, Range(signed=False, size=0.0))
        extremes[path] = Range(before.signed or low < 0, max(before.size, -low, high))

    _run(module, layers, samples, look)
    extremes = {path: found._replace(like=readers.first(path)) for path, found in extremes.items()}
    if share >= 1.0:
        return extremes
    counts = {path: torch.zeros(BINS, dtype=torch.float64) for path in extremes}

    def count(path: str, x: Tensor) -> None:
        size = extremes[path].size
        if size > 0:
            counts[path] += torch.histc(x.float().abs(), BINS, 0.0, size).double()

    _run(module, layers, samples, count)
    return {
        path: found._replace(size=_quantile(counts[path], share) * found.size)
        for path, found in extremes.items()
    }


def moments(module: nn.Module, paths: Sequence[str], samples: Samples) -> Iterator[Moments]:
    """Yield the moments of what linear layers read; none for a layer that never ran. There are as
    many passes over the samples as memory needs. Raises `GolowError` for values that are not
    finite."""
    layers = {path: module.get_submodule(path) for path in paths}
    while layers:
        some = _in_memory(layers)
        layers = {path: layer for path, layer in layers.items() if path not in some}
        sums, rows = dict[str, Tensor](), Counter[str]()

        def add(path: str, x: Tensor, sums: Any = sums, rows: Any = rows) -> None:
            flat = x.reshape(-1, x.shape[-1])
            product = (flat.T @ flat).double()
            if not bool(torch.isfinite(product.diagonal()).all()):
                raise _not_finite(path)
            sums[path] = product + sums.get(path, 0.0)
            rows[path] += len(flat)

        _run(module, some, samples, add)
        yield from (Moments(path, total / rows[path]) for path, total in sums.items())


def _in_memory(layers: dict[str, nn.Module]) -> dict[str, nn.Module]:
    """The first layers whose moments fit into memory, one at least."""
    some, used = dict[str, nn.Module](), 0
    for path, layer in layers.items():
        used += 8 * as_linear(layer).get_parameter("weight").shape[1] ** 2
        if some and used > MOST_BYTES:
            break
        some[path] = layer
    return some


class _Readers:
    """Layers that read the same tensor whenever they run."""

    def __init__(self) -> None:
        self._tensors: list[tuple[ref[Tensor], int, list[str]]] = []
        self._firsts: dict[str, set[str]] = {}

    def add(self, path: str, x: Tensor) -> None:
        """Record the input of a layer. A tensor that was freed or changed in place has no further
        readers."""
        self._tensors = [item for item in self._tensors if item[0]() is not None]
        known = (it[2] for it in self._tensors if it[0]() is x and it[1] == x._version)
        paths = next(known, None)
        if paths is None:
            paths = []
            self._tensors.append((ref(x), x._version, paths))
        paths.append(path)
        self._firsts.setdefault(path, set()).add(paths[0])

    def first(self, path: str) -> str:
        """The first reader of what this layer reads; empty if it is this one, or not always the
        same one, or one that also reads something else."""
        first, *others = self._firsts[path]
        alone = not others and self._firsts[first] == {first}
        return first if alone and first != path else ""


def _not_finite(path: str) -> GolowError:
    return GolowError(
        f"layer {path} reads values that are not finite",
        "calibrate with inputs and weights that are.",
    )


def _quantile(counts: Tensor, share: float) -> float:
    """The upper end of the bin up to which this share of the values is, as a share of the range."""
    so_far = counts.cumsum(0)
    bin_of_share = int(torch.searchsorted(so_far, share * so_far[-1]))
    return (min(bin_of_share, BINS - 1) + 1) / BINS


def _run(
    module: nn.Module,
    layers: dict[str, nn.Module],
    samples: Samples,
    look: Callable[[str, Tensor], None],
) -> None:
    with _watched(layers, look), torch.no_grad():
        for inputs in samples():
            module(*inputs)


@contextmanager
def _watched(layers: dict[str, nn.Module], look: Callable[[str, Tensor], None]) -> Iterator[None]:
    """Within the block, look at what each layer reads."""

    def hook(path: str) -> Any:
        def before(layer: nn.Module, given: tuple[Any, ...]) -> None:
            if given and isinstance(given[0], Tensor) and given[0].numel():
                look(path, given[0])

        return before

    handles = [layer.register_forward_pre_hook(hook(path)) for path, layer in layers.items()]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
