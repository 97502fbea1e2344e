"""Weights whose content a plan has folded and laid out anew: whether it is still the same.

They are inputs of the graph, so that a call states where they are. Autograd counts the changes of a
tensor, but not those through ``.data`` and NumPy, as old optimizers, merged adapters (LoRA) and
averages of weights make them. So a few elements of each weight are compared as well.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from golow.compiled.dynamo.worth import PLAIN

SAMPLES = 16  # elements of each weight
OURS = 3  # uses of memory that is not shared: the tensor's, its samples' and the question's

Change = Literal["none", "content", "other tensors"]


def is_watchable(item: Any) -> bool:
    """True if changes of an input can be seen: autograd counts them, and its elements fill one
    piece of memory."""
    return (
        type(item) in PLAIN
        and not item.is_inference()
        and item.numel() > 0
        and torch.empty_like(item, device="meta").stride() == item.stride()
    )


class WatchedWeights:
    """The weights at some places of a graph's inputs, as a plan took them last."""

    def __init__(self, places: Sequence[int], given: Sequence[Any]) -> None:
        self.places = tuple(places)
        self.take(given)

    def take(self, given: Sequence[Any]) -> None:
        """Remember what the plan has from now on."""
        # They keep the memory from being another tensor's at the same address.
        self.tensors: list[Tensor] = [given[k].detach() for k in self.places]
        self._addresses = [item.data_ptr() for item in self.tensors]
        self._versions = [given[k]._version for k in self.places]
        by_type: dict[torch.dtype, list[np.ndarray]] = defaultdict(list)
        for item in self.tensors:
            flat = item.as_strided((item.numel(),), (1,)).numpy()
            by_type[item.dtype].append(flat[:: max(1, flat.size // SAMPLES)])
        self._samples = list(by_type.values())
        self._content = self._sampled()

    def change(self, given: Sequence[Any]) -> Change:
        """Say how the inputs of a call differ from what the plan has."""
        weights = [given[k] for k in self.places]
        if [item.data_ptr() for item in weights] != self._addresses:
            return "other tensors"
        if [item._version for item in weights] != self._versions:
            return "content"
        return "none" if self._sampled() == self._content else "content"

    def _sampled(self) -> list[bytes]:
        return [np.concatenate(arrays).tobytes() for arrays in self._samples]

    def are_in_use(self, given: Sequence[Any]) -> bool:
        """True if another object still refers to a weight that a call replaces: then
        they are another model's, or come back."""
        pairs = zip(self.tensors, self.places, strict=True)
        gone = [item for item, k in pairs if item.data_ptr() != given[k].data_ptr()]
        count = torch._C._storage_Use_Count
        return any(count(item.untyped_storage()._cdata) > OURS for item in gone)
