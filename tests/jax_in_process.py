"""The level `jax` in the test's own process: `compute` writes and runs the real source."""

from __future__ import annotations

from golow.levels import jax as level
from golow.levels.jax.execution import Execution
from in_process import Network, Tensors
from source_in_process import compute as compute_by
from source_in_process import lower

__all__ = ["compute", "lower"]


def compute(network: Network) -> Tensors:
    """What the level gives in `STEPS` iterations, by ``STEP/KIND/TARGET``."""
    return compute_by(network, level.source, Execution)
