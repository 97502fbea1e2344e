"""Settings that shorten a stage, as far as golow can try them, with the seconds before and
after."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from golow.programs.life.life_record import LevelLife, Life, LifeCycle
from golow.programs.life.stages import Spread, spread, stage_spread
from golow.records.workload import Device

TRIED: dict[Device, tuple[str, ...]] = {"cpu": (), "cuda": ("CUDA_MODULE_LOADING=EAGER",)}
"""Settings of the environment with which warm lives are measured beside those without. EAGER is
what CUDA did before 12.2; LAZY, its default since, loads a kernel when it is first launched.
https://docs.nvidia.com/cuda/cuda-c-programming-guide/#lazy-loading"""

KEPT = {
    "compile": "Inductor's cache is kept",
    "onnxruntime": "the exported model is kept",
    "openvino": "the exported model is kept",
    "tensorrt": "the engine is kept",
    "executorch": "the lowered program is kept",
    "tvm": "the compiled library is kept",
    "iree": "the compiled module is kept",
    "aotinductor": "the compiled package is kept",
    "libtorch": "the linked program is kept",
    "onednn": "lowered graph and layouts are kept",
    "cudnn": "kernels and engines are kept",
}
"""Parts of a level that golow's cache keeps."""


class Mitigation(NamedTuple):
    """Seconds of a level's stages without and with a mitigation. stages: those it acts on."""

    level: str
    stages: str
    name: str
    without: Spread
    used: Spread


def mitigations(found: LifeCycle) -> Iterator[Mitigation]:
    """All that was tried, level by level."""
    for level in found.levels:
        yield from _kept(level)
        yield from _woken(level)
        yield from _settings(level, found.workload.device)


def _kept(level: LevelLife) -> Iterator[Mitigation]:
    """The cache of a level that builds: its cold lives against its warm ones."""
    name = KEPT.get(level.level.partition(":")[0])
    if name is not None:
        yield from _compared(
            level, "capture, build", name, _building, level.of("cold"), level.of("warm")
        )


def _woken(level: LevelLife) -> Iterator[Mitigation]:
    """A worker that has done its imports, or also loaded, before it is wanted."""
    warm = level.of("warm")
    ready = spread(one.start for one in warm)
    loading = spread(one.start - one.seconds.get("import", 0.0) for one in warm)
    result = spread(one.start + one.seconds["first_iteration"] for one in warm)
    steady = stage_spread(warm, "steady_iteration")
    if ready and loading:
        yield Mitigation(level.level, "import", "the worker is woken in advance", ready, loading)
    if result and steady:
        name = "the worker is loaded in advance"
        yield Mitigation(level.level, "start to first result", name, result, steady)


def _settings(level: LevelLife, device: Device) -> Iterator[Mitigation]:
    for setting in TRIED[device]:
        without = level.of("warm", setting)
        yield from _compared(
            level, "import to first", f"without {setting}", _first_result, without, level.of("warm")
        )


def _compared(
    level: LevelLife,
    stages: str,
    name: str,
    figure: Callable[[Life], float],
    without: Sequence[Life],
    used: Sequence[Life],
) -> Iterator[Mitigation]:
    before, after = spread(map(figure, without)), spread(map(figure, used))
    if before and after:
        yield Mitigation(level.level, stages, name, before, after)


def _building(one: Life) -> float:
    return one.seconds.get("capture", 0.0) + one.seconds.get("build", 0.0)


def _first_result(one: Life) -> float:
    return one.start + one.seconds["first_iteration"]
