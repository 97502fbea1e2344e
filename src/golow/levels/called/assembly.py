"""The steps from a module to its plans."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from golow.levels.called.attribute_state import require_stateless
from golow.levels.called.call_inputs import CallInputs
from golow.levels.called.called_module import CalledModule, Parts
from golow.levels.called.changed_inputs import places_changed, returning_changes
from golow.levels.called.kept_graphs import KeptGraphs
from golow.levels.called.one_size import OneSize
from golow.levels.called.outputs import Outputs
from golow.levels.called.sizes import Size, in_words
from golow.levels.called.target import Target, explained, roomy
from golow.lower.capture.module_outputs import Structure, flattened, leaves_of
from golow.observer import Observer
from golow.records.errors import GolowError
from golow.records.workload import Precision
from golow.workload.known_causes import explained_cause

# Distance to the module, over its largest element, up to which the plan of a kept graph is taken.
NEAR: dict[Precision, float] = {
    "default": 1e-3, "ieee": 1e-4, "tf32": 1e-2, "bf16": 5e-2, "fp16": 1e-2,
}  # fmt: skip
# From this distance on, over the whole output's size, a plan computes something else.
FAR, TINY = 0.3, 1e-30


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
        self._draws = False
        self.kept = False

    def run_module(self, size: Size) -> None:
        """Run the module once: what it returns is what its plan must return. Raises `GolowError`
        if it does not take the example, or returns what is not a tensor."""
        if size in self._outputs:
            return
        self._observer.stage(f"running the module on {in_words(size)}")
        changed = {*self._inputs.changed}
        before_draws = torch.get_rng_state()

        def run() -> Any:
            sample = [item.detach().clone() for item in self._inputs.sample(size)]
            before = [item._version for item in sample]
            output = self._output(sample)
            changed.update(places_changed(before, sample))
            return output

        leaves, self._structure = flattened(require_stateless(self._module, run))
        _require_tensors(leaves)
        self._draws = not torch.equal(before_draws, torch.get_rng_state())
        self._outputs[size] = leaves
        self._inputs.changed = tuple(sorted(changed))

    @property
    def module(self) -> nn.Module:
        """The module as one that also returns the inputs that it changes."""
        return returning_changes(self._module, self._inputs.changed)

    def _output(self, sample: Sequence[Tensor]) -> Any:
        try:
            return self._module(*sample)
        except Exception as error:
            if (cause := explained_cause(error)) is not None:
                raise cause from error
            first = str(error).strip().partition("\n")[0]
            names = ", ".join(self._inputs.parameters)
            raise GolowError(
                f"the module does not run on the example: {type(error).__name__}: {first}",
                f"give inputs as its forward({names}) takes them: in order, or by name as a "
                "mapping.",
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
            with explained(target.level), roomy():
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
        """Return True if the plans give on the example what the module does. This is a glance:
        `check` looks closely, and rounding alone may make it False."""
        limit = NEAR[self._target.precision]
        return all(_is_same(*pair, limit) for _, _, pair in self._pairs(made))

    def require_agreement(self, made: CalledModule) -> None:
        """Raise `GolowError` for plans that compute something else on the example."""
        for size, place, (found, wanted) in self._pairs(made):
            if wanted.is_floating_point() and _distance(found, wanted) > FAR:
                raise GolowError(
                    f"the plan of {in_words(size)} does not compute what the module computes: "
                    f"output {place} of the example is off by {_distance(found, wanted):.0%}",
                    "a module that keeps state in attributes, draws random numbers or does "
                    "something else while it is exported cannot be compiled.",
                )

    def _pairs(self, made: CalledModule) -> Iterator[tuple[Size, int, tuple[Tensor, Tensor]]]:
        for size in self._inputs.sizes:
            sample = self._inputs.sample(size)
            named = dict(zip(self._inputs.keywords, sample, strict=False))
            found = leaves_of(made(named) if named else made(*sample))
            for place, pair in enumerate(zip(found, self._outputs[size], strict=True)):
                yield size, place, pair

    def _lowered(self, size: Size, anew: bool) -> OneSize:
        kept = None if anew else self._graphs.read(size)
        if kept is not None:
            self.kept = True
            return kept
        from golow.levels.called.lowering import lowered

        self._observer.stage(f"capturing {in_words(size)}")
        target = self._target
        one = lowered(self._captured, target.captured_with(self._inputs.sample(size)), target)
        with explained(target.level, self._draws):
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


def _is_same(found: Tensor, wanted: Tensor, limit: float) -> bool:
    """Return True for elements as near as rounding mostly leaves them, and equal integers."""
    if not wanted.is_floating_point():
        return torch.equal(found, wanted)
    finite = wanted.isfinite()
    if not torch.equal(found[~finite].nan_to_num(), wanted[~finite].nan_to_num()):
        return False
    distance = (found[finite].double() - wanted[finite].double()).abs()
    largest = wanted[finite].abs().double()
    return not distance.numel() or bool(distance.max() <= limit * largest.max())


def _distance(found: Tensor, wanted: Tensor) -> float:
    """The distance of finite elements over their size."""
    finite = wanted.isfinite() & found.isfinite()
    distance = (found[finite].double() - wanted[finite].double()).norm()
    return float(distance / (wanted[finite].double().norm() + TINY))


def _require_tensors(leaves: Sequence[Any]) -> None:
    if not leaves:
        raise GolowError("the module returns no tensor, so that there is nothing to compute")
    other = [type(leaf).__name__ for leaf in leaves if not isinstance(leaf, Tensor)]
    if other:
        raise GolowError(
            f"the module returns {other[0]}, which is not a tensor",
            "wrap the module in one that returns only tensors.",
        )
