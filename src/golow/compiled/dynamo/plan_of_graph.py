"""A graph's plan at one set of sizes, on the tensors of a call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from golow.compiled.dynamo.concrete_graph import ConcreteGraph
from golow.compiled.dynamo.returned import Empty, Known, Made, OfInput
from golow.compiled.dynamo.watched_weights import WatchedWeights
from golow.levels.called.new_tensors import allocator, row_major
from golow.levels.called.target import Target
from golow.levels.direct.bundle_arrays import Read
from golow.storage.cache import open_cache

CHECKED_CALLS = 2
"""This many of a plan's first calls are compared with PyTorch's: a first one may be on zeros. So is
the first one with other weights."""


class PlanOfGraph:
    """A plan with the weights of one call, in its own memory. One call may run at a time.

    weights: what it has folded and laid out. unchecked: calls that are still to be compared with
    PyTorch.
    """

    def __init__(
        self, one: ConcreteGraph, given: Sequence[Any], weights: Sequence[int], target: Target
    ) -> None:
        self._target, self._returned = target, one.returned
        self._constants = one.constants
        self.weights = WatchedWeights(weights, given)
        self._inputs = [
            (k, item.is_contiguous())
            for k, item in enumerate(given)
            if isinstance(item, Tensor) and k not in weights
        ]
        self._makers = [_maker(form, target.device) for form in one.returned.forms]
        sample = self._plain(given)
        outputs = [make() for make, _ in self._makers]
        target.building()
        self._plan = target.build(
            one.graph, self._reading(given), sample, outputs, open_cache(), False
        )
        self._run = target.running(self._plan, target.arena(self._plan.plan.sizes["arena"], 1))
        self.unchecked, self._loaded = CHECKED_CALLS, False

    def load(self, given: Sequence[Any]) -> None:
        """Take the weights of a call."""
        self._target.building()
        self._plan.load(self._reading(given))
        self.weights.take(given)
        if not self._loaded:
            self.unchecked, self._loaded = max(self.unchecked, 1), True

    def __call__(self, given: Sequence[Any]) -> list[Any]:
        """Run it on the inputs of a call; they have the sizes and strides for which it was built,
        and the weights that it has."""
        inputs = self._plain(given)
        made = [make() for make, _ in self._makers]
        self._run([item.data_ptr() for item in inputs], [item.data_ptr() for item in made])
        finished = [finish(item) for item, (_, finish) in zip(made, self._makers, strict=True)]
        return [self._output(item, given, finished) for item in self._returned.outputs]

    def _plain(self, given: Sequence[Any]) -> list[Tensor]:
        """The inputs of a call, row-major."""
        return [given[k] if plain else given[k].detach().contiguous() for k, plain in self._inputs]

    def _reading(self, given: Sequence[Any]) -> Read:
        def read(kind: str, name: str) -> Any:
            tensor = self._constants[name] if kind == "constant" else given[int(name)]
            return self._target.array(tensor.detach())

        return read

    def _output(self, item: Any, given: Sequence[Any], made: Sequence[Tensor]) -> Any:
        if type(item) is Made:
            return made[item.number]
        if type(item) is Known:
            return item.value
        if type(item) is Empty:
            form, device = item.form, self._target.device
            return torch.empty_strided(form.shape, form.stride(), dtype=form.dtype, device=device)
        source = given if type(item) is OfInput else made
        return item.view.of(source[item.view.source])


def _maker(
    form: Tensor, device: torch.device
) -> tuple[Callable[[], Tensor], Callable[[Tensor], Tensor]]:
    """Functions that allocate memory for an output of the plan and construct the output from it: a
    plan writes row-major."""
    new, dtype = allocator(device), form.dtype
    shape, strides = tuple(form.shape), tuple(form.stride())
    if form.is_contiguous():
        return (lambda: new(shape, strides, dtype)), (lambda made: made)
    return (
        lambda: new(shape, row_major(shape), dtype),
        lambda made: new(shape, strides, dtype).copy_(made),
    )
