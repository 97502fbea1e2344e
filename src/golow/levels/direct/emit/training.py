"""Description of the training step to write: its plans, inputs, outputs and state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, NamedTuple

import numpy as np

from golow.levels.direct.emit.network import End, Plan, Sized, identifier, shown

SCRATCH = "scratch"
RATE = "learning_rate"


class Held(NamedTuple):
    """A tensor that training changes. kind: of the graph's inputs; ``scratch`` for one that no file
    has. end: its name in files and its form there. bytes: in memory, in the plans' layout."""

    kind: str
    end: End
    bytes: int


class TrainingNetwork(NamedTuple, Generic[Plan]):
    """title: the network's name. plans: by batch, the largest last. state: in the order in which
    plans count it. beside: weights that no plan reads. rate: the learning rate at first.
    optimizer: in words. threads: of every call on a CPU. weights: the state dict. example: batches,
    as ``K/NAME``. expected: the losses of these steps, and the state behind them."""

    title: str
    plans: Mapping[int, Sized[Plan]]
    inputs: tuple[End, ...]
    targets: tuple[End, ...]
    state: tuple[Held, ...]
    beside: tuple[End, ...]
    rate: float
    optimizer: str
    threads: int
    weights: Mapping[str, np.ndarray]
    example: Mapping[str, np.ndarray]
    expected: Mapping[str, np.ndarray]

    @property
    def name(self) -> str:
        """The title as an identifier of C."""
        return identifier(self.title) or "network"

    @property
    def shown(self) -> str:
        """The title for comments."""
        return shown(self.title)
