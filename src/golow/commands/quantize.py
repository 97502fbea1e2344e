"""``golow quantize``: a network in whole numbers, and what became of it."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from golow.commands.keeping import shown_and_saved
from golow.commands.options import Model, folder_place, names, no_stream
from golow.commands.quiet import prints_to_stderr
from golow.commands.typed_options import refuse_beside, refuse_without
from golow.commands.workload_flags import (
    ExecutionFlags,
    InferenceFlags,
    NetworkFlags,
    PublishedFlags,
    Seed,
    workload_options,
)
from golow.records.quantization import OF_ACTIVATIONS
from golow.report.console import PlainConsole

CalibrateOption = Annotated[
    str,
    typer.Option(
        "--calibrate",
        help="Calibration samples: a data set from `golow data list`, or `inputs`, which golow "
        "generates.",
        show_default=False,
    ),
]
Percentile = Annotated[
    float,
    typer.Option(
        help="Percentage of an activation's values that its range must cover; larger values are "
        "clipped. 100 is min-max."
    ),
]


OF_DATA = ("samples", "test_samples", "gate", "data_root")
"""Parameters of calibration and test samples from a data set."""


class RuleName(StrEnum):
    """A rule of quantisation."""

    int8 = "int8"
    fp8 = "fp8"
    int8_weights = "int8-weights"
    int4_weights = "int4-weights"
    fp8_weights = "fp8-weights"


def quantize(
    context: typer.Context,
    model: Model,
    *,
    calibrate: CalibrateOption,
    out: Annotated[
        Path,
        typer.Option(
            help="The .safetensors file to write, for --weights.",
            callback=no_stream,
            show_default=False,
        ),
    ],
    rule: Annotated[
        RuleName,
        typer.Option(
            "--rule",
            help="int8 and fp8: weights and activations; int8-weights, int4-weights and "
            "fp8-weights: weights only.",
        ),
    ] = RuleName.int8,
    group: Annotated[
        int, typer.Option(help="With --rule int4-weights: inputs per scale, 32, 64 or 128.")
    ] = 64,
    keep: Annotated[
        str | None,
        typer.Option(
            help="Comma-separated layers to keep in float32, or modules to keep with all their "
            "layers.",
            show_default=False,
        ),
    ] = None,
    in_8_bits: Annotated[
        str | None,
        typer.Option(
            "--in-8-bits",
            help="With --rule int4-weights: comma-separated layers, or modules, to quantise by "
            "int8-weights instead.",
            show_default=False,
        ),
    ] = None,
    rank_layers: Annotated[
        bool,
        typer.Option(
            "--rank-layers",
            help="Also measure how much closer each layer, kept in float32 or instead of 4 bits in "
            "8, brings the network to the original, and propose layers to keep.",
        ),
    ] = False,
    clipping_percentile: Percentile = 100.0,
    samples: Annotated[int, typer.Option(help="Samples for the calibration.")] = 512,
    test_samples: Annotated[
        int | None,
        typer.Option(help="Number of test samples.  [default: all]"),
    ] = None,
    gate: Annotated[
        float, typer.Option(help="Share of the original accuracy that must be kept.")
    ] = 0.99,
    rivals: Annotated[
        bool,
        typer.Option(
            "--rivals",
            help="Also quantise with ONNX Runtime, OpenVINO (NNCF) and torchao, as their users do.",
        ),
    ] = False,
    data_root: Annotated[Path | None, typer.Option(help="Folder of the data set's files.")] = None,
    inputs: InferenceFlags,
    network: NetworkFlags,
    published: PublishedFlags,
    seed: Seed = 0,
    record: Annotated[
        Path, typer.Option(help="Folder for the records.", callback=folder_place)
    ] = Path("runs"),
) -> None:
    """Quantise a model to 8 or 4 bits, and report how far it is from the original and how much
    accuracy it loses."""
    from golow import api
    from golow.report.progress import ProgressDisplay

    _refuse_ineffective(context, calibrate, rule)
    with ProgressDisplay(PlainConsole(stderr=True)) as display, prints_to_stderr():
        result = api.quantize(
            model,
            **workload_options(inputs.inputs(), network, published, ExecutionFlags(seed=seed)),
            calibrate=calibrate,
            out=out,
            rule=rule.value,
            group=group,
            keep=names(keep) or (),
            in_8_bits=names(in_8_bits) or (),
            rank_layers=rank_layers,
            clipping_percentile=clipping_percentile,
            samples=samples,
            test_samples=test_samples,
            gate=gate,
            rivals=rivals,
            data_root=data_root,
            observer=display,
        )
    folder = shown_and_saved(result.table, result.save, record)
    print(f"record: {folder}")


def _refuse_ineffective(context: typer.Context, calibrate: str, rule: RuleName) -> None:
    """Raise `GolowError` for an option that has no effect with this rule or these samples."""
    if rule is not RuleName.int4_weights:
        refuse_without(context, f"--rule {RuleName.int4_weights}", ("group",))
    if rule.value not in OF_ACTIVATIONS:
        refuse_without(context, "--rule int8 or fp8", ("clipping_percentile",))
    if calibrate == "inputs":
        refuse_beside(context, "--calibrate inputs", "uses no data set", OF_DATA)
