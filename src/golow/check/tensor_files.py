"""The tensors in the files of a check, pair by pair."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from safetensors import safe_open
from torch import Tensor

from golow.levels.torch.gradient_terms import PREFIX as TERMS


class Part(NamedTuple):
    """The part of a reference that a file covers: one step's tensors of these kinds, whose names
    lack the step in the file."""

    step: str
    kinds: tuple[str, ...]

    def name(self, whole: str) -> str | None:
        """The name in the file of the reference's tensor; None if the file need not have it."""
        name = whole.removeprefix(self.step)
        covered = whole.startswith(self.step) and name.partition("/")[0] in self.kinds
        return name if covered else None


class Pair(NamedTuple):
    """A tensor of the reference and the tensor of the same name to compare, both in float64."""

    name: str
    exact: bool  # integers, which must be equal
    wanted: Tensor
    found: Tensor | None


def pairs(reference: Path, other: Path, part: Part | None = None) -> Iterator[Pair]:
    """Yield one pair at a time, so that a large network need not fit into memory twice."""
    with safe_open(reference, "pt") as wanted, safe_open(other, "pt") as found:
        names = set(found.keys())
        for name in sorted(wanted.keys()):
            own_name = name if part is None else part.name(name)
            if own_name is None or name.startswith(TERMS):
                continue
            tensor = wanted.get_tensor(name)
            other_tensor = found.get_tensor(own_name).double() if own_name in names else None
            exact = not tensor.is_floating_point()
            yield Pair(name, exact, tensor.double(), other_tensor)


def terms(reference: Path) -> Iterator[tuple[str, float]]:
    """The size of the terms of every tensor that cancels, by name."""
    with safe_open(reference, "pt") as file:
        for name in file.keys():  # noqa: SIM118
            if name.startswith(TERMS):
                yield name.removeprefix(TERMS), float(file.get_tensor(name))


def error_of(pair: Pair) -> float | None:
    """Root mean square error, without the elements at which both have the same infinity; None if
    the other tensor is missing or has another shape."""
    if pair.found is None or pair.found.shape != pair.wanted.shape:
        return None
    return rms(_without(same_infinities(pair), pair.found - pair.wanted))


def size_of(pair: Pair) -> tuple[int, float]:
    """Number and root mean square of the elements whose errors count."""
    counted = _without(same_infinities(pair), pair.wanted)
    return counted.numel(), rms(counted)


def same_infinities(pair: Pair) -> Tensor | None:
    """Where both have the same infinity, as masked logits do; None if nowhere. Only outputs may: a
    loss, a gradient or a state that is infinite is wrong at every level. An output without a finite
    number is that of a model that overflows."""
    alike = pair.found is not None and pair.found.shape == pair.wanted.shape
    if not alike or "/output/" not in pair.name:
        return None
    same = pair.wanted.isinf() & (pair.wanted == pair.found)
    return same if bool(same.any()) and not bool(same.all()) else None


def unlike(pair: Pair) -> str:
    """Why the other tensor cannot be compared number by number: it is missing, has another shape,
    or other infinities than a reference that has some; empty if it can."""
    if pair.found is None:
        return f"{pair.name} is missing"
    if pair.found.shape != pair.wanted.shape:
        shapes = f"{tuple(pair.found.shape)}, not {tuple(pair.wanted.shape)}"
        return f"{pair.name} has the shape {shapes}"
    infinite = pair.wanted.isinf()
    if not bool(infinite.any()):
        return ""
    other = ((infinite | pair.found.isinf()) & (pair.found != pair.wanted)).nonzero()
    if not len(other):
        return ""
    place = tuple(other[0].tolist())
    values = f"{float(pair.found[place]):g}, not {float(pair.wanted[place]):g}"
    return f"{pair.name} is {values}, at element {list(place)}"


def _without(places: Tensor | None, values: Tensor) -> Tensor:
    return values if places is None else values[~places]


def rms(tensor: Tensor) -> float:
    return float(tensor.square().mean().sqrt()) if tensor.numel() else 0.0
