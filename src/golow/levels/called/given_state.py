"""A state dict that a caller gives, as the weights of a module that has another one."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn

from golow.records.errors import GolowError


class StateForm:
    """Names, shapes and types of a module's state dict, and which names are of one tensor. What is
    not a tensor (``get_extra_state``) is not read."""

    def __init__(self, module: nn.Module) -> None:
        whole = module.state_dict(keep_vars=True)
        own = {name: item for name, item in whole.items() if isinstance(item, Tensor)}
        self._other = whole.keys() - own.keys()
        last = {id(item): name for name, item in own.items()}
        # As in PyTorch, whose module copies each name's tensor, one after the other.
        self._read_from = {name: last[id(item)] for name, item in own.items()}
        self._forms = {name: (item.shape, item.dtype) for name, item in own.items()}

    def fitting(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the state in the module's types. Raises `GolowError` for that of another module,
        and for what is not a tensor with content."""
        if not isinstance(state, Mapping):
            raise GolowError(
                f"the state dict is {type(state).__name__}", "give module.state_dict()."
            )
        missing = [name for name in self._forms if name not in state]
        unknown = [name for name in state if name not in self._forms and name not in self._other]
        if missing or unknown:
            what = f"{missing[0]} is missing" if missing else f"{unknown[0]} is not the module's"
            raise GolowError(f"the state dict does not fit this module: {what}")
        for name, (shape, _) in self._forms.items():
            _require_fitting(name, state[name], shape, self._forms[name][1].is_floating_point)
        return {
            name: state[source].detach().to(self._forms[name][1])
            for name, source in self._read_from.items()
        }


def _require_fitting(name: str, given: object, shape: tuple[int, ...], floating: bool) -> None:
    if not isinstance(given, Tensor) or given.is_meta:
        kind = "on the meta device" if isinstance(given, Tensor) else type(given).__name__
        raise GolowError(f"{name} is {kind} in the state dict, not a tensor with content")
    if given.shape != shape:
        found, wanted = list(given.shape), list(shape)
        raise GolowError(f"{name} is {found} in the state dict; the module's is {wanted}")
    if floating and not given.is_floating_point():
        raise GolowError(
            f"{name} is {str(given.dtype).removeprefix('torch.')} in the state dict; the module's "
            "is a floating-point number"
        )
