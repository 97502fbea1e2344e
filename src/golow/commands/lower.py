"""``golow lower``: a model's graph, before and after the passes of a level."""

from __future__ import annotations

from typing import Annotated

import typer

from golow.commands.options import (
    Batch,
    Channels,
    Classes,
    DeviceName,
    DeviceOption,
    Input,
    LossOption,
    Model,
    ModeName,
    ModeOption,
    PrecisionName,
    PrecisionOption,
    Resolution,
    Sequence,
    shape,
)
from golow.report.console import wide_console


def lower(
    model: Model,
    mode: ModeOption = ModeName.infer,
    batch: Batch = None,
    resolution: Resolution = None,
    sequence: Sequence = None,
    input: Input = None,
    channels: Channels = None,
    classes: Classes = None,
    loss: LossOption = None,
    device: DeviceOption = DeviceName.cpu,
    precision: PrecisionOption = PrecisionName.default,
    level: Annotated[
        str, typer.Option(help="Also run the passes of this level, down to its plan.")
    ] = "",
    show: Annotated[bool, typer.Option("--show", help="Print the graph after each pass.")] = False,
) -> None:
    """Capture a model as a graph and run the passes of a level on it."""
    from golow.explain.lowering import lower as run
    from golow.report.comparison.table import graph_table
    from golow.workload.prepare import prepare
    from golow.workload.request import Request

    request = Request(
        model,
        mode=mode.value,
        batch=batch,
        resolution=resolution,
        sequence=sequence,
        input_shape=shape(input),
        channels=channels,
        classes=classes,
        loss=loss,
        device=device.value,
        precision=precision.value,
    )
    lowered = run(prepare(request), level)
    if show:
        for graph in lowered.stages:
            done = graph.history[-1]
            print(f"# after {done.name}: {done.nodes} nodes, {done.seconds * 1e3:.1f} ms")
            print(graph)
        if lowered.plan is not None:
            print(f"# the plan of {level}")
            print(lowered.plan)
        if lowered.source:
            print(f"# the source of {level}")
            print(lowered.source)
    else:
        wide_console().print(graph_table(lowered.stages[-1]))
        print("To see the graph as Python after each pass, add --show.")
