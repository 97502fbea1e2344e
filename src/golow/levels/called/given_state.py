"""A state dict that a caller gives, as the weights of a module that has another one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from torch import Tensor, nn

from golow.records.errors import GolowError


class StateForm:
    """Names, shapes and types of a module's state dict, and which names are of one tensor. What is
    not a tensor (``get_extra_state``) is not read."""

    def __init__(self, module: nn.Module) -> None:
        whole = module.state_dict(keep_vars=True)
        own = tensors_in(whole)
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


class GivenTensors:
    """The tensors of a state dict that a plan took, in the memory of whoever gave them."""

    def __init__(self, state: Mapping[str, Tensor]) -> None:
        self._given = [(name, item, written(item)) for name, item in state.items()]

    def require_unchanged(self) -> None:
        """Raise `GolowError` for one that was written since, with its name."""
        for name, item, before in self._given:
            if written(item) != before:
                raise GolowError(
                    f"{name} was written since the plan took it, so that there is nothing to "
                    "compare the plan with",
                    "call f.load_state_dict(model.state_dict()) first.",
                )


def written(tensor: Tensor) -> int:
    """How often a tensor was written, as autograd counts it; of one that it does not count, -1."""
    return -1 if tensor.is_inference() else tensor._version


def tensors_in(state: Mapping[str, object]) -> dict[str, Tensor]:
    """The tensors of a state dict, without what else a module keeps there (``get_extra_state``)."""
    return {name: item for name, item in state.items() if isinstance(item, Tensor)}


def tied_names(state: Mapping[str, Tensor]) -> dict[str, tuple[str, ...]]:
    """The other names of each weight that has several."""
    names: dict[object, list[str]] = defaultdict(list)
    for name, item in state.items():
        names[item.data_ptr(), item.shape, item.stride(), item.dtype].append(name)
    groups = [group for group in names.values() if len(group) > 1]
    return {name: tuple(n for n in group if n != name) for group in groups for name in group}


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
