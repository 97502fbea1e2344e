"""Choices in the user's loop around PyTorch's calls."""

from __future__ import annotations

import gc
from typing import Any

from golow.levels.choices.choice import IN_PYTORCH, WITH_PYTHON, Alternative, Choice
from golow.worker import clock

INFERENCE, NO_GRAD, RECORDED = "inference_mode", "no_grad", "recorded"
STORING = ("eager", "torchscript", "compile")  # a CUDA graph has separate gradients
OFF, ON, FROZEN = "off", "on", "on, living objects left out"


def gradients(program: Any) -> str:
    """Report PyTorch's setting inside the forward pass."""
    import torch

    with program.bare_call():
        if torch.is_inference_mode_enabled():
            return INFERENCE
        return RECORDED if torch.is_grad_enabled() else NO_GRAD


def parameters(program: Any) -> str:
    """Report whether any parameter of the module requires a gradient."""
    asking = any(parameter.requires_grad for parameter in program.module.parameters())
    return "required" if asking else "not required"


def cleared(program: Any) -> str:
    """Report the argument of `zero_grad` in golow's loop."""
    return "removed" if program.habits.set_to_none else "filled with zeros"


def collector(program: Any) -> str:
    """Python's garbage collector, as it is while iterations are timed."""
    with clock.collector_as_timed():
        if not gc.isenabled():
            return OFF
        return FROZEN if gc.get_freeze_count() else ON


def _gradients(name: str, value: str, summary: str, python: str, rebuilds: bool) -> Alternative:
    def call(program: Any) -> None:
        program.habits.gradients = value

    return Alternative(
        name=name,
        summary=summary,
        value=value,
        call=call,
        rebuilds=rebuilds,
        built_by=("compile",),
        python=python,
    )


def _not_required(program: Any) -> None:
    program.habits.frozen = True


def _filled(program: Any) -> None:
    program.habits.set_to_none = False


def _collects(name: str, value: str, summary: str, freezes: bool, python: str) -> Alternative:
    def call(program: Any) -> None:
        clock.leave_collector_on(freezes)

    return Alternative(name=name, summary=summary, value=value, call=call, python=python)


CHOICES = (
    Choice(
        name="gradient_mode",
        summary="whether a forward pass in inference records what a backward pass would need",
        made_by="the user's loop; PyTorch records",
        where="torch.inference_mode, which golow uses, torch.no_grad, or neither",
        levels=IN_PYTORCH,
        modes=("infer",),
        read=gradients,
        likely=True,
        costs="recorded: the memory of all activations",
        alternatives=(
            _gradients("no_grad", NO_GRAD, "with torch.no_grad", "with torch.no_grad(): ...", True),
            _gradients("recorded", RECORDED, "with neither", "output = model(input)", True),
        ),
    ),
    Choice(
        name="parameter_gradients",
        summary="whether parameters require a gradient in inference, too",
        made_by="PyTorch",
        where="torch.nn.Parameter, requires_grad=True",
        levels=IN_PYTORCH,
        modes=("infer",),
        read=parameters,
        alternatives=(
            Alternative(
                name="gradients_not_required",
                summary="no parameter does",
                value="not required",
                call=_not_required,
                rebuilds=True,
                built_by=("compile",),
                python="model.requires_grad_(False)",
            ),
        ),
    ),
    Choice(
        name="gradient_buffers",
        summary="whether gradients are removed or filled with zeros before a training step",
        made_by="PyTorch",
        where="torch.optim.Optimizer.zero_grad, set_to_none=True",
        levels=STORING,
        modes=("train",),
        read=cleared,
        likely=True,
        costs="kept: the gradients' memory throughout",
        alternatives=(
            Alternative(
                name="zero_gradients",
                summary="they stay, are filled with zeros, and are added to",
                value="filled with zeros",
                call=_filled,
                python="optimizer.zero_grad(set_to_none=False)",
            ),
        ),
    ),
    Choice(
        name="garbage_collector",
        summary="whether Python looks for unused objects during an iteration",
        made_by="Python; golow's clock switches it off",
        where="gc.enable; golow/worker/clock.py, as in timeit",
        levels=WITH_PYTHON,
        read=collector,
        costs="off: cycles of unused objects stay in memory",
        alternatives=(
            _collects("gc_on", ON, "it runs, as by default in Python", False, "gc.enable()"),
            _collects(
                "gc_frozen",
                FROZEN,
                "it runs, but skips objects that already exist",
                True,
                "gc.collect(); gc.freeze()",
            ),
        ),
    ),
)
