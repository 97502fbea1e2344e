"""The interface of a level: a name, a probe, and a way to start its worker."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

from golow.levels.nvidia.known_gpus import KnownGpu
from golow.levels.probe import Probe
from golow.lower.ir.graph import Graph, Pass
from golow.lower.plan.plan import Plan
from golow.records.errors import Unsupported
from golow.records.workload import Device, Mode, Workload
from golow.workload.bundle import Bundle
from golow.workload.import_path import module_command

# For workers that compute nothing in numpy: on import, its OpenBLAS starts a thread that spins for
# a tenth of a second or more, on a core that the first iterations need.
IDLE_NUMPY = {"OPENBLAS_NUM_THREADS": "1"}


class Variant(NamedTuple):
    """A level with a setting that users can choose; ``level:variant`` on the command line."""

    summary: str
    modes: tuple[Mode, ...] = ("infer", "train")
    devices: tuple[Device, ...] = ("cpu", "cuda")


class Launch(NamedTuple):
    """How to start the worker, and the cost of what had to be built first.

    build_seconds is the time of the original build, even if it comes from the cache (``cached``).
    If the worker builds while it loads, ``built_by_loading`` is the file that stores the seconds,
    and the worker is started once only to build; ``build_measures`` states that this build times
    alternatives and needs exclusive access to the device. ``sealed`` is the folder that is sealed
    after that build. ``notes`` are for the record, such as a damaged file of the cache. ``choices``
    are the alternatives that the worker makes when it loads, by name: the choice that each belongs
    to, and the value that is then in effect. ``ranked``: one process runs for each rank.
    """

    command: tuple[str, ...]
    environment: Mapping[str, str] = {}
    build_seconds: float = 0.0
    cached: bool = False
    artifact_bytes: int | None = None
    built_by_loading: Path | None = None
    build_measures: bool = False
    sealed: Path | None = None
    notes: tuple[str, ...] = ()
    choices: Mapping[str, tuple[str, str]] = {}
    ranked: bool = False


@dataclass(frozen=True)
class Level:
    """One way to execute a workload.

    served_by: the module of its Python worker, if nothing has to be built before the worker starts;
    empty if the command depends on the bundle or on what is built from it. from_graph: whether it
    starts from the captured graph, so that capture is part of its cost. modes, devices: what it can
    run, and on which devices; a variant may support less. passes: the passes that it adds to the
    common ones, if it lowers the graph further. plan(graph, workload, variant, cache): what it
    finally executes, in readable form. plan_for: the same for a GPU that may be missing here, up to
    the choice of engines; a variant that times has what the GPU's figures predict. kernels: the
    code that it generates for that plan, a text for each kernel. source: the Python program that it
    writes of a lowered graph, for a level that runs one. refusals(graph, workload): for a level
    that starts from the graph, yields unsupported nodes of the canonical graph, in order; it builds
    nothing and needs neither the level's libraries nor its device. exports: whether an exporter
    turns the module into another format, and decides what is left out. probe: imports nothing
    heavy. on_device: what else a device needs. unseen: devices on which the level was never tested;
    it does not run there by default. ranked: whether it can train in several ranks, or does nothing
    else. prepare(bundle, variant, cache): builds what must be built, and raises `Unsupported` if
    the level does not support this workload.
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
    passes: Callable[[Workload], tuple[Pass, ...]] | None = None
    plan: Callable[[Graph, Workload, str, Path], Plan] | None = None
    plan_for: Callable[[Graph, Workload, str, KnownGpu], Plan] | None = None
    kernels: Callable[[Graph, Workload, str, Path], tuple[str, ...]] | None = None
    refusals: Callable[[Graph, Workload], Iterator[Unsupported]] | None = None
    exports: bool = False
    source: Callable[[Graph, Workload], str] | None = None
    on_device: Mapping[Device, Callable[[], Probe]] = field(default_factory=dict)
    unseen: tuple[Device, ...] = ()
    ranked: Literal["never", "also", "only"] = "never"

    def probe_on(self, device: Device) -> Probe:
        """Probe of the level on this device and machine."""
        found = self.probe()
        further = self.on_device.get(device)
        return further() if found.available and further is not None else found


def python_worker(module: str, variant: str) -> tuple[str, ...]:
    """The command of the Python worker that serves the level in this module."""
    return module_command("golow.worker.serve", f"{module}:{variant}" if variant else module)
