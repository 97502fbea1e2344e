"""Writes the trace of iterations: first the plan runs once step by step, which tells the steps of
the kernels, then as ever, as one CUDA graph."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from golow.levels.direct.cudnn.run.activities import ON_DEVICE, Key, Moment, trace_events
from golow.levels.direct.cudnn.run.activity_recording import Recorder, now
from golow.lower.plan.plan import Step
from golow.worker.tracing import write_events

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.run.program import CuDnn

WARM_UP = 2  # iterations before the first step


def write_trace(program: CuDnn, iterations: int, file: Path) -> None:
    """Profile that many iterations and write the trace."""
    recorder = Recorder()
    steps = _record_steps(program, recorder)
    recorder.activities.clear()
    moments: list[Moment] = []
    with recorder.recording():
        for _ in range(WARM_UP):
            program.iterate()
        program.gpu.synchronize()
        for _ in range(iterations):
            start = now()
            program.iterate()
            program.gpu.synchronize()
            moments.append((start, now()))
    events = list(trace_events(recorder.activities, moments, steps))
    write_events(events, file, program.gpu.properties())


def _record_steps(program: CuDnn, recorder: Recorder) -> list[tuple[Key, Step]]:
    """Record the device work of each step of the plan, in the device's order."""
    with recorder.recording():
        program.run_marked(recorder.marked)
        program.gpu.synchronize()
    plan = program.execution.plan.steps
    found = sorted(recorder.activities, key=lambda activity: activity.start)
    marks = ((activity, recorder.mark_of(activity)) for activity in found)
    return [
        (activity.key, plan[mark])
        for activity, mark in marks
        if mark is not None and activity.kind in ON_DEVICE
    ]
