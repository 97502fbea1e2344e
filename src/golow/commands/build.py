"""``golow build``: a model as a file that runs without PyTorch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from golow.commands.options import (
    Calibrate,
    ComparedPrecision,
    ComparedPrecisionName,
    DeviceName,
    Model,
    Threads,
    no_stream,
)
from golow.commands.quiet import prints_to_stderr
from golow.commands.workload_flags import (
    ExecutionFlags,
    InputFlags,
    NetworkFlags,
    PublishedFlags,
    workload_options,
)
from golow.records.errors import GolowError
from golow.report.console import PlainConsole
from golow.storage.shell_words import shell_word

DIRECT = ("direct", "vendor", "onednn")
ON_A_GPU = ("cudnn", "tf32", "bf16", "fp16")


def build(
    model: Model,
    out: Annotated[
        Path,
        typer.Option(
            help="The file to write; the folder to create if --level is another runtime.",
            callback=no_stream,
        ),
    ],
    *,
    level: Annotated[
        str,
        typer.Option(
            help="direct, or a runtime whose files to write: onnxruntime, openvino, aotinductor, "
            "executorch."
        ),
    ] = "direct",
    batch: Annotated[
        str | None, typer.Option(help="Batch sizes, for example 1,8,32.  [default: 8]")
    ] = None,
    sequence: Annotated[
        str | None, typer.Option(help="Lengths of text, for example 128,512.")
    ] = None,
    resolution: Annotated[
        int | None, typer.Option(help="Side of the square input images, in pixels.")
    ] = None,
    input: Annotated[
        str | None, typer.Option(help="Shape of one sample, for example 3x224x224.")
    ] = None,
    network: NetworkFlags,
    published: PublishedFlags,
    precision: ComparedPrecision = ComparedPrecisionName.default,
    calibrate: Calibrate = None,
    threads: Threads = None,
    tune: Annotated[
        bool, typer.Option("--tune", help="Choose layouts by measuring, a few seconds per size.")
    ] = False,
    without_weights: Annotated[
        bool, typer.Option("--without-weights", help="Leave the weights out of the file.")
    ] = False,
) -> None:
    """Build a model for the given batch sizes and write it to a file, for golow run and
    golow.load_compiled."""
    from golow.api.quantizing import with_precision
    from golow.report.progress import ProgressDisplay
    from golow.workload.inputs import require_batches
    from golow.workload.request import Request

    _require_cpu(level, precision)
    sizes, lengths = _numbers("--batch", batch), _numbers("--sequence", sequence)
    require_batches(model, sizes)
    inputs = InputFlags(
        batch=sizes[0] if sizes else None,
        sequence=lengths[0] if lengths else None,
        resolution=resolution,
        input=input,
    )
    options = workload_options(
        inputs, network, published, ExecutionFlags(threads=threads, device=DeviceName.cpu)
    )
    request = Request(model, **options)
    if threads is not None:
        request = replace(request, threads=threads)
    with ProgressDisplay(PlainConsole(stderr=True)) as display:
        request = with_precision(request, precision.value, calibrate, display)
        if level.partition(":")[0] not in DIRECT:
            from golow.compiled.kept_models import keep_model

            _require_one(sizes, lengths, level, tune or without_weights)
            with prints_to_stderr():
                files = keep_model(level, request, out, display)
            for file in files:
                print(file)
            return
        from golow.compiled.built_artifact import build_artifact
        from golow.report.comparison.inputs import draws_text

        with prints_to_stderr():
            workload = build_artifact(
                request, sizes, lengths, level=level, tune=tune, weights=not without_weights,
                out=out, observer=display,
            )  # fmt: skip
    if drawn := draws_text(workload):
        print(drawn)
    print(f"{out}\nTo run it: golow run {shell_word(out)} --check --time")


def _require_cpu(level: str, precision: ComparedPrecisionName) -> None:
    """Raise `GolowError` for a level or a precision of a GPU."""
    asked = {"--level": level.partition(":")[0], "--precision": precision.value}
    for option, value in asked.items():
        if value in ON_A_GPU:
            raise GolowError(
                f"golow build writes files for a CPU, and {option} {value} is for a GPU",
                "on a GPU, in Python: golow.compile(model.cuda(), x.cuda()).save(FILE), which also "
                "takes precision=.",
            )


def _numbers(option: str, text: str | None) -> list[int]:
    try:
        return [] if text is None else [int(part) for part in text.split(",")]
    except ValueError:
        raise GolowError(
            f"{option} {text} is not a list of whole numbers", f"for example {option} 1,8,32."
        ) from None


def _require_one(sizes: list[int], lengths: list[int], level: str, other: bool) -> None:
    if len(sizes) > 1 or len(lengths) > 1:
        raise GolowError(
            f"files for {level} have a single size", "use one --batch and one --sequence."
        )
    if other:
        raise GolowError("--tune and --without-weights are for direct levels", "leave them out.")
