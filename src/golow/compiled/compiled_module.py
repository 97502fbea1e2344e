"""A module as `golow.compile` returns it at a direct level."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from golow.artifact.saving import Proof, require_place, save_module
from golow.compiled.checking import Checked, checked
from golow.levels.called.called_module import CalledModule
from golow.records.errors import GolowError


class CompiledModule(CalledModule):
    """A module whose plan runs in this process, with separate weights.

    Call it as the module: tensors in, tensors out. A weight that is changed in the module
    afterwards does not change it; `load_state_dict` does.
    """

    def check(self, *given: Any, **named: Any) -> Checked:
        """Compare what it gives on these inputs with the module in float64, by golow's rule: no
        farther from it than rounding explains. The weights are those that were loaded last."""
        ordered = self.inputs.ordered(given, named)
        tensors = [item.clone() for item in self.inputs.fitting(ordered)[0]]
        found = self(*given, **named)
        self.inputs.write_back(ordered, [tensors[place] for place in self.inputs.changed])
        return checked(self._module, self.state, found, tensors, self.target)

    def save(self, file: str | Path, *, weights: bool = True) -> None:
        """Write plans, kernels and the weights that were loaded last into one file, which
        `golow.load_compiled` and ``golow run`` take, without PyTorch; also the example and what the
        module makes of it in float64, for a check where it is loaded. weights: False leaves them
        out. Raises `GolowError` if the example does not pass."""
        require_place(Path(file))
        save_module(self, Path(file), weights, self._proof())

    def _proof(self) -> Proof:
        """The example at the smallest size, checked."""
        size = self.inputs.sizes[0]
        sample = self.inputs.sample(size)
        named = dict(zip(self.inputs.keywords, sample, strict=False))
        given = [item.clone() for item in sample]
        found = self.check(named) if named else self.check(*sample)
        if not found.matches:
            raise GolowError(f"the plan does not pass golow's check on the example:\n{found}")
        limits = {int(item.name.split("/")[-1]): item.limit for item in found.check.tensors}
        return Proof(size, given, found.exact, [limits[place] for place in sorted(limits)])
