"""A module as `golow.compile` returns it at a direct level."""

from __future__ import annotations

from typing import Any

from golow.compiled.checking import Checked, checked
from golow.levels.called.called_module import CalledModule


class CompiledModule(CalledModule):
    """A module whose plan runs in this process, with weights of its own.

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
        return checked(self._module, self._state, found, tensors, self.target)
