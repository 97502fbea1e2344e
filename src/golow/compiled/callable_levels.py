"""Levels that `golow.compile` supports, and how a program names them. Imports no torch."""

from __future__ import annotations

from golow.levels.ladder import ALIASES, BASELINE, DIRECT
from golow.records.workload import Device, Workload
from golow.worker.cores import default_threads

IN_TORCH = ("eager", "torchscript", "compile", "cudagraph")
EXPORTED = ("onnxruntime", "openvino", "aotinductor", "libtorch")
DIRECT_LEVELS = tuple(DIRECT.values())
LEVELS = (*DIRECT_LEVELS, *IN_TORCH, *EXPORTED)

# The check's reference; and what only golow's own worker does.
LEFT_OUT = ("eager:float64", "aotinductor:cudagraph")
# Sessions take arrays of the host; the runner of torch 2.11 for a GPU ends the process from Python.
ON_CPU_ALONE = ("onnxruntime", "aotinductor")
# Several threads may call one session at a time.
SESSIONS = ("onnxruntime", "openvino")
TUNED = ":autotune"  # of a direct level: `tune=True`


def is_direct(name: str) -> bool:
    """Return True for the name of a direct level, with a variant or by an alias."""
    base = name.partition(":")[0]
    return base in DIRECT_LEVELS or base in ALIASES


def takes_any_size(name: str) -> bool:
    """Return True if the level's object takes batches of any size. Constant weights are set only
    for the first size."""
    base, _, variant = name.partition(":")
    return base == "eager" or (base == "compile" and "freezing" not in variant)


def is_callable(name: str, device: Device) -> bool:
    """Return True if `golow.compile` supports the level of that name on the device."""
    if name in LEFT_OUT or (name in ON_CPU_ALONE and device == "cuda"):
        return False
    return name.partition(":")[0] in LEVELS and "+" not in name


def line_to_paste(workload: Workload, level: str) -> str:
    """Return the line that calls this level in a program that has the model and an input or, for
    training, also a loss, an optimizer and targets. It is empty for eager, which is the model
    itself, and for levels that cannot be called: outside golow, only levels in PyTorch draw random
    numbers. Training steps exist only for direct levels."""
    if workload.mode == "train":
        plain = level.removesuffix(TUNED)
        if plain not in DIRECT_LEVELS and plain not in ALIASES:
            return ""
        name = "step"
        words = ["golow.compile_step(model, loss", "optimizer=optimizer", "example=(x, y)"]
        if workload.optimizer.clip is not None:
            words.append(f"clip={workload.optimizer.clip:g}")
        if plain != level:
            words.append("tune=True")
    elif level == BASELINE or not _has_line(workload, level):
        return ""
    else:
        name, words = "f", ["golow.compile(model, x", f'level="{level}"']
    if workload.precision != "default":
        words.append(f'precision="{workload.precision}"')
    if workload.threads != default_threads():
        words.append(f"threads={workload.threads}")
    return f"{name} = {', '.join(words)})"


def _has_line(workload: Workload, level: str) -> bool:
    draws_itself = not workload.draws or level.partition(":")[0] in IN_TORCH
    return draws_itself and is_callable(level, workload.device)
