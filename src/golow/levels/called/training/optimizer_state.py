"""State of the optimizer as torch.optim's state dict: out of the plans' memory and into
it."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from golow.levels.called.training.optimizer_settings import (
    FIELDS,
    Settings,
    rates_of,
    record_of,
)
from golow.levels.called.training.step_target import StepState
from golow.levels.torch.optimizers import NAMES
from golow.records.errors import GolowError
from golow.records.workload import KEPT, OptimizerState

STEPS = ("steps", "steps")


class Loaded(NamedTuple):
    """A state dict that fits: tensors by kind and parameter, the number of steps, and the learning
    rate of each group."""

    tensors: Mapping[tuple[str, str], Tensor]
    steps: int
    rates: tuple[float, ...]


class OptimizerMemory:
    """State of the optimizer for each parameter in the plans' memory. steps: how many updates were
    requested; those that a loss scale skips count here."""

    def __init__(self, settings: Settings, state: StepState, level: str) -> None:
        self._settings, self._state, self._level = settings, state, level
        self._names = NAMES[settings.optimizer.name]
        self.steps = 0

    def read(self, rates: Sequence[float]) -> dict[str, Any]:
        """The state dict, as ``load_state_dict`` of torch's optimizer takes it."""
        groups = copy.deepcopy(self._settings.groups)
        for group, rate in zip(groups, rates, strict=True):
            group["lr"] = rate
        state: dict[int, Any] = {}
        if made := self._made():
            updated = set(self._updated())
            for index, name in enumerate(self._settings.order):
                if name in updated and (entry := self._entry(name, made)):
                    state[index] = entry
        return {"state": state, "param_groups": groups}

    def fitting(self, given: Mapping[str, Any]) -> Loaded:
        """A state dict of torch's optimizer as this one takes it. Raises `GolowError` for that of
        another optimizer, or with other settings than were compiled."""
        groups, state = self._groups(given), _entries(given)
        tensors: dict[tuple[str, str], Tensor] = {}
        steps: dict[str, int] = {}
        updated = set(self._updated())
        for index, name in enumerate(self._settings.order):
            if name not in updated:
                continue
            entry = state.get(index, {})
            steps[name] = _steps(entry)
            for kind in self._settings.optimizer.keeps:
                tensors[kind, name] = self._tensor(kind, name, entry.get(self._names[kind]))
        fewest, most = min(steps, key=steps.__getitem__), max(steps, key=steps.__getitem__)
        if self._settings.optimizer.counts_steps and steps[fewest] != steps[most]:
            raise GolowError(
                f"the optimizer has counted {steps[most]} steps for {most} and {steps[fewest]} for "
                f"{fewest}; golow's training step has one count for all"
            )
        return Loaded(tensors, steps[most], rates_of(groups))

    def write(self, loaded: Loaded) -> None:
        """Take such a state."""
        self.steps = loaded.steps
        self._state.clear(KEPT)
        for key, tensor in loaded.tensors.items():
            self._state.write(key, tensor)
        if self._state.has(STEPS):
            self._state.write(STEPS, torch.tensor(float(loaded.steps)))

    def forget_sums(self) -> None:
        """Set to zero what no state dict has: sums of gradients, and the last gradients of SGD
        without momentum, which the plan multiplies by zero."""
        self._state.clear(set(KEPT) - {*self._settings.optimizer.keeps, STEPS[0]})

    def _made(self) -> int:
        """The updates that were made."""
        counted = self._state.has(STEPS)
        return int(self._state.read(STEPS)) if counted else self.steps

    def _updated(self) -> Iterator[str]:
        keeps: tuple[OptimizerState, ...] = self._settings.optimizer.keeps or ("momentum",)
        return (name for _, name in self._state.keys(keeps[0]))

    def _entry(self, name: str, made: int) -> dict[str, Tensor]:
        keeps = self._settings.optimizer.keeps
        entry = {self._names[kind]: self._state.read((kind, name)) for kind in keeps}
        if self._settings.optimizer.name != "sgd":
            entry = {"step": torch.tensor(float(made)), **entry}
        return entry

    def _groups(self, given: Mapping[str, Any]) -> list[dict[str, Any]]:
        try:
            groups = list(given["param_groups"])
            sizes = [len(group["params"]) for group in groups]
            found = record_of(self._settings.optimizer.name, groups, self._level)
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            raise _no_state(repr(error)) from error
        wanted = [len(group["params"]) for group in self._settings.groups]
        if sizes != wanted:
            raise GolowError(
                f"the optimizer's state has groups of {sizes} parameters, and this step's "
                f"optimizer has {wanted}",
                "compile with the torch.optim optimizer itself, whose groups it then has.",
            )
        kinds = [[_kind(group) for group in each] for each in (groups, self._settings.groups)]
        if kinds[0] != kinds[1]:
            raise GolowError(
                "the state belongs to a different kind of optimizer from this step's, "
                f"{self._settings.optimizer.name}"
            )
        self._require_equal(found, groups)
        return groups

    def _require_equal(self, found: Any, groups: list[dict[str, Any]]) -> None:
        own = self._settings.optimizer
        fields = ["momentum", "nesterov", "betas", "smoothing", "epsilon"]
        pairs = [(name, getattr(found, name), getattr(own, name)) for name in fields]
        pairs += [
            ("weight decay", group["weight_decay"], mine["weight_decay"])
            for group, mine in zip(groups, self._settings.groups, strict=True)
        ]
        for name, theirs, mine in pairs:
            if theirs != mine:
                raise GolowError(
                    f"the optimizer's state has {name} {theirs}, and this was compiled with {mine}",
                    "compile again with these settings; only the learning rate changes later.",
                )

    def _tensor(self, kind: OptimizerState, name: str, given: object) -> Tensor:
        shape = self._state.shape((kind, name))
        if given is None:
            return torch.zeros(shape)
        if not isinstance(given, Tensor) or tuple(given.shape) != shape:
            found = list(given.shape) if isinstance(given, Tensor) else type(given).__name__
            raise GolowError(
                f"{self._names[kind]} of {name} is {found} in the optimizer's state; the "
                f"parameter is {list(shape)}"
            )
        return given.detach().float()


def _entries(given: Mapping[str, Any]) -> Mapping[int, Mapping[str, Any]]:
    found = given.get("state")
    if not isinstance(found, Mapping) or not all(isinstance(e, Mapping) for e in found.values()):
        raise _no_state("its state is not a mapping of mappings")
    return found


def _steps(entry: Mapping[str, Any]) -> int:
    """How many steps were made of a parameter: one or more, where the optimizer does not count."""
    try:
        return int(entry.get("step", 1 if entry else 0))
    except (TypeError, ValueError, RuntimeError) as error:
        raise _no_state(f"a step is {entry['step']!r}") from error


def _no_state(why: str) -> GolowError:
    return GolowError(
        f"not a state dict of an optimizer of torch.optim: {why}",
        "give the result of optimizer.state_dict().",
    )


def _kind(group: Mapping[str, Any]) -> tuple[set[str], bool]:
    """Key that tells optimizers apart: the settings that a group has, and how weights decay."""
    return set(group) & set(FIELDS), bool(group.get("decoupled_weight_decay"))
