"""What is known of a network of `survey.py`: whether it is captured, and its plans' figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from golow.levels import ladder
from golow.levels.nvidia.known_gpus import named
from golow.lower.analysis.arithmetic import step_operations
from golow.lower.ir.clean_up import CLEAN_UP
from golow.lower.ir.pass_runner import apply
from golow.lower.plan.memory_traffic import layout_bytes, moved_bytes
from golow.lower.plan.plan import Plan
from golow.programs.explain.show_lowering import plan_of
from golow.records.errors import GolowError, Unsupported
from golow.workload.graph_capture import capture
from golow.workload.prepare import Prepared, prepare_for_absent
from survey_least import Rates, least_seconds
from survey_networks import request

# By name of a plan: level, device and precision.
PLANS = {
    "bf16": ("cudnn:autotune", "cuda", "bf16"),
    "tf32": ("cudnn:autotune", "cuda", "tf32"),
    "float32": ("onednn", "cpu", "default"),
}
# Bytes and operations per second of two cores with AVX2, and seconds of a call of the library.
CPU = Rates(30e9, 150e9, 1e-6, 4)
LAUNCH = 2e-6  # seconds of a launch within a CUDA graph
WORST = 3  # operations that a record names


def surveyed(name: str, modes: Sequence[str], plans: Sequence[str], gpu: str) -> dict[str, Any]:
    """A result for each mode and plan."""
    results = []
    with TemporaryDirectory() as folder:
        for mode in modes:
            try:
                prepared = prepared_for(name, mode, Path(folder))
                graph = apply(capture(prepared).graph, CLEAN_UP)
            except Exception as error:  # whatever a library's model does
                results.append({"mode": mode, "missing": words(error)})
                continue
            for plan in plans:
                found = result(graph, prepared, plan, gpu)
                results.append({"mode": mode, "plan": plan, **found})
    return {"results": results}


def prepared_for(name: str, mode: str, folder: Path) -> Prepared:
    """The workload; one whose output is no logits is trained by the mean of its squares."""
    asked = request(name, mode, folder)
    try:
        return prepare_for_absent(asked)
    except GolowError:
        if mode == "infer":
            raise
        return prepare_for_absent(replace(asked, loss="mse_of_outputs"))


def result(graph: Any, prepared: Prepared, name: str, gpu: str) -> dict[str, Any]:
    """The plan's figures, or why there is none."""
    level, device, precision = PLANS[name]
    workload = msgspec.structs.replace(prepared.workload, device=device, precision=precision)
    choice = ladder.choose(level, workload.mode, workload.device)
    rates = rates_of(device, precision, gpu)
    assert choice.level.refusals is not None
    refused = Counter(str(item.words) for item in choice.level.refusals(graph, workload))
    if refused:
        return {"refused": dict(refused.most_common())}
    try:
        plan = plan_of(graph, workload, choice, gpu if device == "cuda" else "").plan
    except Unsupported as error:
        return {"refused": {error.words: 1}}
    except Exception as error:  # the next network is not to wait for it
        return {"failed": words(error)}
    assert plan is not None
    times = step_seconds(plan, rates)
    by_operation: Counter[str] = Counter()
    for step, seconds in times:
        by_operation[step] += seconds  # type: ignore[assignment]
    return {
        "steps": len(times),
        "layout": layout_bytes(plan),
        "predicted": sum(seconds for _, seconds in times),
        "least": least_seconds(graph, rates, workload.mode == "train"),
        "most": by_operation.most_common(WORST),
    }


def step_seconds(plan: Plan, rates: Rates) -> list[tuple[str, float]]:
    """Of each step of an iteration, its operation and the predicted time."""
    found = []
    for step in plan.steps:
        if not step.once:
            moving = moved_bytes(plan, step) / rates.bytes
            computing = step_operations(step) / rates.operations
            found.append((step.operation, max(moving, computing) + rates.launch))
    return found


def rates_of(device: str, precision: Any, gpu: str) -> Rates:
    """Of the CPU, or of the GPU by its published figures."""
    if device == "cpu":
        return CPU
    known = named(gpu)
    item = 2 if precision in ("bf16", "fp16") else 4
    return Rates(known.bandwidth, known.operations(precision), LAUNCH, item)


def words(error: Exception) -> str:
    """The first line, with the kind of an error that is not golow's."""
    text = (error.message if isinstance(error, GolowError) else str(error)).strip()
    first = text.splitlines()[0][:160] if text else ""
    return first if isinstance(error, GolowError) else f"{type(error).__name__}: {first}"
