"""The check of an artifact where it is loaded: its example, against what the module made of it in
float64."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from golow.artifact.container import Container
from golow.artifact.manifest import CHECK_INPUTS, CHECK_OUTPUTS, Manifest
from golow.artifact.nesting import tensors_in
from golow.artifact.tensor_entry import tensors_of


class OutputError(NamedTuple):
    """The root mean square by which an output is off, and the limit; infinite for another shape and
    where only one of both is finite."""

    output: int
    error: float
    limit: float

    @property
    def passed(self) -> bool:
        """True if it is within its limit."""
        return self.error <= self.limit


class Recheck(NamedTuple):
    """The errors of all outputs."""

    errors: tuple[OutputError, ...]

    @property
    def matches(self) -> bool:
        """True if every output is within its limit."""
        return all(error.passed for error in self.errors)

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        lines = [f"{'output':<12} {'error':>10} {'limit':>10}"]
        lines += [
            f"{item.output:<12} {item.error:>10.2g} {item.limit:>10.2g}"
            f"{'' if item.passed else '  too far'}"
            for item in self.errors
        ]
        return "\n".join([*lines, "match" if self.matches else "differs"])


def rechecked(container: Container, manifest: Manifest, call: Callable[..., Any]) -> Recheck:
    """Call the module on the example and judge what it gives. Raises `GolowError` for a damaged
    file."""
    exact = tensors_of(container.mapped(CHECK_OUTPUTS), CHECK_OUTPUTS)
    found = tensors_in(manifest.nest, call(*stored_inputs(container)))
    return Recheck(
        tuple(
            OutputError(place, _error(found[place], exact[str(place)]), limit)
            for place, limit in enumerate(manifest.check.limits)
        )
    )


def stored_inputs(container: Container) -> list[np.ndarray]:
    """The inputs of the example, in their order."""
    inputs = tensors_of(container.mapped(CHECK_INPUTS), CHECK_INPUTS)
    return [inputs[str(place)].copy() for place in range(len(inputs))]


def _error(found: np.ndarray, exact: np.ndarray) -> float:
    if found.shape != exact.shape:
        return np.inf
    found, exact = found.astype(np.float64), exact.astype(np.float64)
    finite = np.isfinite(exact)
    if not np.array_equal(found[~finite], exact[~finite], equal_nan=True):
        return np.inf
    distance = found[finite] - exact[finite]
    return float(np.sqrt(np.mean(distance**2))) if distance.size else 0.0
