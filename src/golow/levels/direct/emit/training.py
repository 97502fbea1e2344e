"""Description of the training step to write: its plans, inputs, outputs and state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, NamedTuple

import numpy as np

from golow.levels.direct.emit.network import End, Network, Plan, Sized, identifier, shown

SCRATCH = "scratch"
RATE = "learning_rate"


class Held(NamedTuple):
    """A tensor that training changes. kind: of the graph's inputs; ``scratch`` for one that no file
    has. end: its name in files and its form there. bytes: in memory, in the plans' layout. place:
    what the level's C++ says of its memory."""

    kind: str
    end: End
    bytes: int
    place: str


class TrainingNetwork(NamedTuple, Generic[Plan]):
    """title: the network's name. plans: by batch, the largest last. evaluation: the network in
    inference. state: in the order in which plans count it. beside: weights that no plan reads.
    rate: the learning rate at first. optimizer: in words. threads: of every call on a CPU. weights:
    the state dict. example: batches, as ``K/NAME``. expected: the losses of these steps, the state
    after them, and the outputs of evaluation with it, as ``K/NAME``."""

    title: str
    plans: Mapping[int, Sized[Plan]]
    evaluation: Network[Any]
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
