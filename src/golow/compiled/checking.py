"""The check of a compiled module on the caller's inputs, in the caller's process."""

from __future__ import annotations

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
from golow.compiled.working_precision import Arithmetic, WorkingPrecision
from golow.levels.called.in_double import copied_in_double, doubled
from golow.levels.torch.in_double import InDouble
from golow.levels.torch.rounded_operations import RoundedKernels, RoundedOperations
from golow.lower.capture.module_outputs import leaves_of
from golow.records.comparison import Check
from golow.storage.scratch import scratch_folder
from golow.workload.known_causes import copied
from golow.workload.weights import load_weights


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

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        lines = [f"{'output':<12} {'error':>10} {'eager':>10} {'limit':>10}"]
        lines += [
            f"{item.name.split('/')[-1]:<12} {item.error:>10.2g} {item.eager_error:>10.2g} "
            f"{item.limit:>10.2g}{'' if item.passed else '  too far'}"
            for item in self.check.tensors
        ]
        return "\n".join([*lines, self.check.verdict, *filter(None, [self.check.reason])])


def _inferring(module: nn.Module, state: Mapping[str, Tensor]) -> nn.Module:
    """A copy of a compiled module that infers with these weights, whatever mode, type and weights
    the caller has given the module since."""
    found = copied(module)
    for layer in found.modules():
        layer.training = False
    own = {name: item.clone() for name, item in state.items()}
    load_weights(found, own, assign=True, strict=False)  # what is not a tensor is in the copy
    return found


def checked(
    module: nn.Module,
    state: Mapping[str, Tensor],
    output: Any,
    inputs: Sequence[Tensor],
    target: Arithmetic,
) -> Checked:
    """Check an output of a compiled module. module: takes these inputs by position; with these
    weights it is eager in the target's precision, and its float64 copy is the reference."""
    with scratch_folder() as folder:
        reference = CallReference(module, state, [inputs], target, folder)
        return Checked(reference.judge(named([output])), reference.exact)


class CallReference:
    """Reference for calls of a module, which checks the outputs of any level. Expensive parts run
    once, for the first level that needs them. exact: the outputs in float64, of all batches.
    named_exact: the same by the names of the check. eager: the outputs of the first batch in the
    working precision.
    """

    def __init__(
        self,
        module: nn.Module,
        state: Mapping[str, Tensor],
        batches: Sequence[Sequence[Tensor]],
        target: Arithmetic,
        folder: Path,
        *,
        rows: bool = False,
    ) -> None:
        """batches: of inputs. folder: for files, while this object is used. rows: check each row of
        the outputs separately, as a sample."""
        eager = _inferring(module, state)
        double, working = copied_in_double(eager), WorkingPrecision(target, eager)
        given = [[doubled(item) for item in inputs] for inputs in batches]
        self._folder, self._wider = folder, False
        files = {name: folder / f"{name}.safetensors" for name in ("float64", "eager")}
        with torch.inference_mode():
            with InDouble():
                exact = [double(*inputs) for inputs in given]
            self.exact = tuple(leaf for output in exact for leaf in leaves_of(output))
            self.named_exact = named(exact, rows=rows)
            _write(files["float64"], self.named_exact)
            with working.arithmetic():
                half = working.module(eager)
                found = [half(*working.inputs(list(inputs))) for inputs in batches]
            self.eager = tuple(leaves_of(found[0]))
            _write(files["eager"], named(found, rows=rows))
            self._moving = _Moving(double, given, folder, working, rows)
            self._reference = Reference(files["float64"], files["eager"], working.rounding)
            with suppress(RuntimeError):  # an operation that cannot round proves nothing
                self._reference = trusted(self._reference, self._moving.draws).reference

    def judge(self, tensors: Mapping[str, Tensor]) -> Check:
        """Return the verdict on a level's outputs, named as by `named`."""
        file = self._folder / "own.safetensors"
        _write(file, tensors)
        found = check(self._reference, file)
        if may_be_rounding(found):
            if not self._wider:
                with torch.inference_mode():
                    draws = self._moving.draws(rounded=False)
                    self._reference, self._wider = self._reference.widened(draws), True
            found = recheck(self._reference, found)
        return found


class _Moving(NamedTuple):
    """The reference on weights and inputs that are perturbed by a few roundings."""

    double: nn.Module
    batches: Sequence[Sequence[Tensor]]
    folder: Path
    working: WorkingPrecision
    rows: bool

    def draws(self, *, rounded: bool) -> Iterator[Path]:
        """The outputs of each draw. rounded: every operation rounds its result, too."""
        double, working = self.double, self.working
        state = {name: item.clone() for name, item in double.state_dict().items()}
        for draw in range(DRAWS):
            generator = torch.Generator().manual_seed(draw)
            weights = {k: _moved_by(working.rounding_of(v), v, generator) for k, v in state.items()}
            double.load_state_dict(weights)
            batches = [
                [_moved_by(working.rounding, item, generator) for item in inputs]
                for inputs in self.batches
            ]
            file = self.folder / f"moved-{draw}.safetensors"
            grid = working.rounding.grid._replace(seed=draw)
            with InDouble(), RoundedOperations(grid) if rounded else RoundedKernels(grid):
                outputs = [double(*inputs) for inputs in batches]
            _write(file, named(outputs, rows=self.rows))
            yield file
        double.load_state_dict(state)


def _moved_by(rounding: Rounding, tensor: Tensor, generator: torch.Generator) -> Tensor:
    return moved(tensor.cpu(), rounding, generator).to(tensor.device)


def named(outputs: Sequence[Any], *, rows: bool = False) -> dict[str, Tensor]:
    """Return the tensors of several outputs by the names of the check: ``0/output/1`` is the second
    tensor of the first one. rows: treat each row as an output."""
    listed = [leaves_of(output) for output in outputs]
    if rows:
        listed = [
            [leaf[row] for leaf in leaves] for leaves in listed for row in range(len(leaves[0]))
        ]
    return {
        f"{number}/output/{place}": leaf
        for number, leaves in enumerate(listed)
        for place, leaf in enumerate(leaves)
    }


def _write(file: Path, tensors: Mapping[str, Tensor]) -> None:
    save_file({name: item.contiguous().clone() for name, item in tensors.items()}, file)
