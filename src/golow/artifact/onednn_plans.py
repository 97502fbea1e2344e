"""Builds the plans of an artifact on this machine's processor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from golow.artifact.array_inputs import Arrays
from golow.artifact.container import Container
from golow.artifact.host_arrays import HostArrays
from golow.artifact.manifest import CONSTANTS, GRAPH, LAYOUTS, Manifest, Plan, library_entry
from golow.artifact.tensor_entry import tensors_of
from golow.levels.called.sizes import Size
from golow.levels.compiler import find_compiler
from golow.levels.direct.bundle_arrays import Read
from golow.levels.direct.onednn.bindings.processor import instruction_sets
from golow.levels.direct.onednn.level import probe
from golow.levels.direct.onednn.run.called_plan import CalledPlan
from golow.levels.direct.onednn.run.kernel_compilation import (
    NO_KERNELS,
    MissingKernel,
    Workshop,
    set_threads,
)
from golow.levels.direct.onednn.run.shared_weights import Region, SharedWeights
from golow.levels.direct.onednn.run.tuning import Layouts
from golow.lower.ir.graph import Graph, decode_graph
from golow.records.errors import GolowError, Unsupported
from golow.storage.cache import open_cache
from golow.storage.files import write_whole

__all__ = ["Plans", "probe"]


class Plans:
    """The plans by size, over one memory for weights. notes: what is not as on the machine that
    made them, one sentence each."""

    def __init__(
        self, container: Container, manifest: Manifest, weights: Mapping[str, np.ndarray],
        threads: int, cache: Path | None,
    ) -> None:  # fmt: skip
        self._container, self._manifest, self._threads = container, manifest, threads
        self._cache = open_cache(cache)
        self.notes: list[str] = []
        self._shared = SharedWeights()
        self.by_size: dict[Size, CalledPlan] = {}
        self._constants: dict[Size, Mapping[str, np.ndarray]] = {}
        self.loading()
        workshop = Workshop(None, self._cache / "onednn", self._shipped())
        for plan in manifest.plans:
            size = plan.batch, plan.length
            self._constants[size] = self._tensors(plan)
            made = self._built(plan, self.reading(size, weights), workshop)
            if len(manifest.plans) > 1:
                made.share(self._shared)
            self.by_size[size] = made

    def reading(self, size: Size, weights: Mapping[str, np.ndarray]) -> Read:
        """Reader of the weights and constants of a size's plan."""
        constants = self._constants[size]

        def read(kind: str, target: str) -> np.ndarray:
            return (constants if kind == "constant" else weights)[target]

        return read

    @property
    def bytes_of_weights(self) -> int:
        """Bytes of weights of all sizes together."""
        plans = list(self.by_size.values())
        return plans[0].plan.sizes["constant"] if len(plans) == 1 else self._shared.bytes

    def loading(self) -> None:
        """Let this thread load with that many threads."""
        set_threads(self._threads)

    def room(self) -> _Room:
        """A new memory for iterations."""
        return _Room(self.by_size, self._threads)

    def close(self) -> None:
        """Release all memory."""
        self.by_size = {}
        self._shared.close()

    def _built(self, plan: Plan, read: Read, shipped: Workshop) -> CalledPlan:
        graph, layouts = self._decoded(plan)
        try:
            try:
                return CalledPlan(graph, read, shipped, layouts=layouts)
            except MissingKernel:
                return CalledPlan(graph, read, self._compiling(), layouts=layouts)
        except Unsupported as error:
            raise GolowError(f"onednn cannot run it here: {error}") from error

    def _compiling(self) -> Workshop | None:
        compiler = find_compiler()
        if compiler is None:
            self._note(NO_KERNELS)
            return None
        self._note("kernels were compiled again for this processor, and are kept in the cache")
        return Workshop(compiler, self._cache / "onednn")

    def _note(self, note: str) -> None:
        if note not in self.notes:
            self.notes.append(note)

    def _shipped(self) -> dict[str, Path]:
        """The compiled kernels in files, where this processor has all that they may use."""
        if not set(self._manifest.instruction_sets) <= set(instruction_sets()):
            return {}
        return {
            name.removeprefix("kernels/").removesuffix(".so"): self._file(name)
            for name in self._container.names
            if name == library_entry(name.removeprefix("kernels/").removesuffix(".so"))
        }

    def _file(self, name: str) -> Path:
        """The entry as a file of the cache, by its digest: the system loads programs from files
        alone."""
        data = self._container.read(name)
        file = self._cache / "artifacts" / f"{self._container.names[name]}.so"
        if not file.is_file() or file.read_bytes() != data:
            file.parent.mkdir(parents=True, exist_ok=True)
            write_whole(file, data)
        return file

    def _decoded(self, plan: Plan) -> tuple[Graph, Layouts]:
        try:
            graph = decode_graph(self._container.read(f"{plan.folder}/{GRAPH}"))
            data = self._container.read(f"{plan.folder}/{LAYOUTS}")
            return graph, msgspec.json.decode(data, type=Layouts)
        except msgspec.MsgspecError as error:
            raise GolowError(f"the plan of {plan.folder} cannot be read: {error}") from error

    def _tensors(self, plan: Plan) -> Mapping[str, np.ndarray]:
        name = f"{plan.folder}/{CONSTANTS}"
        return tensors_of(self._container.mapped(name), name)


class _Room:
    """One memory for iterations of all sizes."""

    def __init__(self, plans: Mapping[Size, CalledPlan], threads: int) -> None:
        arena = Region(max(plan.plan.sizes["arena"] for plan in plans.values()))
        self._running = {size: plan.running(arena, threads).run for size, plan in plans.items()}
        self._arrays = HostArrays()

    def arrays(self, given: Sequence[Any]) -> HostArrays:
        """Array operations for these inputs of a call."""
        return self._arrays

    def run(
        self, size: Size, inputs: Sequence[Any], outputs: Sequence[Any], arrays: Arrays
    ) -> None:
        """Run an iteration of that size."""
        self._running[size](
            [arrays.address(item) for item in inputs], [arrays.address(item) for item in outputs]
        )
