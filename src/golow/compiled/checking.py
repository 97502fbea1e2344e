"""The check of a compiled module on the caller's inputs, in the caller's process."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from golow.check.moved_bundle import moved
from golow.check.reference import DRAWS
from golow.check.rounding import Rounding
from golow.check.rule import Reference, check, may_be_rounding, recheck
from golow.check.trust import trusted
from golow.compiled.working_precision import WorkingPrecision
from golow.levels.called.in_double import copied_in_double, doubled
from golow.levels.called.target import Target
from golow.levels.torch.rounded_operations import RoundedKernels, RoundedOperations
from golow.lower.capture.module_outputs import leaves_of
from golow.records.comparison import Check
from golow.storage.scratch import scratch_folder


class Checked(NamedTuple):
    """The verdict, and the error of each output against its limit.

    exact: the outputs in float64.
    """

    check: Check
    exact: tuple[Tensor, ...]

    @property
    def matches(self) -> bool:
        """True if rounding explains every error."""
        return self.check.verdict == "match"

    def __str__(self) -> str:
        lines = [f"{'output':<12} {'error':>10} {'eager':>10} {'limit':>10}"]
        lines += [
            f"{item.name.split('/')[-1]:<12} {item.error:>10.2g} {item.eager_error:>10.2g} "
            f"{item.limit:>10.2g}{'' if item.passed else '  too far'}"
            for item in self.check.tensors
        ]
        return "\n".join([*lines, self.check.verdict, *filter(None, [self.check.reason])])


def checked(
    module: nn.Module,
    state: Mapping[str, Tensor],
    output: Any,
    inputs: Sequence[Tensor],
    target: Target,
) -> Checked:
    """Judge an output of a compiled module. module: takes these inputs by position; with these
    weights, in the target's precision, it is eager, and its copy in float64 the reference."""
    eager = copy.deepcopy(module)
    eager.load_state_dict(state)
    double, working = copied_in_double(eager), WorkingPrecision(target, eager)
    given = [doubled(item) for item in inputs]
    with scratch_folder() as folder, torch.inference_mode():
        files = {name: folder / f"{name}.safetensors" for name in ("float64", "eager", "own")}
        exact = double(*given)
        _write(files["float64"], exact)
        with working.arithmetic():
            _write(files["eager"], working.module(eager)(*working.inputs(list(inputs))))
        _write(files["own"], output)
        moving = _Moving(double, given, folder, working)
        reference = Reference(files["float64"], files["eager"], working.rounding)
        with suppress(RuntimeError):  # an operation that cannot round proves nothing
            reference = trusted(reference, moving.draws).reference
        found = check(reference, files["own"])
        if may_be_rounding(found):
            found = recheck(reference.widened(moving.draws(rounded=False)), found)
    return Checked(found, tuple(leaves_of(exact)))


class _Moving(NamedTuple):
    """The reference on weights and inputs that are moved by a few roundings."""

    double: nn.Module
    inputs: Sequence[Tensor]
    folder: Path
    working: WorkingPrecision

    def draws(self, *, rounded: bool) -> Iterator[Path]:
        """The outputs of each draw. rounded: every operation rounds its result, too."""
        double, working = self.double, self.working
        state = {name: item.clone() for name, item in double.state_dict().items()}
        for draw in range(DRAWS):
            generator = torch.Generator().manual_seed(draw)
            weights = {k: _moved_by(working.rounding_of(v), v, generator) for k, v in state.items()}
            double.load_state_dict(weights)
            inputs = [_moved_by(working.rounding, item, generator) for item in self.inputs]
            file = self.folder / f"moved-{draw}.safetensors"
            grid = working.rounding.grid._replace(seed=draw)
            with RoundedOperations(grid) if rounded else RoundedKernels(grid):
                output = double(*inputs)
            _write(file, output)
            yield file
        double.load_state_dict(state)


def _moved_by(rounding: Rounding, tensor: Tensor, generator: torch.Generator) -> Tensor:
    return moved(tensor.cpu(), rounding, generator).to(tensor.device)


def _write(file: Path, output: Any) -> None:
    tensors = {f"0/output/{k}": leaf.contiguous() for k, leaf in enumerate(leaves_of(output))}
    save_file({name: item.clone() for name, item in tensors.items()}, file)
