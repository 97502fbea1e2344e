"""What a level is to the rest of golow: a name, a probe, and a way to start its worker."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from golow.levels.probe import Probe
from golow.lower.graph import Graph
from golow.lower.plan import Plan
from golow.record import Device, Mode, Workload
from golow.workload.bundle import Bundle

# For a worker that computes nothing in numpy: the thread that its OpenBLAS starts at the import
# spins for a tenth of a second and more, on a core that the first iterations need.
IDLE_NUMPY = {"OPENBLAS_NUM_THREADS": "1"}


class Variant(NamedTuple):
    """A level with a setting that users choose; ``level:variant`` on the command line."""

    summary: str
    modes: tuple[Mode, ...] = ("infer", "train")
    devices: tuple[Device, ...] = ("cpu", "cuda")
    passes: Callable[[Workload], tuple[Callable[[Graph], Graph], ...]] | None = None
    plan: Callable[[Graph, Workload, Path], Plan] | None = None


class Launch(NamedTuple):
    """How to start the worker, and what had to be built first.

    build_seconds is what the build took when it was made, also where it was found in the cache
    (``cached``). Where loading in the worker is the build, ``built_by_loading`` is the file that
    remembers its seconds, and the worker is started once for it alone; ``build_measures`` says that
    it chooses by timing then, and needs the device for itself.
    """

    command: tuple[str, ...]
    environment: Mapping[str, str] = {}
    build_seconds: float = 0.0
    cached: bool = False
    artifact_bytes: int | None = None
    built_by_loading: Path | None = None
    build_measures: bool = False


@dataclass(frozen=True)
class Level:
    """One way to execute a workload.

    served_by: the module of its Python worker, where nothing has to be built before that starts;
    empty where the command depends on the bundle or on what is built from it.
    from_graph: it starts from the captured graph, so that capturing is a part of its cost.
    modes and devices: what it can run at all, and where; a variant may do less.
    passes: those that it adds to the common ones, where it lowers the graph further. plan: what
    it executes in the end, for a person to read.
    probe imports nothing heavy. prepare(bundle, variant, cache) builds what must be built, and
    raises `golow.record.Unsupported` where the level cannot do this workload.
    """

    name: str
    summary: str
    needs: str
    probe: Callable[[], Probe]
    prepare: Callable[[Bundle, str, Path], Launch]
    variants: Mapping[str, Variant] = field(default_factory=dict)
    served_by: str = ""
    from_graph: bool = False
    modes: tuple[Mode, ...] = ("infer", "train")
    devices: tuple[Device, ...] = ("cpu",)
    passes: Callable[[Workload], tuple[Callable[[Graph], Graph], ...]] | None = None
    plan: Callable[[Graph, Workload, Path], Plan] | None = None


def python_worker(module: str, variant: str) -> tuple[str, ...]:
    """The command of the Python worker that serves the level in this module."""
    return (
        sys.executable,
        "-m",
        "golow.worker.serve",
        f"{module}:{variant}" if variant else module,
    )
