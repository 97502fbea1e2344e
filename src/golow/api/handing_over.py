"""`Result.compile`: a level of a finished comparison in the user's own program."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from golow.api.progress import shown_progress
from golow.compiled.callable_levels import is_callable
from golow.levels.ladder import ALIASES, BASELINE
from golow.observer import Observer
from golow.programs.comparison.recommended import recommended
from golow.programs.comparison.repeat_request import same_request
from golow.records.comparison import Comparison
from golow.records.errors import GolowError
from golow.records.workload import Device
from golow.workload.request import Inputs, Request

if TYPE_CHECKING:
    from torch import nn

    from golow.api.explained_module import ExplainedModule
    from golow.compiled.handed_over import HandedOver

HOW_TO_GIVE = "pass both, as to golow.compile: result.compile(model, x)."


class Material(NamedTuple):
    """Material from which a level is built.

    request: that of the comparison, if it is of this module.
    """

    module: nn.Module
    inputs: Inputs
    request: Request | None = None


def compile_result(
    comparison: Comparison,
    request: Request | None,
    model: nn.Module | None,
    inputs: Inputs | None,
    *,
    level: str | None,
    cache: Path | None,
    observer: Observer | None,
    quiet: bool,
) -> ExplainedModule | HandedOver:
    """Build a level of the comparison again in this process; the arguments are those of
    `Result.compile`. request: the request that was compared; None for a loaded record."""
    name = _level(comparison, level)
    from golow.api.explained_module import ExplainedModule
    from golow.compiled.at_level import compile_at_level
    from golow.levels.called.wanted import Wanted

    with shown_progress("comparison", observer, quiet) as display:
        display.stage("building the model")
        made = _on_device(_material(comparison, request, model, inputs), comparison.workload.device)
        workload = comparison.workload
        wanted = Wanted(
            level=name, precision=workload.precision, threads=workload.threads, cache=cache
        )
        return compile_at_level(
            ExplainedModule, made.module, made.inputs, wanted, display, made.request
        )


def _level(comparison: Comparison, wanted: str | None) -> str:
    """Return the level to build. Raises `GolowError`, which lists the possible ones, if it cannot
    be built."""
    if comparison.workload.mode != "infer":
        raise GolowError(
            "this comparison timed training steps, and a compiled module only runs inference",
            "to train with a plan: golow.compile_step(model, loss, optimizer=optimizer, example=(x,"
            ' y)); for inference, compare without mode="train".',
        )
    device, verdicts = comparison.workload.device, _verdicts(comparison)
    best = recommended(comparison)
    name = wanted or (best.level if best is not None else BASELINE)
    name = ALIASES[name][device] if name in ALIASES else name
    if name not in verdicts:
        reason = f"{name} was not compared"
    elif verdicts[name]:
        reason = f"{name} did not match: {verdicts[name]}"
    elif not is_callable(name, device):
        reason = f"{name} runs only in golow's worker" + ("" if wanted else ", and is the fastest")
    else:
        return name
    can = [one for one, why in verdicts.items() if not why and is_callable(one, device)]
    hint = f"use level= with one of {', '.join(can)}." if can else "compare it at other levels."
    raise GolowError(reason, hint)


def _verdicts(comparison: Comparison) -> dict[str, str]:
    """Return why each level cannot be used; empty if it matches."""
    return {
        run.level: "" if run.check.verdict == "match" else f"{run.check.verdict}: {run.check.words}"
        for run in comparison.runs
    }


def _material(
    comparison: Comparison,
    request: Request | None,
    model: nn.Module | None,
    inputs: Inputs | None,
) -> Material:
    """Return the module and inputs: the caller's, those that were compared, or those of the
    record."""
    if model is not None or inputs is not None:
        if model is None or inputs is None:
            raise GolowError("only one of model and inputs was given", HOW_TO_GIVE)
        return Material(model, inputs)
    found = request or same_request(comparison.workload)
    if found is None:
        raise GolowError(
            f"the record of {comparison.workload.model} does not contain the model", HOW_TO_GIVE
        )
    if not isinstance(found.model, str) and found.example_inputs is not None:
        return Material(found.model, found.example_inputs, found)
    from golow.workload.prepare import prepare

    prepared = prepare(found)
    if prepared.workload.draws:
        raise GolowError(
            f"{prepared.workload.model} uses random numbers, which golow supplied as inputs",
            HOW_TO_GIVE,
        )
    return Material(prepared.module, prepared.batches[0].inputs, found)


def _on_device(made: Material, device: Device) -> Material:
    """Return the module and its inputs on the comparison's device; copied, unless they are
    there."""
    if device == "cpu":
        return made
    from golow.lower.capture.module_outputs import mapped
    from golow.workload.known_causes import copied

    module = made.module
    if any(tensor.device.type != device for tensor in module.state_dict().values()):
        module = copied(module).to(device)
    inputs: Inputs = mapped(lambda tensor: tensor.to(device), made.inputs)
    return made._replace(module=module, inputs=inputs)
