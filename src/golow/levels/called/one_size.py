"""The lowered graph of one batch size, and the arrays that its plan reads."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from golow.levels.direct.bundle_arrays import Read, in_pairs
from golow.lower.ir.graph import Graph
from golow.workload.keywords import accept_keywords


class OneSize(NamedTuple):
    """A graph after a level's passes, and the tensors beside weights that it reads."""

    graph: Graph
    constants: Mapping[str, Tensor]

    def reading(self, state: Mapping[str, Tensor]) -> Read:
        """Return what gives a plan its parameters and buffers from a state dict."""

        def read(kind: str, target: str) -> np.ndarray:
            tensor = self.constants[target] if kind == "constant" else state[target]
            return in_pairs(_widened(tensor.detach()).cpu().contiguous().numpy())

        return read


def _widened(tensor: Tensor) -> Tensor:
    """Half precision as float32, as graphs have it."""
    return tensor.float() if tensor.dtype in (torch.bfloat16, torch.float16) else tensor


def by_position(module: nn.Module, keywords: tuple[str, ...]) -> nn.Module:
    """The module as one that takes a tuple of inputs. It shares layers and weights with the given
    one, which stays as it is."""
    if not keywords:
        return module
    view = copy.copy(module)
    accept_keywords(view, keywords, {})
    return view
