"""The module's weights while plans train them: its state dict, out of their memory and into it."""

from __future__ import annotations

import copy
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from golow.levels.called.given_state import StateForm
from golow.levels.called.training.step_target import StepState
from golow.lower.capture.shared_tensors import first_names
from golow.workload.known_causes import uncopied

WEIGHTS = ("parameter", "buffer")


def without_content(module: nn.Module, device: torch.device) -> nn.Module:
    """A copy whose parameters and saved buffers hold nothing, on this device; on a CPU they take no
    memory until something is written to them. Raises `GolowError` for a module that cannot be
    copied."""
    weights = module.state_dict(keep_vars=True).values()
    empty = {id(item): _like(item, device) for item in weights if isinstance(item, Tensor)}
    try:
        return copy.deepcopy(module, empty)
    except Exception as error:
        hint = "golow keeps a copy of its layers, which later batch sizes are built from."
        raise uncopied(error, hint) from error


def _like(item: Tensor, device: torch.device) -> Tensor:
    empty = torch.empty_like(item, requires_grad=False, device=device)
    if isinstance(item, nn.Parameter):
        return nn.Parameter(empty, requires_grad=item.requires_grad)
    return empty


class ModuleWeights:
    """The weights of a module. state: the plans' memory; what no plan changes may be beside it.

    module: has the form of the state dict. content: its first content.
    """

    def __init__(self, module: nn.Module, content: Mapping[str, Tensor], state: StepState) -> None:
        self._form, self._first, self._state = StateForm(module), first_names(module), state
        self._module, self._beside, self._owned = module, dict(content), False

    def adopt(self) -> None:
        """Write into the plans' memory what a plan has since the last time."""
        for name in list(self._beside):
            if (key := self._key(name)) is not None:
                self._state.write(key, self._beside.pop(name))
        self._state.settle()
        if not self._owned:
            self._beside = {name: item.detach().clone() for name, item in self._beside.items()}
            self._owned = True

    @property
    def beside(self) -> Mapping[str, Tensor]:
        """Weights that no plan changes."""
        return self._beside

    def read(self) -> dict[str, Tensor]:
        """The state dict, as copies that stay."""
        found: dict[str, Tensor] = self._module.state_dict()  # with the versions of its layers
        made: dict[str, Tensor] = {}
        for name, item in list(found.items()):
            if not isinstance(item, Tensor):  # of get_extra_state
                continue
            first = self._first.get(name, name)
            key = self._key(name)
            if first not in made:
                beside = self._beside.get(name)
                made[first] = (
                    self._state.read(key) if key is not None
                    else _held(beside).clone()
                )  # fmt: skip
            found[name] = made[first]
        return found

    def fitting(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """A state dict of the caller's in the module's types. Raises `GolowError` for that of
        another module."""
        return self._form.fitting(state)

    def write(self, fitting: Mapping[str, Tensor]) -> None:
        """Take such weights."""
        for name, item in fitting.items():
            if (key := self._key(name)) is not None:
                self._state.write(key, item)
            else:
                self._beside[name] = item.detach().to(self._beside[name].device, copy=True)
        self._state.settle()

    def _key(self, name: str) -> tuple[str, str] | None:
        target = self._first.get(name, name)
        return next(((kind, target) for kind in WEIGHTS if self._state.has((kind, target))), None)


def _held(item: Tensor | None) -> Tensor:
    if item is None:
        raise LookupError("a weight belongs to no plan")
    return item
