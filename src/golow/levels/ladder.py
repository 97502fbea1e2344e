"""The ladder: every level golow knows, in order from the most abstract to the lowest."""

from __future__ import annotations

from collections.abc import Collection

from golow.levels.aotinductor import level as aotinductor
from golow.levels.called.emitted_level import with_emitted
from golow.levels.called.level import with_called
from golow.levels.direct.cudnn import level as cudnn
from golow.levels.direct.onednn import level as onednn
from golow.levels.level import Launch, Level, Variant
from golow.levels.libtorch import level as libtorch
from golow.levels.named_level import ChosenLevel
from golow.levels.peers import executorch, iree, onnxruntime, openvino, tensorrt, tvm
from golow.levels.probe import Probe
from golow.levels.torch import compile as compile_level
from golow.levels.torch import cudagraph, ddp, eager, fsdp, torchscript
from golow.levels.traced.jax import level as jax
from golow.levels.traced.paddle import level as paddle
from golow.levels.traced.tensorflow import level as tensorflow
from golow.records.errors import GolowError
from golow.records.near_names import meant
from golow.records.workload import Device, Mode

__all__ = [
    "ALIASES",
    "BASELINE",
    "DEFAULT",
    "DEFAULT_ON_CUDA",
    "LADDER",
    "OPTIONAL",
    "REFERENCE",
    "ChosenLevel",
    "Launch",
    "Level",
    "Probe",
    "Variant",
    "choose",
    "default",
]

LADDER: tuple[Level, ...] = (
    eager.LEVEL,
    ddp.LEVEL,
    fsdp.LEVEL,
    torchscript.LEVEL,
    compile_level.LEVEL,
    cudagraph.LEVEL,
    onnxruntime.LEVEL,
    openvino.LEVEL,
    tensorrt.LEVEL,
    executorch.LEVEL,
    tvm.LEVEL,
    iree.LEVEL,
    jax.LEVEL,
    tensorflow.LEVEL,
    paddle.LEVEL,
    aotinductor.LEVEL,
    libtorch.LEVEL,
    with_emitted(with_called(onednn.LEVEL)),
    with_emitted(with_called(cudnn.LEVEL)),
)

# The default levels on a CPU. max-autotune is left out: its build takes minutes. aotinductor is,
# too: it compiles the kernels of compile a second time, and would double the longest build. So is
# tvm: without tuning one of its iterations takes as long as many of the others. iree only runs when
# it is named, too: whether it costs a comparison as much was not measured yet.
DEFAULT = (
    "eager",
    "eager:channels_last",
    "torchscript",
    "compile",
    "compile:freezing",
    "libtorch",
)

# The default levels on a GPU, where most of a small network's time is the host's; only CUDA graphs
# remove that.
DEFAULT_ON_CUDA = (
    "eager",
    "eager:channels_last",
    "torchscript",
    "compile",
    "compile:cudagraphs",
    "compile:freezing-cudagraphs",
    "cudagraph",
    "cudagraph:channels_last",
    "libtorch",
)

# Levels that need an extra; they run by default only if it is installed.
OPTIONAL = (
    "onnxruntime", "openvino", "tensorrt", "executorch", "jax", "tensorflow", "paddle", "onednn",
    "cudnn",
)  # fmt: skip

# Direct calls of the vendor's library, with no framework; it depends on the device.
DIRECT: dict[Device, str] = {"cpu": "onednn", "cuda": "cudnn"}
ALIASES = {"direct": DIRECT, "vendor": DIRECT}

# The default levels of a training run in several ranks; the last one where it can.
DEFAULT_OF_RANKS = ("ddp", "ddp:compile", "fsdp")

# The denominator of the ratios, and the plain version in the check: of one process, of several.
BASELINE = "eager"
BASELINE_OF_RANKS = "ddp"

# The check's reference is a level like any other, but not one to use in production.
REFERENCE = "eager:float64"


def baseline(ranks: int) -> str:
    """The name of the level that others are compared with."""
    return BASELINE if ranks == 1 else BASELINE_OF_RANKS


def default(mode: Mode, device: Device, ranks: int = 1) -> list[str]:
    """The names of the default levels, in the ladder's order; those that need an extra only if it
    is installed."""
    listed: tuple[str, ...] = DEFAULT_ON_CUDA if device == "cuda" else DEFAULT
    if ranks > 1:
        listed = DEFAULT_OF_RANKS
    found = []
    for level in LADDER:
        if not _runs_in(level, ranks):
            continue
        names = [name for name in listed if name.partition(":")[0] == level.name]
        if level.name in OPTIONAL and _runs_by_default(level, device):
            names.append(level.name)
        choices = (ChosenLevel(level, name.partition(":")[2]) for name in names)
        found += [c.name for c in choices if mode in c.modes and device in c.devices]
    return found


def _runs_in(level: Level, ranks: int) -> bool:
    return level.ranked != ("only" if ranks == 1 else "never")


def _runs_by_default(level: Level, device: Device) -> bool:
    if device not in level.devices or device in level.unseen:
        return False
    return level.probe_on(device).available


def has(name: str) -> bool:
    """True if it is the name of a level here, or an alias of one."""
    return name in ALIASES or any(level.name == name for level in LADDER)


def choose(name: str, mode: Mode, device: Device = "cpu", ranks: int = 1) -> ChosenLevel:
    """The level of that name, ``level:variant+choice+choice``; raises `GolowError` with the nearest
    names if there is none, and for a level that does not run in this mode, on this device or in
    this many ranks."""
    level_name, variant, wanted = _parts(name)
    level = _level(name, level_name, device)
    if variant and variant not in level.variants:
        known = ", ".join(f"{level.name}:{v}" for v in level.variants) or "none"
        raise GolowError(f"{level.name} has no variant {variant!r}", f"its variants: {known}.")
    chosen = ChosenLevel(level, variant)
    _require_ranks(level, device, ranks)
    if mode not in chosen.modes:
        raise GolowError(
            f"{name} is for {' and '.join(chosen.modes)} only, not for {mode}",
            "`golow levels` lists what each level is for.",
        )
    if device not in chosen.devices:
        [only] = chosen.devices
        raise GolowError(
            f"{name} runs on {only} only, not on {device}",
            f"use --device {only}, or choose other levels; `golow levels` lists them.",
        )
    return chosen.with_choices(wanted, mode, device)


def _require_ranks(level: Level, device: Device, ranks: int) -> None:
    """Raise `GolowError` for a level that does not run in this many ranks."""
    if _runs_in(level, ranks):
        return
    option = "--gpus" if device == "cuda" else "--ranks"
    if ranks == 1:
        raise GolowError(
            f"{level.name} is for training in several ranks",
            f"add --mode train {option} 2, or use --levels {BASELINE}.",
            python_hint=f'use mode="train" and ranks=2, or levels=["{BASELINE}"].',
        )
    able = ", ".join(level.name for level in LADDER if _runs_in(level, ranks))
    raise GolowError(
        f"{level.name} runs in one process, not in {ranks} ranks",
        f"use {BASELINE_OF_RANKS}, which is eager's step in each rank; levels that train in "
        f"several are {able}.",
    )


def listed(names: Collection[str] | None) -> list[str] | None:
    """The names that were requested, None for the default ones. Raises `GolowError` for a text,
    whose letters would be taken for names."""
    if isinstance(names, str):
        raise GolowError(
            f"levels are a list of names, not the text {names!r}",
            f"use levels={[name.strip() for name in names.split(',')]}.",
        )
    return None if names is None else list(names)


def _parts(name: str) -> tuple[str, str, list[str]]:
    """Level, variant and choices of a name."""
    first, *wanted = name.split("+")
    level, _, variant = first.partition(":")
    return level, variant, wanted


def _level(name: str, level_name: str, device: Device) -> Level:
    by_name = {level.name: level for level in LADDER}
    level_name = ALIASES[level_name][device] if level_name in ALIASES else level_name
    if level_name not in by_name:
        raise GolowError(
            f"there is no level {name!r}",
            f"{meant(level_name, by_name)}levels are {', '.join((*by_name, *ALIASES))}; "
            "`golow levels` describes them.",
        )
    return by_name[level_name]
