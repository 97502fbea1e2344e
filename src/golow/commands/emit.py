"""``golow emit``: write a model as a C++ project."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from golow.commands.options import Model, PrecisionName, PrecisionOption, no_stream
from golow.commands.quiet import prints_to_stderr
from golow.commands.workload_flags import (
    ExecutionFlags,
    OptimizerFlags,
    PublishedFlags,
    SizesFlags,
    TrainedNetworkFlags,
    optimizer_of,
    workload_options,
)
from golow.records.errors import GolowError
from golow.storage.project_folder import require_project_place

if TYPE_CHECKING:
    from golow.workload.prepare import Prepared


class EmittedLevel(StrEnum):
    """A level that writes C++."""

    libtorch = "libtorch"
    onednn = "onednn"
    cudnn = "cudnn"


def emit(
    model: Model,
    out: Annotated[
        Path, typer.Option(help="Folder to create for the project.", callback=no_stream)
    ],
    *,
    level: Annotated[
        EmittedLevel,
        typer.Option(
            "--level",
            help="Library that the program calls. libtorch: PyTorch's, on a CPU or a GPU; onednn: "
            "only oneDNN, on a CPU; cudnn: cuDNN and cuBLASLt, on a GPU.",
        ),
    ] = EmittedLevel.libtorch,
    inputs: SizesFlags,
    network: TrainedNetworkFlags,
    published: PublishedFlags,
    optimizer: OptimizerFlags,
    execution: ExecutionFlags,
    precision: PrecisionOption = PrecisionName.default,
) -> None:
    """Write a model as a C++ program: a CMake project that builds and runs without golow."""
    from golow.report.comparison.inputs import draws_text
    from golow.worker.cores import default_threads
    from golow.workload.inputs import require_batches
    from golow.workload.prepare import prepare
    from golow.workload.request import Request

    require_project_place(out)
    sizes = inputs.sizes()
    if level is EmittedLevel.libtorch and len(sizes) > 1:
        raise GolowError(
            "the libtorch program accepts any batch size; onednn and cudnn have a plan for each",
            f"use --batch {sizes[-1]}, or add --level onednn.",
        )
    require_batches(model, sizes)
    options = workload_options(inputs.largest(), network, published, execution)
    if level is EmittedLevel.cudnn:
        options["device"] = "cuda"  # there is no other
    request = Request(
        model,
        **options,
        optimizer=optimizer_of(optimizer, inputs.mode),
        threads=default_threads() if execution.threads is None else execution.threads,
        precision=precision.value,
    )
    with prints_to_stderr():
        prepared = prepare(request)
        written = _written(prepared, level, sizes, out)
    for file in written:
        print(file)
    if drawn := draws_text(prepared.workload):
        print(drawn)
    print(f"To build and run it, see {out / 'README.md'}.")


def _written(prepared: Prepared, level: EmittedLevel, sizes: list[int], out: Path) -> list[Path]:
    if level is EmittedLevel.libtorch:
        from golow.levels.libtorch.emission import emit as of_libtorch

        return of_libtorch(prepared, out)
    if prepared.workload.mode == "train":
        from golow.levels.called.training.emission import emit_training

        return emit_training(prepared, level.value, sizes, out)
    from golow.levels.called.emission import emit as of_direct

    return of_direct(prepared, level.value, sizes, out)
