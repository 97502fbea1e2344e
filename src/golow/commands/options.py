"""Command-line options that several commands share, and the functions that parse their values."""

from __future__ import annotations

import re
from enum import StrEnum
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, get_args

import typer

from golow.commands import completion
from golow.records.errors import GolowError
from golow.records.quantization import QuantizationRule
from golow.storage.files import is_folder, require_no_file, require_writable


class DeviceName(StrEnum):
    """The device that every level runs on."""

    cpu = "cpu"
    cuda = "cuda"


class PrecisionName(StrEnum):
    """The arithmetic that every level uses."""

    default = "default"
    ieee = "ieee"
    tf32 = "tf32"
    bf16 = "bf16"
    fp16 = "fp16"


class ComparedPrecisionName(StrEnum):
    """Arithmetic that every level uses, or the rule by which the network is quantised."""

    default = PrecisionName.default.value
    ieee = PrecisionName.ieee.value
    tf32 = PrecisionName.tf32.value
    bf16 = PrecisionName.bf16.value
    fp16 = PrecisionName.fp16.value
    int8 = "int8"
    fp8 = "fp8"
    int8_weights = "int8-weights"
    int4_weights = "int4-weights"
    fp8_weights = "fp8-weights"


Model = Annotated[
    str,
    typer.Argument(
        help="A model from `golow models`, or hf:NAME, timm:NAME, file.py:Name, "
        "package.module:name, file.pt2.",
        show_default=False,
        autocompletion=completion.models,
    ),
]
Channels = Annotated[
    int | None, typer.Option(help="Number of input channels, for built-in models.")
]
Classes = Annotated[
    int | None,
    typer.Option(help="Number of classes, or size of the vocabulary, for built-in models."),
]


def some_names(text: str | None, option: typer.CallbackParam) -> str | None:
    """Raise `GolowError` for a list without a name, which is not the same as the default."""
    if text is not None and not names(text):
        raise GolowError(f"{option.opts[0]} {text!r} names nothing", "leave it out, or name some.")
    return text


LevelNames = Annotated[
    str | None,
    typer.Option(
        help="Comma-separated levels from `golow levels`.",
        autocompletion=completion.levels,
        callback=some_names,
    ),
]
Workers = Annotated[
    list[str] | None,
    typer.Option(help="Add your own worker program, as NAME=COMMAND; see docs/extend/protocol.md."),
]
Trust = Annotated[
    bool,
    typer.Option(
        "--trust",
        help="Also run code and commands named in a record that other users can write.",
    ),
]
LossOption = Annotated[
    str | None,
    typer.Option(
        help="Loss function from torch.nn.functional, or golow's token_cross_entropy or "
        "mse_of_outputs.  [default: the model's; cross_entropy]"
    ),
]
DeviceOption = Annotated[DeviceName, typer.Option("--device", help="Device to run on.")]


def require_no_rule(precision: str) -> None:
    """Raise `GolowError` for a quantisation rule, in a command that does not quantise."""
    if precision in get_args(QuantizationRule):
        raise GolowError(
            f"--precision {precision} is for compare, build, generate and studies, which quantise "
            "the network first",
            f"golow quantize MODEL --rule {precision} --calibrate DATA --out FILE.safetensors; "
            "other commands take that file as --weights.",
        )


def _unquantized(value: str) -> PrecisionName:
    require_no_rule(value)
    if value not in tuple(PrecisionName):
        raise typer.BadParameter(f"{value!r} is not one of {', '.join(PrecisionName)}.")
    return PrecisionName(value)


PrecisionOption = Annotated[
    PrecisionName,
    typer.Option(
        "--precision",
        parser=_unquantized,
        metavar=f"[{'|'.join(PrecisionName)}]",
        help="Arithmetic that every level uses. default is PyTorch's: float32, with TF32 in "
        "convolutions on a GPU. ieee is float32 everywhere; tf32, bf16 and fp16 need a GPU.",
    ),
]
ComparedPrecision = Annotated[
    ComparedPrecisionName,
    typer.Option(
        "--precision",
        help="Arithmetic that every level uses. default is PyTorch's: float32, with TF32 in "
        "convolutions on a GPU. ieee is float32 everywhere; tf32, bf16 and fp16 need a GPU. int8, "
        "fp8, int8-weights, int4-weights and fp8-weights quantise the network first; every level "
        "then runs the quantised network.",
    ),
]
Calibrate = Annotated[
    str | None,
    typer.Option(
        help="With a --precision that quantises: calibration samples from a data set in `golow "
        "data list`, or `inputs`, which golow generates.",
        show_default=False,
    ),
]
Gpu = Annotated[
    str,
    typer.Option(
        "--gpu",
        help="With --device cuda: plan for this GPU, such as h200, even if the machine does not "
        "have it.",
        show_default=False,
    ),
]
Threads = Annotated[
    int | None, typer.Option(help="Threads per level.  [default: one per physical core]")
]
ProfileBy = Annotated[
    str,
    typer.Option("--by", help="View of a step: by operator, layer, kernel, memory or roofline."),
]
ProfileSort = Annotated[
    str,
    typer.Option(
        "--sort",
        help="Order of a profile's operators: time, host-time, device-time, host-memory, "
        "device-memory or calls.",
    ),
]
ProfileTop = Annotated[
    int, typer.Option("--top", min=1, help="Operators or kernels of a profile to show.")
]


def require_package(name: str, extra: str) -> None:
    """Raise `GolowError` now rather than after hours of measuring."""
    if find_spec(name) is None:
        raise GolowError(f"{name} is not installed", f"pip install 'golow[{extra}]'")


def no_stream(path: Path | None, option: typer.CallbackParam) -> Path | None:
    """Raise `GolowError` for ``-``, which means standard output: the command writes files."""
    if str(path) == "-":
        raise GolowError(
            f"{option.opts[0]} - means standard output, but this option writes files",
            "name a folder or a file; only --json - writes to standard output.",
        )
    return path


def folder_named(path: Path | None, option: typer.CallbackParam) -> Path | None:
    """Raise `GolowError` as `no_stream` does, and for a file. The folder may not exist yet."""
    place = no_stream(path, option)
    if place is not None:
        require_no_file(place, f"name a folder with {option.opts[0]}.")
    return place


def folder_place(path: Path | None, option: typer.CallbackParam) -> Path | None:
    """Raise `GolowError` as `folder_named` does, and now, rather than after minutes, if no files
    can be written into the folder."""
    place = folder_named(path, option)
    if place is not None:
        require_writable(place, f"name another folder with {option.opts[0]}.")
    return place


def page_place(path: Path | None, option: typer.CallbackParam) -> Path | None:
    """Raise `GolowError` as `no_stream` does, and now, rather than after minutes, if no page can be
    written there. The folder may not exist yet."""
    place = no_stream(path, option)
    if place is not None:
        if is_folder(place):
            raise GolowError(f"{place} is a folder", f"name a file in it: {place / 'report.html'}")
        require_writable(place.parent, f"name another file with {option.opts[0]}.", place)
    return place


Out = Annotated[Path, typer.Option(help="Folder for the records.", callback=folder_named)]
JsonFile = Annotated[
    str | None,
    typer.Option("--json", help="Also write the results to this JSON file; - is standard output."),
]
ReportFile = Annotated[
    Path | None,
    typer.Option(
        "--report",
        help="Also write the results to this file as an HTML page.",
        callback=page_place,
    ),
]


def names(text: str | None) -> list[str] | None:
    """Split comma-separated names; None when the option is not given."""
    return None if text is None else [name.strip() for name in text.split(",") if name.strip()]


def numbers(option: str, text: str | None) -> list[float]:
    """Split comma-separated numbers; empty when the option is not given. Raises `GolowError` for
    anything else."""
    try:
        return [float(part) for part in names(text) or []]
    except ValueError:
        raise GolowError(
            f"{option} {text} is not a list of numbers", f"for example {option} 50,100."
        ) from None


def counts(option: str, text: str) -> list[int]:
    """Split comma-separated whole numbers. Raises `GolowError` for anything else."""
    try:
        return [int(part) for part in names(text) or []]
    except ValueError:
        raise GolowError(
            f"{option} {text} is not a list of whole numbers", f"for example {option} 1,2."
        ) from None


def span(option: str, text: str) -> tuple[int, int]:
    """Smallest and largest number of a range such as 16..128; for a single number, that number
    twice. Raises `GolowError` for anything else."""
    smallest, dots, largest = text.partition("..")
    try:
        return int(smallest), int(largest if dots else smallest)
    except ValueError:
        raise GolowError(
            f"{option} {text} is not a length",
            f"for example {option} 128, or {option} 16..128.",
        ) from None


UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}


def duration(option: str, text: str) -> float:
    """Seconds of a text such as 20ms or 1.5s. Raises `GolowError` for anything else."""
    found = re.fullmatch(r"\s*(\d+\.?\d*|\.\d+)\s*(us|ms|s)\s*", text)
    if found is None:
        raise GolowError(
            f"{option} {text} is not a time with a unit (us, ms, s)", f"for example {option} 20ms."
        )
    return float(found[1]) * UNITS[found[2]]


def workers(given: list[str]) -> dict[str, list[str]]:
    """Parse NAME=COMMAND texts into commands by name; raises `GolowError` for anything else."""
    from golow.levels.level_selection import command_of

    found = {}
    for text in given:
        name, equals, command = text.partition("=")
        if not (name and equals and command.strip()):
            raise GolowError(
                f"--worker {text!r} does not have the form NAME=COMMAND",
                'for example --worker "mine=./runtime"',
            )
        found[name] = list(command_of(command))
    return found


class FormatName(StrEnum):
    """Printed form of a comparison."""

    table = "table"
    markdown = "markdown"
    csv = "csv"
    html = "html"


Columns = Annotated[
    str | None,
    typer.Option(
        help="Show these columns, separated by commas: time, ratio, throughput, percentiles, "
        "memory, ready, build, artifact, payback, enqueue.  [default: as many as fit]"
    ),
]
FormatOption = Annotated[
    FormatName, typer.Option("--format", help="Print a comparison as a table or in this format.")
]
