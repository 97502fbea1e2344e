"""``golow generate``: texts of a language model at every level."""

from __future__ import annotations

from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from golow.commands.json_output import require_json, write_json
from golow.commands.keeping import keep
from golow.commands.options import (
    DeviceName,
    DeviceOption,
    JsonFile,
    Out,
    ReportFile,
    Threads,
    Workers,
    names,
    some_names,
    workers,
)
from golow.commands.quiet import prints_to_stderr
from golow.commands.workload_flags import WeightsFlags
from golow.records.errors import GolowError
from golow.records.quantization import OF_ACTIVATIONS
from golow.report.console import PlainConsole, wide_console

if TYPE_CHECKING:
    from golow.api import GenerationResult


class TextPrecisionName(StrEnum):
    """Weights, caches and arithmetic of every level."""

    default = "default"
    tf32 = "tf32"
    bf16 = "bf16"
    int8_weights = "int8-weights"
    int4_weights = "int4-weights"
    fp8_weights = "fp8-weights"
    fp16 = "fp16"


def _precision(value: str) -> TextPrecisionName:
    """Raises `GolowError` for rules whose ranges of activations need samples."""
    if value in OF_ACTIVATIONS:
        raise GolowError(
            f"--precision {value} needs samples of text to find the ranges of activations",
            f"golow quantize MODEL --rule {value} --calibrate text --out FILE.safetensors, then "
            f"--weights FILE.safetensors here; or --precision {value}-weights.",
        )
    if value not in tuple(TextPrecisionName):
        raise typer.BadParameter(f"{value!r} is not one of {', '.join(TextPrecisionName)}.")
    return TextPrecisionName(value)


TextModel = Annotated[
    str,
    typer.Argument(
        help="gpt2_small, hf:NAME, the folder of a training run on text, or a step module as "
        "file.py:Name or package.module:name.",
        show_default=False,
    ),
]


def generate(
    model: TextModel,
    *,
    text: Annotated[
        list[str] | None,
        typer.Option(
            help="Beginning of every text; repeat the option for a batch of different texts.  "
            "[default: random tokens]",
            show_default=False,
        ),
    ] = None,
    prompt: Annotated[
        int | None, typer.Option(help="Number of random tokens in a prompt.  [default: 64]")
    ] = None,
    tokens: Annotated[int, typer.Option(help="Tokens to generate.")] = 64,
    batch: Annotated[
        str, typer.Option(help="Texts in a batch, or several sizes, such as 1,8.")
    ] = "1",
    levels: Annotated[
        str | None,
        typer.Option(
            help="Comma-separated levels: eager, eager:static, compile:static, "
            "compile:static-cudagraphs, openvino, llama.cpp, onednn, cudnn.  "
            "[default: all for the device]",
            callback=some_names,
        ),
    ] = None,
    worker: Workers = None,
    precision: Annotated[
        TextPrecisionName,
        typer.Option(
            "--precision",
            parser=_precision,
            metavar=f"[{'|'.join(TextPrecisionName)}]",
            help="Weights, caches and arithmetic of every level; default is float32. tf32 and fp16 "
            "are for a GPU. int8-weights, int4-weights and fp8-weights, for a CPU, quantise the "
            "weights of linear layers; everything else stays float32.",
        ),
    ] = TextPrecisionName.default,
    calibrate: Annotated[
        str | None,
        typer.Option(
            help="With --precision int4-weights or fp8-weights: a UTF-8 file, or `text` for the "
            "embedded one, for which rounding errors of weights compensate one another.  "
            "[default: round to the nearest]",
            show_default=False,
        ),
    ] = None,
    device: DeviceOption = DeviceName.cpu,
    temperature: Annotated[
        float,
        typer.Option(help="Divide the logits by this before sampling; 0: the likeliest token."),
    ] = 0.0,
    top_k: Annotated[
        int, typer.Option("--top-k", help="Sample from this many of the likeliest tokens; 0: all.")
    ] = 0,
    top_p: Annotated[
        float,
        typer.Option(
            "--top-p", help="Sample from the likeliest tokens whose probabilities add up to this."
        ),
    ] = 1.0,
    weights: Annotated[
        Path | None, typer.Option(help="A .safetensors file with the state dict.")
    ] = None,
    published: WeightsFlags,
    seed: Annotated[int, typer.Option(help="Seed for the weights and the random numbers.")] = 0,
    threads: Threads = None,
    seconds: Annotated[float, typer.Option(help="Race time per level, in seconds.")] = 20.0,
    out: Out = Path("runs"),
    json: JsonFile = None,
    report: ReportFile = None,
) -> None:
    """Generate texts at every level, check every token, and time the prompt and the tokens.

    The exit status is 1 when a level differs or fails.
    """
    from golow import api
    from golow.programs.comparison import store
    from golow.report.progress import ProgressDisplay

    store.require_writable(out)
    require_json(json)
    with ProgressDisplay(PlainConsole(stderr=True)) as display:
        try:
            with prints_to_stderr():
                result = api.generate(
                    model,
                    text=text[0] if text and len(text) == 1 else text or None,
                    prompt=prompt,
                    tokens=tokens,
                    batch=_sizes(batch),
                    levels=names(levels),
                    workers=workers(worker or []),
                    precision=precision.value,
                    calibrate=calibrate,
                    device=device.value,
                    temperature=temperature,
                    top_k=top_k,
                    top_p=top_p,
                    seed=seed,
                    weights=weights,
                    pretrained=published.pretrained,
                    download=published.download,
                    threads=threads,
                    seconds=seconds,
                    observer=display,
                )
        except api.GenerationInterrupted as stopped:
            display.close()
            keep(stopped.result, partial(_show, json=json), out, json, report)
            raise typer.Exit(130) from None
        except api.ErrorWithResult as failed:
            display.close()
            keep(failed.result, partial(_show, json=json), out, json, report)
            raise
    keep(result, partial(_show, json=json), out, json, report)
    verdicts = {run.verdict for case in result.generation.cases for run in case.runs}
    raise typer.Exit(1 if {"differs", "failed"} & verdicts else 0)


def _sizes(text: str) -> list[int]:
    try:
        return list(dict.fromkeys(int(part) for part in text.split(",")))
    except ValueError:
        raise GolowError(
            f"--batch {text} is not a batch size", "for example --batch 8, or --batch 1,8."
        ) from None


def _show(result: GenerationResult, json: str | None) -> None:
    from golow.report.generation.table import WIDTH, render

    to_pipe = json == "-"
    render(result.generation, wide_console(WIDTH, stderr=True) if to_pipe else None)
    write_json(result.generation, json)
