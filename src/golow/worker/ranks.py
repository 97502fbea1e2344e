"""Ranks of one training run: how each gets its number, and how their answers and files are joined.
Imports no framework."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from golow.records.errors import GolowError

Tensor = TypeVar("Tensor")  # of NumPy or of PyTorch

RANK, RANKS, PLACE = "GOLOW_RANK", "GOLOW_RANKS", "GOLOW_MEETING"
"""Variables of a worker that is one of several ranks: its number, the number of ranks, and a
private folder in which the ranks of this level meet."""

OWN = ("loss", "output", "buffer")
"""Kinds of tensors that differ between ranks. All others are the same on every rank."""


class Place(NamedTuple):
    """A worker's place among the ranks of its level."""

    rank: int
    ranks: int
    meeting: Path

    def variables(self) -> dict[str, str]:
        """The variables that pass it to the worker."""
        return {RANK: str(self.rank), RANKS: str(self.ranks), PLACE: str(self.meeting)}

    @classmethod
    def told(cls) -> Place | None:
        """Place of this process among the ranks; None for a process that is not one of several."""
        return cls.of_worker() if RANK in os.environ else None

    @classmethod
    def of_worker(cls) -> Place:
        """Return the place of this process. Raises `GolowError` if it has none."""
        try:
            return cls(int(os.environ[RANK]), int(os.environ[RANKS]), Path(os.environ[PLACE]))
        except (KeyError, ValueError) as error:
            raise GolowError(f"{RANK}, {RANKS} and {PLACE} name no place: {error}") from error


def rank_file(file: Path, rank: int) -> Path:
    """A rank's file beside that of rank 0."""
    return file if rank == 0 else file.with_name(f"{file.stem}.rank-{rank}{file.suffix}")


def own_name(name: str, rank: int) -> str:
    """The name, among the tensors of all ranks, of what a rank calls ``STEP/KIND/NAME``, or
    ``KIND/NAME``: ``KIND/rank 1/NAME``."""
    kind = _kind(name)
    return name.replace(f"{kind}/", f"{kind}/rank {rank}/", 1) if rank and kind else name


def of_rank(tensors: Mapping[str, Tensor], rank: int) -> dict[str, Tensor]:
    """A rank's tensors among those of all ranks, by the names that it uses itself."""
    found = {name: tensor for name, tensor in tensors.items() if "/rank " not in name}
    own = {name: own_name(name, rank) for name in found}
    return {name: tensors.get(own[name], tensor) for name, tensor in found.items()}


def joined(answers: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Join the answers of all ranks: the times of the slowest rank, the mean loss, the largest
    memory, and rank 0's value of everything that is equal on all ranks. Taking the slowest rank of
    each iteration would overestimate the time: a rank that is late in one step is early in the
    next, in which the others wait for it.
    """
    found = dict(answers[0])
    for name, combine in _COMBINED.items():
        values = [answer.get(name) for answer in answers]
        if any(value is not None for value in values):
            found[name] = combine(values)
    if all("digest" in answer for answer in answers):
        found["digests"] = [answer["digest"] for answer in answers]
    if all("layers" in answer for answer in answers):
        found["ranks"] = [answer["layers"] for answer in answers]
    if all("checksum" in answer for answer in answers):
        found["checksum"] = [answer["checksum"] for answer in answers]
    times = [answer.get("device_ns") or answer.get("host_ns") or () for answer in answers]
    if all(times):
        slowest = max(range(len(answers)), key=lambda rank: sum(times[rank]))
        found |= {name: answers[slowest].get(name) for name in ("host_ns", "device_ns")}
        found["rank_ns"] = times
    return found


def join_files(files: Sequence[Path]) -> str:
    """Add the tensors that differ between ranks to the first rank's file. Returns which shared
    tensor has different bits on another rank; empty if none has."""
    tensors, different = load_file(files[0]), ""
    for rank, file in enumerate(files[1:], 1):
        with safe_open(file, "numpy") as other:
            names = set(other.keys())
            for name in sorted(tensors.keys() | names):
                kind = _kind(name)
                if kind is not None and name in names:
                    tensors[own_name(name, rank)] = other.get_tensor(name)
                elif kind is None and "/rank " not in name and not different:
                    alike = name in names and name in tensors
                    if not (alike and _same_bits(tensors[name], other.get_tensor(name))):
                        different = f"ranks 0 and {rank} do not hold the same bits of {name}"
    if not different:
        save_file(tensors, files[0])
    return different


def _kind(name: str) -> str | None:
    """The kind of a tensor that differs between ranks; None for others."""
    first, *others = name.split("/")
    kind = others[0] if first.isdigit() and others else first
    return kind if kind in OWN and "/rank " not in name else None


def _same_bits(one: np.ndarray, other: np.ndarray) -> bool:
    return (
        one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()
    )


def _means(values: list[Any]) -> list[float | None]:
    return [_mean(each) for each in zip(*values, strict=True)]


def _mean(values: Sequence[float | None]) -> float | None:
    """None if one of them is not finite."""
    finite = [value for value in values if value is not None]
    return sum(finite) / len(finite) if len(finite) == len(values) else None


def _longest(values: list[dict[str, float]]) -> dict[str, float]:
    return {name: max(each.get(name, 0.0) for each in values) for name in values[0]}


def _all_notes(values: list[list[str]]) -> list[str]:
    return list(dict.fromkeys(note for notes in values for note in notes))


_COMBINED: dict[str, Callable[[list[Any]], Any]] = {
    "results": _means,
    "losses": _means,
    "last": _mean,
    "phases": _longest,
    "notes": _all_notes,
    "allocated_peak": max,
    "nanoseconds": max,
}
