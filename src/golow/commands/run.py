"""``golow run``: a saved module on arrays from a file."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from golow.commands.options import no_stream
from golow.records.errors import GolowError
from golow.storage.files import require_file, require_place

SECONDS = 2.0
"""Duration of timing."""


def run(
    file: Annotated[Path, typer.Argument(help="A file written by golow build or f.save.")],
    *,
    input: Annotated[
        Path | None,
        typer.Option(help="A .safetensors file with the inputs: by name, or 0, 1, ... in order."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="A .safetensors file to write the outputs to: 0, 1, ...", callback=no_stream
        ),
    ] = None,
    weights: Annotated[
        Path | None, typer.Option(help="A .safetensors file with other weights.")
    ] = None,
    threads: Annotated[int | None, typer.Option(help="Threads per call.")] = None,
    check: Annotated[
        bool,
        typer.Option(
            "--check", help="Run the stored example and compare its outputs with float64."
        ),
    ] = False,
    timed: Annotated[
        bool,
        typer.Option("--time", help="Print the median time of a call, measured over two seconds."),
    ] = False,
) -> None:
    """Run a saved module, without PyTorch. The exit status is 1 if --check finds a difference."""
    from golow.artifact.array_files import read_inputs, write_outputs
    from golow.artifact.loading import load_compiled

    if out is not None and input is None:
        raise GolowError("--out needs --input", "name a file of inputs: --input x.safetensors")
    if out is not None:
        require_place(out)
    require_file(file, "golow build MODEL --out FILE writes one.")
    if not (check or timed or out is not None):
        raise GolowError(
            "there is nothing to do",
            "add --check, --time, or --input x.safetensors --out y.safetensors.",
        )
    if input is not None and out is None and not timed:
        raise GolowError(
            f"--input {input} has no effect with --check alone: it runs the stored example",
            "name a file for the outputs, --out y.safetensors, or add --time.",
        )
    with load_compiled(file, weights=weights, threads=threads) as loaded:
        for note in loaded.notes:
            print(f"golow: {note}", file=sys.stderr)
        given = None if input is None else read_inputs(input, loaded.manifest)
        if given is not None:
            outputs = loaded(*given)
            if out is not None:
                write_outputs(out, loaded.manifest, outputs)
                print(out)
        if timed:
            print(_time(loaded, given if given is not None else loaded.example()))
        if check:
            found = loaded.check()
            print(found)
            if not found.matches:
                raise typer.Exit(1)


def _time(loaded: Any, given: list[Any]) -> str:
    from statistics import median

    from golow.report.units import seconds_text

    loaded(*given)
    taken: list[float] = []
    end = time.perf_counter() + SECONDS
    while time.perf_counter() < end:
        start = time.perf_counter()
        loaded(*given)
        taken.append(time.perf_counter() - start)
    rows = given[0].shape[0] if given[0].ndim else 1
    return f"{seconds_text(median(taken))} per call at batch {rows}, median of {len(taken):,} calls"
