"""Hostile arguments: numbers at their extremes, texts that are none, options that do not fit."""

from __future__ import annotations

from pathlib import Path
from random import Random

from hostile.case import Case
from hostile.damage import ESCAPES

INTEGERS = (
    *("0", "-1", "1", "2147483648", "9223372036854775808", "1000000000000", "1" + "0" * 30),
    *("1e3", "1_000", "nan", "inf", "", " ", "0x10", "٣", "½", "9" * 5000, "--", "-", "true"),
)
FLOATS = (*INTEGERS, "0.0", "-0.0", "1e-320", "1e308", "1e400", "-inf", "+nan", "1,5", "0.5")
SECONDS = ("0", "-1", "nan", "inf", "-inf", "1e400", "1e-320", "", "x", "0.5")  # none is long
TIMES = (
    *("0ms", "-1ms", "1", "5 s", "nan", "inf", "infs", "1e3s", "", "1ms"),
    *("9" * 400 + "s", "9" * 13 + "s"),
)
RANGES = ("8..16", "16..8", "..", "0..0", "-1..4", "1..", "1..2..3", "1.." + "9" * 30)
TEXTS = (
    *("", " ", ",", ",,,", "-", "--", "/", ".", "..", "~", "\n", "\t", ESCAPES, "x" * 100_000),
    *("[red]", "[/]", "{0}", "%s", "../" * 3000, "a/" * 3000, "name=", "=", "a=b=c", "\udcff"),
    *("nan", "eager", "eager,eager", "eager:", ":", "::", "\u202e", "folder:", "folder:/", "-h"),
)
SHAPES = (
    *("", "x", "3x", "0", "-1x8x8", "3x8x8x8x8", "1x" * 2000 + "1", "999999999999", "3X8X8"),
    *("3x999999x999999", "1e3x2", "٣x٣", " 3x8x8 ", "1x1x1", "4096x4096x4096"),
)
PATHS = (
    *("", " ", "-", ".", "/", "/dev/null", "/dev/null/x", "/proc/x", "/proc/self/mem", "file"),
    *(
        "folder",
        "loop",
        "dangling",
        "x" * 300,
        "a/" * 3000,
        ESCAPES.replace("/", ""),
        "\udcff",
        "~x",
    ),
)

MODELS = (
    "mlp",
    "mlp",
    "mlp",
    "lenet5",
    "resnet18",
    *TEXTS,
    ".py:",
    "x.py",
    ".pt2",
    "a.b:c",
    "os:path",
)
MODEL = {
    "--mode": ("infer", "train", "", "INFER"),
    "--batch": INTEGERS,
    "--resolution": INTEGERS,
    "--input": SHAPES,
    "--channels": INTEGERS,
    "--classes": INTEGERS,
    "--loss": (*TEXTS, "mse_loss", "relu", "__name__", "dropout", "linear"),
}
WEIGHTS = {
    "--weights": (*PATHS, "file.safetensors", "folder.safetensors"),
    "--init": (*TEXTS, "fixup"),
}
RUNNING = {
    "--device": ("cpu", "cuda", "", "CPU"),
    "--precision": ("default", "ieee", "tf32", "bf16", "fp16", ""),
}
COMMANDS: dict[str, dict[str, tuple[str, ...]]] = {
    "lower": {**MODEL, **RUNNING, "--level": TEXTS},
    "emit": {**MODEL, **WEIGHTS, "--out": PATHS},
    "train": {
        **RUNNING,
        "--dataset": (*TEXTS, "digits", "mnist", "folder:folder", "folder:file"),
        "--levels": TEXTS,
        "--worker": TEXTS,
        "--epochs": INTEGERS,
        "--seeds": INTEGERS,
        "--seed": INTEGERS,
        "--resolution": INTEGERS,
        "--init": TEXTS,
        "--learning-rate": FLOATS,
        "--momentum": FLOATS,
        "--weight-decay": FLOATS,
        "--schedule": ("step", "cosine", ""),
        "--warm-up": FLOATS,
        "--step-epochs": INTEGERS,
        "--factor": FLOATS,
        "--crop": INTEGERS,
        "--threads": INTEGERS,
        "--data-root": PATHS,
        "--voc-label": ("first", ""),
        "--out": PATHS,
        "--figures": PATHS,
        "--tensorboard": PATHS,
        "--resume": PATHS,
    },
    "show": {"--anyway": ()},
    "study run": {"--out": PATHS, "--jobs": INTEGERS, "--budget": FLOATS, "--device": ("cuda", "")},
    "study resume": {"--out": PATHS, "--jobs": INTEGERS},
    "study status": {"--out": PATHS, "--environment": TEXTS},
    "study show": {"--out": PATHS, "--environment": TEXTS},
    "study export": {"--out": PATHS, "--to": PATHS, "--format": ("csv", "json", "parquet", "")},
    "study figures": {"--out": PATHS, "--studies": PATHS, "--formats": TEXTS, "--reference": TEXTS},
    "study list": {"--out": PATHS},
    "data status": {"--data-root": PATHS},
    "data verify": {"--data-root": PATHS},
    "compare": {
        **MODEL,
        **WEIGHTS,
        **RUNNING,
        "--levels": TEXTS,
        "--worker": TEXTS,
        "--learning-rate": FLOATS,
        "--momentum": FLOATS,
        "--weight-decay": FLOATS,
        "--seed": INTEGERS,
        "--threads": INTEGERS,
        "--interval": FLOATS,
        "--time-limit": SECONDS,
        "--out": PATHS,
        "--json": PATHS,
    },
}
COMMANDS |= {
    "audit": {
        **MODEL,
        **WEIGHTS,
        **RUNNING,
        "--levels": TEXTS,
        "--seconds": SECONDS,
        "--apply": TEXTS,
        "--threads": INTEGERS,
        "--out": PATHS,
        "--json": PATHS,
        "--report": PATHS,
    },
    "load": {
        **WEIGHTS,
        **RUNNING,
        "--resolution": INTEGERS,
        "--input": SHAPES,
        "--levels": TEXTS,
        "--scenario": TEXTS,
        "--sequence": (*INTEGERS, *RANGES),
        "--prompt": (*INTEGERS, *RANGES),
        "--tokens": INTEGERS,
        **dict.fromkeys(("--latency", "--ttft", "--tpot", "--delay", "--patience"), TIMES),
        "--percentile": FLOATS,
        "--rate": FLOATS,
        "--max-batch": INTEGERS,
        "--contexts": INTEGERS,
        "--seconds": SECONDS,
        "--repeats": ("0", "-1", "nan", "", "1"),
        "--url": TEXTS,
        "--seed": INTEGERS,
        "--out": PATHS,
    },
    "profile": {
        **MODEL,
        **WEIGHTS,
        "--precision": (*TEXTS, *RUNNING["--precision"]),
        "--levels": TEXTS,
        "--steps": INTEGERS,
        "--time-limit": SECONDS,
        "--by": TEXTS,
        "--sort": TEXTS,
        "--top": INTEGERS,
        "--save": PATHS,
        "--report": PATHS,
    },
    "build": {
        **WEIGHTS,
        **{name: MODEL[name] for name in ("--batch", "--resolution", "--input")},
        "--sequence": INTEGERS,
        "--level": TEXTS,
        "--threads": INTEGERS,
        "--out": PATHS,
    },
    "run": {
        **dict.fromkeys(("--input", "--out", "--weights"), PATHS),
        "--threads": INTEGERS,
        "--check": (),
    },
    "report": {"--out": PATHS, "--reference": TEXTS},
    "choices": dict.fromkeys(("--level", "--mode", "--device"), TEXTS),
}
MEASURING = ("compare", "audit", "load", "profile")
"""Commands that take seconds if a case turns out valid."""
# What a command is about, its first argument.
SUBJECTS: dict[str, tuple[str, ...]] = {
    "lower": MODELS,
    "emit": MODELS,
    "compare": MODELS,
    **dict.fromkeys(("audit", "load", "profile", "build"), MODELS),
    **dict.fromkeys(("run", "report"), (*PATHS, "file.safetensors")),
    "choices": TEXTS,
    "train": MODELS,
    "show": PATHS,
    "study run": (*TEXTS, *PATHS, "x.toml", "folder.toml"),
    **dict.fromkeys(("study resume", "study status", "study show"), (*TEXTS, *PATHS)),
    **dict.fromkeys(("study export", "study figures"), (*TEXTS, *PATHS)),
    "data verify": (*TEXTS, "digits"),
}
# So that a case that turns out valid is short.
SHORT = {
    "lower": ("--batch", "2"),
    "emit": ("--out", "project"),
    "compare": ("--levels", "eager", "--time-limit", "0.1", "--threads", "1"),
    "audit": ("--quick", "--levels", "eager", "--seconds", "0.05", "--threads", "1"),
    "load": ("--levels", "eager", "--seconds", "0.1", "--repeats", "1", "--threads", "1"),
    "profile": ("--levels", "eager", "--time-limit", "0.1", "--threads", "1"),
    "build": ("--batch", "2", "--out", "net.golow"),
    "train": ("--batch", "1000000000"),
    "study run": ("--budget", "0"),
    "study figures": ("--out", "figures"),
}


def arguments(random: Random, folder: Path) -> Case:
    """Any command that does not measure, which is slow, with hostile arguments."""
    quick = [name for name in COMMANDS if name not in MEASURING]
    return _case(random, folder, random.choice(quick))


def comparing(random: Random, folder: Path) -> Case:
    """A command that measures, with hostile arguments."""
    return _case(random, folder, random.choice(MEASURING))


def _case(random: Random, folder: Path, command: str) -> Case:
    _write_places(folder)
    options = COMMANDS[command]
    given: list[str] = list(SHORT.get(command, ()))
    if command in SUBJECTS:
        usual = "mlp" if SUBJECTS[command] is MODELS else None
        hostile = random.random() < 0.3 or usual is None
        given.insert(0, random.choice(SUBJECTS[command]) if hostile else str(usual))
    if command == "train":
        given += ["--dataset", "digits"]
    for name in random.sample(list(options), min(len(options), random.choice((1, 1, 2, 3)))):
        given += [name, random.choice(options[name])] if options[name] else [name]
    given = [
        text.encode(errors="surrogateescape").decode(errors="surrogateescape") for text in given
    ]
    return Case(
        title=f"arguments of {command}",
        folder=str(folder),
        arguments=(*command.split(), *(text.replace("\udcff", "\xff") for text in given)),
        statuses=(0, 1, 2),
    )


def _write_places(folder: Path) -> None:
    """What the paths lead to."""
    (folder / "file").write_bytes(b"\xff\0file")
    for name in ("folder", "folder.safetensors", "folder.toml"):
        (folder / name).mkdir()
    (folder / "file.safetensors").write_bytes(b"\xff" * 100)
    (folder / "loop").symlink_to("loop")
    (folder / "dangling").symlink_to("nowhere")
