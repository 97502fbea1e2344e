"""``golow lower``: a model's graph, before and after the passes of a level."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from golow.commands.json_output import require_json, write_json
from golow.commands.options import (
    Channels,
    Classes,
    DeviceName,
    DeviceOption,
    Gpu,
    LossOption,
    Model,
    PrecisionName,
    PrecisionOption,
    Threads,
)
from golow.commands.quiet import prints_to_stderr
from golow.commands.typed_options import is_typed, refuse_without
from golow.commands.workload_flags import InputFlags, PublishedFlags, graph_options
from golow.records.errors import GolowError
from golow.report.console import PlainConsole, wide_console

if TYPE_CHECKING:
    from golow.workload.prepare import Prepared
    from golow.workload.request import Request


def lower(
    context: typer.Context,
    model: Model,
    *,
    inputs: InputFlags,
    channels: Channels = None,
    classes: Classes = None,
    weights: Annotated[
        Path | None,
        typer.Option(
            help="A .safetensors file with the state dict; that of a quantised network changes the "
            "graph."
        ),
    ] = None,
    loss: LossOption = None,
    published: PublishedFlags,
    device: DeviceOption = DeviceName.cpu,
    gpu: Gpu = "",
    precision: PrecisionOption = PrecisionName.default,
    level: Annotated[
        str, typer.Option(help="Also run the passes of this level, down to its plan.")
    ] = "",
    show: Annotated[bool, typer.Option("--show", help="Print the graph after each pass.")] = False,
    kernels: Annotated[
        bool, typer.Option("--kernels", help="With --show: also print the generated code.")
    ] = False,
    roof: Annotated[
        bool,
        typer.Option(
            "--roof",
            help="Check and time the level; print the time of each step of its plan next to the "
            "minimum possible time on this machine, largest difference first.",
        ),
    ] = False,
    verify: Annotated[
        bool,
        typer.Option(
            "--verify",
            help="Run one iteration of the level's plan and compute each operation again in "
            "float64 from the same inputs.",
        ),
    ] = False,
    measure: Annotated[
        bool,
        typer.Option("--measure/--no-measure", help="With --roof: time the steps."),
    ] = True,
    top: Annotated[int, typer.Option(min=1, help="With --roof or --verify: steps to show.")] = 15,
    time_limit: Annotated[
        float, typer.Option(help="With --roof: time limit of the race, in seconds.")
    ] = 10.0,
    threads: Threads = None,
    json: Annotated[
        str | None,
        typer.Option(
            "--json",
            help="With --roof: also write the results to this JSON file; - is standard output.",
        ),
    ] = None,
) -> None:
    """Capture a model as a graph and run the passes of a level on it."""
    if gpu:
        _require_gpu(context, device, kernels, verify)
        level = level or "vendor"
    if verify:
        _require_verify(context, level, roof or show or kernels)
    elif roof:
        _require_roof(level, show, kernels, json)
    else:
        _require_no_options(context, level, show, kernels)
    workload = {
        **graph_options(inputs, channels, classes, loss, published),
        "device": device.value,
        "precision": precision.value,
    }
    if weights is not None:
        if roof and not verify:
            raise GolowError(
                "--roof does not accept --weights",
                "leave out --weights; --verify and --show accept it.",
            )
        workload |= {"weights": weights}
    if verify:
        _verify(model, workload, level, top, threads)
    elif roof:
        _roof(model, workload, level, gpu, measure, top, time_limit, threads, json)
    else:
        _lower(model, workload, level, gpu, show, kernels, threads)


OF_ROOF = ("measure", "time_limit", "json")


def _require_gpu(context: typer.Context, device: DeviceName, kernels: bool, verify: bool) -> None:
    """Raise `GolowError` for what does not go with --gpu."""
    if device != DeviceName.cuda:
        raise GolowError("--gpu needs --device cuda", "add --device cuda.")
    if kernels or verify or any(is_typed(context, name) for name in ("measure", "time_limit")):
        raise GolowError(
            "--gpu shows the plan for a GPU without using it; nothing is compiled or run",
            "leave out --kernels, --verify, --measure and --time-limit, or leave out --gpu.",
        )


def _require_roof(level: str, show: bool, kernels: bool, json: str | None) -> None:
    """Raise `GolowError` for options that do not go with --roof."""
    if show or kernels:
        raise GolowError("--roof prints steps, not graphs", "leave out --show and --kernels.")
    if not level:
        raise GolowError("--roof needs a level with a plan", "add --level vendor.")
    require_json(json)


def _require_verify(context: typer.Context, level: str, others: bool) -> None:
    """Raise `GolowError` for options that do not go with --verify."""
    given = {name for name in OF_ROOF if is_typed(context, name)}
    if others or given:
        raise GolowError(
            "--verify prints the errors of operations, and nothing else",
            "leave out --roof, --show, --kernels, --measure, --time-limit and --json.",
        )
    if not level:
        raise GolowError("--verify needs a level with a plan", "add --level vendor.")


def _require_no_options(context: typer.Context, level: str, show: bool, kernels: bool) -> None:
    """Raise `GolowError` for an option of --roof without it, and for --kernels alone."""
    refuse_without(context, "--roof", OF_ROOF)
    refuse_without(context, "--roof or --verify", ("top",))
    if kernels and not (show and level):
        raise GolowError("--kernels needs a level and --show", "add --level vendor --show.")


def _verify(
    model: str, workload: dict[str, Any], level: str, top: int, threads: int | None
) -> None:
    from golow.programs.explain.verify_steps import verify
    from golow.report.comparison.steps import render
    from golow.report.progress import ProgressDisplay
    from golow.workload.request import Request

    request = Request(model, **workload)
    if threads is not None:
        request = replace(request, threads=threads)
    with ProgressDisplay(PlainConsole(stderr=True)) as display, prints_to_stderr():
        found = verify(request, level, display)
    render(found, top)
    if found.steps.failed:
        raise typer.Exit(1)


def _lower(
    model: str,
    workload: dict[str, Any],
    level: str,
    gpu: str,
    show: bool,
    kernels: bool,
    threads: int | None,
) -> None:
    from golow.levels.nvidia.known_gpus import named
    from golow.lower.plan.listing import table_lines
    from golow.programs.explain.show_lowering import lower as run
    from golow.report.comparison.table import graph_table
    from golow.workload.request import Request

    request = Request(model, **workload)
    if threads is not None:
        request = replace(request, threads=threads)
    with prints_to_stderr():
        lowered = run(_prepared(request, level, gpu), level, kernels=kernels, gpu=gpu)
    if not show:
        wide_console().print(graph_table(lowered.stages[-1]))
        print("To see the graph as Python after each pass, add --show.")
        return
    for graph in lowered.stages:
        done = graph.history[-1]
        print(f"# after {done.name}: {done.nodes} nodes, {done.seconds * 1e3:.1f} ms")
        print(graph)
    if lowered.plan is not None:
        print(f"# the plan of {level}" + (f" for {named(gpu).title}" if gpu else ""))
        print(*table_lines(lowered.plan), sep="\n")
    for number, text in enumerate(lowered.kernels, 1):
        print(f"# kernel {number} of {len(lowered.kernels)} of {level}")
        print(text)
    if lowered.source:
        print(f"# the source of {level}")
        print(lowered.source)


def _prepared(request: Request, level: str, gpu: str) -> Prepared:
    """The workload, on the CPU where no GPU is needed: for one that is named, and for a graph
    before a level's passes, which is the same on every device."""
    from golow.workload.prepare import prepare, prepare_for_absent
    from golow.workload.trial import require_device

    if gpu or not level:
        return prepare_for_absent(request)
    if request.device == "cuda":
        try:
            require_device(request.device, request.precision)
        except GolowError as error:
            hint = f"{error.hint} For the plan alone, name a GPU, as --gpu h200."
            raise GolowError(error.message, hint) from error
    return prepare(request)


def _roof(
    model: str,
    workload: dict[str, Any],
    level: str,
    gpu: str,
    measure: bool,
    top: int,
    time_limit: float,
    threads: int | None,
    json: str | None,
) -> None:
    from golow import api
    from golow.report.comparison.roof import render
    from golow.report.progress import ProgressDisplay

    with ProgressDisplay(PlainConsole(stderr=True)) as display, prints_to_stderr():
        found = api.roof(
            model,
            **workload,
            level=level,
            gpu=gpu,
            measure=measure,
            time_limit=time_limit,
            threads=threads,
            observer=display,
        ).roof
    to_pipe = json == "-"
    console = wide_console(stderr=True) if to_pipe else None
    render(found, top, console)
    write_json(found, json)
