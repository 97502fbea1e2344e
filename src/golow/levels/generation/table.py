"""The levels of text generation, one row each, from the most abstract one down."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import msgspec

from golow.levels import gpu
from golow.levels.direct.cudnn import level as cudnn
from golow.levels.direct.onednn import level as onednn
from golow.levels.level import IDLE_NUMPY, python_worker
from golow.levels.peers import openvino
from golow.levels.probe import Probe
from golow.records.errors import GolowError
from golow.records.record import encode
from golow.records.text import TextWorkload
from golow.records.workload import Device

BASELINE = "eager:static"
"""Always runs: it is the step module itself, whose float64 form is the reference."""

REFERENCE = "golow.levels.generation.reference"


def _available() -> Probe:
    return Probe(True)


def _no_environment(workload: TextWorkload, cache: Path) -> Mapping[str, str]:
    return IDLE_NUMPY


class TextLevel(NamedTuple):
    """A level that generates texts.

    served_by: the module of its Python worker, with ``program(variant)``. probe: whether it can run
    here. environment: variables of its worker, for a workload and golow's cache. variant: which of
    the module's programs. times: whether it chooses kernels by timing them while it loads, unless
    the cache has its choices.
    """

    name: str
    summary: str
    served_by: str
    probe: Callable[[], Probe] = _available
    environment: Callable[[TextWorkload, Path], Mapping[str, str]] = _no_environment
    variant: str = ""
    devices: tuple[Device, ...] = ("cpu", "cuda")
    times: bool = False

    @property
    def command(self) -> tuple[str, ...]:
        """The command of its worker."""
        return python_worker(self.served_by, self.variant)


def _has_compiler() -> Probe:
    if shutil.which("g++") or shutil.which("clang++"):
        return Probe(True)
    return Probe(False, "there is no C++ compiler for Inductor", "apt-get install g++")


def _has_llama_cpp() -> Probe:
    from golow.levels.peers import exported_program

    return exported_program.probe(("llama_cpp", "gguf"), "llama-cpp")


def _inductor(workload: TextWorkload, cache: Path) -> Mapping[str, str]:
    folder, threads = cache / "inductor" / build_key(workload), str(workload.threads)
    return {"TORCHINDUCTOR_CACHE_DIR": str(folder), "TORCHINDUCTOR_COMPILE_THREADS": threads}


def build_key(workload: TextWorkload) -> str:
    """A name for what levels build for a workload with this PyTorch."""
    source = workload.source
    if source.configuration:  # it is the model, and its file may be another one's copy
        workload = msgspec.structs.replace(
            workload, source=msgspec.structs.replace(source, name="")
        )
    key = encode(workload) + version("torch").encode()
    return hashlib.sha256(key).hexdigest()[:16]


def _own_cache(workload: TextWorkload, cache: Path) -> Mapping[str, str]:
    return {"GOLOW_CACHE": str(cache)}


LEVELS = (
    TextLevel(
        "eager",
        "PyTorch, a cache that grows by concatenation; for hf: the dynamic cache",
        "golow.levels.generation.growing",
    ),
    TextLevel(
        BASELINE,
        "PyTorch, a cache that is written in place",
        "golow.levels.generation.static",
    ),
    TextLevel(
        "compile:static",
        "torch.compile of the step, a cache that is written in place",
        "golow.levels.generation.compiled",
        probe=_has_compiler,
        environment=_inductor,
        times=True,
    ),
    TextLevel(
        "compile:static-cudagraphs",
        "the same, each step of one token a CUDA graph (mode reduce-overhead)",
        "golow.levels.generation.compiled",
        probe=gpu.probe,
        environment=_inductor,
        variant="cudagraphs",
        devices=("cuda",),
        times=True,
    ),
    TextLevel(
        "openvino",
        "OpenVINO, the cache is its state, as OpenVINO GenAI runs a model",
        "golow.levels.generation.openvino",
        probe=openvino.probe,
        devices=("cpu",),
    ),
    TextLevel(
        "llama.cpp",
        "llama.cpp, weights as GGUF in their own float type",
        "golow.levels.generation.llama_cpp",
        probe=_has_llama_cpp,
        environment=_own_cache,
        devices=("cpu",),
    ),
    TextLevel(
        "onednn",
        "plans of oneDNN over one cache; attention reads only what is there",
        "golow.levels.generation.planned",
        probe=onednn.probe,
        environment=_own_cache,
        devices=("cpu",),
        times=True,
    ),
    TextLevel(
        "cudnn",
        "plans of cuDNN, cuBLASLt and golow's kernels over one cache, each a CUDA graph",
        "golow.levels.generation.planned",
        probe=cudnn.probe,
        environment=_own_cache,
        devices=("cuda",),
        times=True,
    ),
)


def chosen(names: Sequence[str] | None, device: Device = "cpu") -> tuple[TextLevel, ...]:
    """The levels of these names and the baseline, in the order of the table; all of the device for
    None. Raises `GolowError` for a name that no level of the device has."""
    known = {level.name: level for level in LEVELS if device in level.devices}
    for name in names or ():
        if name not in known:
            raise GolowError(
                f"there is no level {name!r} that generates texts with --device {device}",
                f"levels: {', '.join(known)}.",
            )
    wanted = set(known) if names is None else {*names, BASELINE}
    return tuple(level for level in known.values() if level.name in wanted)
