"""Builds the plans of an artifact on this machine's GPU."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from golow.artifact.array_inputs import Arrays
from golow.artifact.container import Container
from golow.artifact.device_tensors import DeviceTensors
from golow.artifact.host_arrays import HostArrays, is_tensor
from golow.artifact.manifest import CONSTANTS, ENGINES, GRAPH, KERNELS, Manifest, Plan
from golow.artifact.stored_check import stored_inputs
from golow.artifact.tensor_entry import tensors_of
from golow.levels.called.sizes import Size
from golow.levels.direct.bundle_arrays import Read, in_pairs
from golow.levels.direct.cudnn.level import probe
from golow.lower.ir.graph import decode_graph
from golow.records.errors import GolowError, Unsupported
from golow.storage.cache import open_cache
from golow.storage.files import write_whole

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.bindings.device import Gpu
    from golow.levels.direct.cudnn.run.called_plan import CalledPlan

__all__ = ["Plans", "probe"]

ORDINAL = 0  # of the GPU: the first that the process sees
HALVES = ("bfloat16", "float16")


class Plans:
    """The plans by size, over one memory for weights. notes: what is not as on the machine that
    made them, one sentence each.

    Compiled kernels and chosen engines are in a folder of the cache that only this artifact uses.
    Both have the GPU and the libraries in their names, so that those of others are made again.
    """

    def __init__(
        self, container: Container, manifest: Manifest, weights: Mapping[str, np.ndarray],
        threads: int, cache: Path | None,
    ) -> None:  # fmt: skip
        from golow.levels.direct.cudnn.bindings.device import Gpu
        from golow.levels.direct.cudnn.engines.engines import Engines
        from golow.levels.direct.cudnn.run.shared_weights import SharedWeights

        self._container, self._manifest = container, manifest
        self.notes: list[str] = []
        self.by_size: dict[Size, CalledPlan] = {}
        self._constants: dict[Size, Mapping[str, np.ndarray]] = {}
        with _explained():
            home = self._unpacked(open_cache(cache))
            self._gpu, self._shared = Gpu(home / KERNELS, None, ORDINAL), SharedWeights()
            same = self._gpu.name == manifest.origin.processor
            engines = Engines(self._gpu, home / ENGINES, manifest.tuned and same)
            for plan in manifest.plans:
                size = plan.batch, plan.length
                name = f"{plan.folder}/{CONSTANTS}"
                self._constants[size] = tensors_of(container.mapped(name), name)
                made = self._built(plan, self.reading(size, weights), engines)
                if len(manifest.plans) > 1:
                    made.share(self._shared)
                self.by_size[size] = made
            if engines.built:
                self.notes.append(
                    f"{engines.built} engines were chosen again: it was built on "
                    f"{manifest.origin.processor} with {manifest.origin.library}"
                )

    def reading(self, size: Size, weights: Mapping[str, np.ndarray]) -> Read:
        """Reader of the weights and constants of a size's plan."""
        constants = self._constants[size]

        def read(kind: str, target: str) -> np.ndarray:
            found = (constants if kind == "constant" else weights)[target]
            return found.astype(np.float32) if found.dtype.name in HALVES else found

        return read

    @property
    def bytes_of_weights(self) -> int:
        """Bytes of weights of all sizes together."""
        plans = list(self.by_size.values())
        return plans[0].plan.sizes["constant"] if len(plans) == 1 else self._shared.bytes

    def loading(self) -> None:
        """Make the GPU the current one of this thread."""
        self._gpu.make_current()

    def room(self) -> _Room:
        """A new memory for iterations."""
        with _explained():
            return _Room(self.by_size, self._gpu)

    def close(self) -> None:
        """Release all memory."""
        self.by_size = {}
        self._shared.close()

    def _unpacked(self, cache: Path) -> Path:
        """The folder of compiled kernels and chosen engines, with those of the file."""
        home = cache / "artifacts" / self._container.digest
        for name in self._container.names:
            folder, _, rest = name.partition("/")
            if folder in (KERNELS, ENGINES) and not (home / name).exists():
                (home / folder).mkdir(parents=True, exist_ok=True)
                write_whole(home / folder / rest, self._container.read(name))
        return home

    def _built(self, plan: Plan, read: Read, engines: Any) -> CalledPlan:
        from golow.levels.direct.cudnn.run.called_plan import CalledPlan

        manifest = self._manifest
        changed = [form.dtype for form in manifest.inputs if form.changed]
        return CalledPlan(
            decode_graph(self._container.read(f"{plan.folder}/{GRAPH}")),
            read,
            engines,
            precision=manifest.precision,
            given={str(k): _real(form.dtype) for k, form in enumerate(manifest.inputs)},
            outputs=[_real(t) for t in (*(form.dtype for form in manifest.outputs), *changed)],
            tune=False,
            example=self._example(plan),
        )

    def _example(self, plan: Plan) -> dict[tuple[str, str], np.ndarray]:
        """The stored example at that size, repeated as often as it takes, as bytes."""
        found = {}
        for place, array in enumerate(stored_inputs(self._container)):
            form = self._manifest.inputs[place]
            if form.batched:
                array = array[np.arange(plan.batch) % len(array)]
            if form.long:
                array = array[:, np.arange(plan.length) % array.shape[1]]
            plain = np.ascontiguousarray(in_pairs(array))
            found["input", str(place)] = plain.reshape(-1).view(np.uint8)
        return found


class _Room:
    """One memory for iterations of all sizes. Tensors on the GPU are used where they are stored, on
    PyTorch's current stream; arrays of the host are copied there and back."""

    def __init__(self, plans: Mapping[Size, CalledPlan], gpu: Gpu) -> None:
        from golow.levels.direct.cudnn.run.called_plan import Arena

        arena = Arena(max(plan.plan.sizes["arena"] for plan in plans.values()), len(plans))
        self._gpu, self._stream = gpu, gpu.stream
        self._running = {
            size: plan.running(arena, lambda: self._stream) for size, plan in plans.items()
        }
        self._copies: dict[tuple[str, int, int], Any] = {}

    def arrays(self, given: Sequence[Any]) -> Arrays:
        """Array operations for these inputs of a call."""
        on_device = any(is_tensor(item) and item.is_cuda for item in given)
        return DeviceTensors(ORDINAL) if on_device else HostArrays()

    def run(
        self, size: Size, inputs: Sequence[Any], outputs: Sequence[Any], arrays: Arrays
    ) -> None:
        """Run an iteration of that size."""
        if isinstance(arrays, DeviceTensors):
            self._stream = sys.modules["torch"].cuda.current_stream(ORDINAL).cuda_stream
            addresses = map(arrays.address, inputs), map(arrays.address, outputs)
            self._running[size](*map(list, addresses))
            return
        self._gpu.make_current()
        self._stream = self._gpu.stream
        taken = [self._copy("input", place, item) for place, item in enumerate(inputs)]
        for address, item in zip(taken, inputs, strict=True):
            self._gpu.upload(address, item.reshape(-1).view(np.uint8))
        made = [self._copy("output", place, item) for place, item in enumerate(outputs)]
        self._running[size](taken, made)
        for address, item in zip(made, outputs, strict=True):
            bytes_of = item.reshape(-1).view(np.uint8)
            bytes_of[...] = self._gpu.download(address, bytes_of.shape, np.uint8)

    def _copy(self, kind: str, place: int, array: np.ndarray) -> int:
        """The address of a copy on the GPU, which later calls use again."""
        key = kind, place, array.nbytes
        if key not in self._copies:
            self._copies[key] = self._gpu.allocate(array.nbytes)
        return int(self._copies[key].address)


def _real(dtype: str) -> str:
    """The type of the parts of a complex number, as graphs take it."""
    return {"complex64": "float32", "complex128": "float64"}.get(dtype, dtype)


@contextmanager
def _explained() -> Iterator[None]:
    from golow.levels.nvidia.memory import GpuError

    try:
        yield
    except MemoryError as error:
        raise GolowError(
            f"there is not enough memory on the GPU: {error}", "free other memory there."
        ) from error
    except Unsupported as error:
        raise GolowError(f"cudnn cannot run it here: {error}") from error
    except GpuError as error:
        raise GolowError(
            f"the GPU or its driver cannot run it: {error}", "golow doctor lists the devices."
        ) from error
