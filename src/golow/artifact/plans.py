"""Which level's plans an artifact has, and what a loaded module asks of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from golow.artifact.array_inputs import Arrays
from golow.artifact.container import Container
from golow.artifact.manifest import Manifest
from golow.levels.called.sizes import Size
from golow.levels.direct.bundle_arrays import Read
from golow.lower.plan.plan import Plan
from golow.records.errors import GolowError

LEVELS = {"onednn": "golow.artifact.onednn_plans", "cudnn": "golow.artifact.cudnn_plans"}
"""Modules with a class ``Plans``, and a function ``probe`` of what the machine lacks."""


class OnePlan(Protocol):
    """A plan with its weights."""

    @property
    def plan(self) -> Plan:
        """Its steps and memory."""

    def load(self, read: Read) -> None:
        """Take other weights, in the memory of the present ones."""


class Room(Protocol):
    """One memory for iterations of all sizes."""

    def arrays(self, given: Sequence[Any]) -> Arrays:
        """Array operations for these inputs of a call."""

    def run(
        self, size: Size, inputs: Sequence[Any], outputs: Sequence[Any], arrays: Arrays
    ) -> None:
        """Run an iteration of that size."""


class Plans(Protocol):
    """The plans by size, over one memory for weights. notes: what is not as on the machine that
    made them, one sentence each."""

    by_size: Mapping[Size, OnePlan]
    notes: list[str]

    def reading(self, size: Size, weights: Mapping[str, np.ndarray]) -> Read:
        """Reader of the weights and constants of a size's plan."""

    @property
    def bytes_of_weights(self) -> int:
        """Bytes of weights of all sizes together."""

    def loading(self) -> None:
        """Let this thread load weights."""

    def room(self) -> Room:
        """A new memory for iterations."""

    def close(self) -> None:
        """Release all memory."""


def built_plans(
    container: Container,
    manifest: Manifest,
    weights: Mapping[str, np.ndarray],
    threads: int,
    cache: Path | None,
) -> Plans:
    """The plans on this machine. Raises `GolowError` for what the machine cannot run."""
    made: Plans = import_module(LEVELS[manifest.level]).Plans(
        container, manifest, weights, threads, cache
    )
    return made


def require_runnable(manifest: Manifest) -> None:
    """Raise `GolowError` in one sentence for what this machine lacks, before anything is built."""
    if manifest.level not in LEVELS:
        raise GolowError(
            f"it is for the level {manifest.level}, which this golow does not load",
            "pip install --upgrade golow",
        )
    found = import_module(LEVELS[manifest.level]).probe()
    if not found.available:
        raise GolowError(f"it needs {manifest.level}: {found.missing}", found.fix)


def by_plans_names(manifest: Manifest, weights: Mapping[str, Any]) -> dict[str, Any]:
    """The weights, those also by the name that the plans read that have only another one, as tied
    weights in files of safetensors."""
    found = dict(weights)
    for name, wanted in manifest.weights.items():
        other = next((one for one in wanted.tied if one in weights), None)
        if name not in found and other is not None:
            found[name] = weights[other]
    return found


def require_fitting(manifest: Manifest, weights: Mapping[str, Any], what: str) -> None:
    """Raise `GolowError` unless these are all weights that the plans read, in their shapes and
    types; there may be more."""
    for name, wanted in manifest.weights.items():
        if name not in weights:
            raise GolowError(f"there is no {name} in {what}, which the plans use")
        found = weights[name]
        if found.shape != wanted.shape or found.dtype.name != wanted.dtype:
            raise GolowError(
                f"{name} in {what} is {_form(found.dtype.name, found.shape)}; the plans need "
                f"{_form(wanted.dtype, wanted.shape)}"
            )


def _form(dtype: str, shape: tuple[int, ...]) -> str:
    return f"{'x'.join(map(str, shape)) or 'one number'} of {dtype}"
