"""The steps from a module to its plans."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from golow.levels.called.call_inputs import CallInputs
from golow.levels.called.called_module import CalledModule, Parts
from golow.levels.called.changed_inputs import places_changed, returning_changes
from golow.levels.called.kept_graphs import KeptGraphs
from golow.levels.called.one_size import OneSize
from golow.levels.called.outputs import Outputs
from golow.levels.called.sizes import Size, in_words
from golow.levels.called.target import Target, roomy
from golow.lower.capture.module_outputs import Structure, flattened, leaves_of
from golow.observer import Observer
from golow.records.errors import GolowError, Unsupported

# Relative distances to the module up to which a plan of a kept graph is believed.
FLOAT, HALF, TINY = 1e-3, 5e-2, 1e-30


class Assembly:
    """The plans of a module, under way. kept: whether a graph came from the cache. length_axes: for
    each output, the axes that have the length of text."""

    def __init__(
        self,
        module: nn.Module,
        inputs: CallInputs,
        target: Target,
        cache: Path,
        tune: bool,
        observer: Observer,
    ) -> None:
        self._module, self._inputs, self._target = module, inputs, target
        self._cache, self._tune, self._observer = cache, tune, observer
        self._outputs: dict[Size, list[Tensor]] = {}
        self.length_axes: Sequence[tuple[int, ...]] = ()
        self._structure: Structure
        self.kept = False

    def run_module(self, size: Size) -> None:
        """Run the module once: what it returns is what its plan must return. Raises `GolowError`
        if it does not take the example, or returns what is no tensor."""
        if size in self._outputs:
            return
        self._observer.stage(f"running the module on {in_words(size)}")
        sample = [item.detach().clone() for item in self._inputs.sample(size)]
        before = [item._version for item in sample]
        with torch.inference_mode():
            output = self._output(sample)
        leaves, self._structure = flattened(output)
        _require_tensors(leaves)
        self._outputs[size] = leaves
        changed = places_changed(before, sample) | {*self._inputs.changed}
        self._inputs.changed = tuple(sorted(changed))

    @property
    def module(self) -> nn.Module:
        """The module as one that also returns the inputs that it changes."""
        return returning_changes(self._module, self._inputs.changed)

    def _output(self, sample: Sequence[Tensor]) -> Any:
        try:
            return self._module(*sample)
        except Exception as error:
            first = str(error).strip().partition("\n")[0]
            raise GolowError(
                f"the module does not run on the example: {type(error).__name__}: {first}",
                "give inputs that the module takes.",
            ) from error

    def parts(self, anew: bool = False) -> Parts:
        """Capture or read the graphs, and build the plans. anew: captures all of them."""
        inputs, target = self._inputs, self._target
        for size in inputs.sizes:
            self.run_module(size)
        sizes = {size: self._lowered(size, anew) for size in inputs.sizes}
        target.building()
        plans, weights = {}, target.shared_weights()
        state = self._module.state_dict()
        for size, one in sizes.items():
            self._observer.stage(f"building the plan of {in_words(size)}")
            with _explained(target.level), roomy():
                sample = inputs.sample(size)
                plans[size] = target.build(
                    one.graph,
                    one.reading(state, target.array),
                    sample,
                    [*self._outputs[size], *(sample[place] for place in inputs.changed)],
                    self._cache,
                    self._tune,
                )
                if len(sizes) > 1 or target.shares:
                    plans[size].share(weights)
        outputs = Outputs(self._structure, self._outputs, target.device, self.length_axes)
        return Parts(self._module, inputs, outputs, sizes, plans, weights, target)

    def agrees(self, made: CalledModule) -> bool:
        """Whether the plans compute what the module does on the example, as far as a glance tells;
        `golow.compile(...).check` looks closely."""
        limit = HALF if self._target.precision in ("bf16", "fp16") else FLOAT
        for size in self._inputs.sizes:
            found = leaves_of(made(*self._inputs.sample(size)))
            pairs = zip(found, self._outputs[size], strict=True)
            if not all(_is_near(one, other, limit) for one, other in pairs):
                return False
        return True

    def _lowered(self, size: Size, anew: bool) -> OneSize:
        kept = None if anew else self._graphs.read(size)
        if kept is not None:
            self.kept = True
            return kept
        from golow.levels.called.lowering import lowered

        self._observer.stage(f"capturing {in_words(size)}")
        target = self._target
        one = lowered(self._captured, target.captured_with(self._inputs.sample(size)), target)
        with _explained(target.level):
            target.require_runnable(one.graph)
        self._graphs.write(size, one)
        return one

    @cached_property
    def _graphs(self) -> KeptGraphs:
        target, inputs = self._target, self._inputs
        forms = target.level, target.precision, target.threads, inputs.names, inputs.forms
        return KeptGraphs(self._cache, self._module, *forms, inputs.changed)

    @cached_property
    def _captured(self) -> nn.Module:
        return self._target.captured_as(self.module)


def _is_near(found: Tensor, wanted: Tensor, limit: float) -> bool:
    """Whether floating-point numbers are as near as rounding lets them be in most networks;
    integers may be indices of equal values, and are not compared."""
    if not wanted.is_floating_point():
        return True
    distance = torch.nan_to_num(found.double() - wanted.double())
    return bool(distance.norm() <= limit * torch.nan_to_num(wanted.double()).norm() + TINY)


def _require_tensors(leaves: Sequence[Any]) -> None:
    other = [type(leaf).__name__ for leaf in leaves if not isinstance(leaf, Tensor)]
    if other:
        raise GolowError(
            f"the module returns {other[0]}, which is no tensor",
            "wrap the module in one that returns tensors alone.",
        )


@contextmanager
def _explained(level: str) -> Iterator[None]:
    """Turn what the level does not support into an error that names the levels to ask."""
    try:
        yield
    except Unsupported as error:
        raise GolowError(
            f"{level} cannot run it: {error}",
            "golow levels --support MODEL lists the levels that run it.",
        ) from error
