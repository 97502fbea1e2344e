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

    Call it as the module: tensors in, tensors out. Later changes to the module's weights do not
    affect it; `load_state_dict` does.
    """

    def check(self, *given: Any, **named: Any) -> Checked:
        """Compare the outputs for these inputs with those of the module in float64, by golow's
        rule: they may differ by no more than rounding explains. Uses the weights loaded last."""
        self.require_given_weights()
        ordered = self.inputs.ordered(given, named)
        tensors = [item.clone() for item in self.inputs.fitting(ordered)[0]]
        found = self(*given, **named)
        self.inputs.write_back(ordered, [tensors[place] for place in self.inputs.changed])
        return checked(self._module, self.state, found, tensors, self.target)

    def save(self, file: str | Path, *, weights: bool = True) -> None:
        """Write plans, kernels and the weights loaded last into one file, which
        `golow.load_compiled` and ``golow run`` read without PyTorch. The file also has the example
        and the module's float64 outputs for it, for a check on the loading machine. weights: False
        omits the weights. Raises `GolowError` if the example does not pass the check."""
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
