"""The worker's part of TensorRT: builds an engine, or reads it from the cache, and runs it on
golow's stream.

https://docs.nvidia.com/deeplearning/tensorrt/latest/inference-library/python-api-docs.html
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy.typing as npt
import tensorrt

from golow.levels.peers.array_program import find_export
from golow.levels.peers.device_program import Device, DeviceArrayProgram, Tensor
from golow.levels.peers.exported_program import ENGINES, read_report
from golow.levels.peers.onnxruntime_session import MODEL
from golow.records.errors import GolowError, Unsupported
from golow.records.workload import Workload
from golow.storage.cache import read_sealed, write_sealed
from golow.worker.protocol import LoadReport


class TensorRt(DeviceArrayProgram):
    """The exported model as an engine for this GPU."""

    def load(self, bundle: Path) -> LoadReport:
        """Load as every program does; the export and the engine's building are the build."""
        self._built_in = 0.0
        report = super().load(bundle)
        if not self._built_in:
            return report
        exported = read_report(find_export(self.workload))
        build = self._built_in + (exported.seconds if exported else 0.0)
        load = report.phases["load"] - self._built_in
        return msgspec.structs.replace(report, phases={"build": build, "load": load})

    def open_on(self, device: Device, folder: Path, workload: Workload) -> None:
        """Read the engine of this GPU from the cache, or build it."""
        self._logger = tensorrt.Logger(tensorrt.Logger.WARNING)
        name = hashlib.sha256(f"{getattr(device, 'name', '')}".encode()).hexdigest()[:16]
        file = Path(os.environ[ENGINES]) / f"{name}.engine"
        data = read_sealed(file, self.notes)
        if data is None:
            start = time.perf_counter()
            data = built_engine(self._logger, folder / MODEL, tf32=workload.precision != "ieee")
            self._built_in = time.perf_counter() - start
            write_sealed(file, data)
        self._runtime = tensorrt.Runtime(self._logger)
        self._engine = self._runtime.deserialize_cuda_engine(data)
        if self._engine is None:
            raise GolowError("TensorRT cannot read its engine; the reason is in the worker's log")
        self._context = self._engine.create_execution_context()
        self._stream = device.stream
        self._addresses: dict[int, list[tuple[str, int]]] = {}
        self._connected = -1

    def describe_outputs(self) -> Sequence[tuple[tuple[int, ...], npt.DTypeLike]]:
        """As the engine states; its shapes are fixed."""
        engine = self._engine
        return [
            (tuple(engine.get_tensor_shape(name)), tensorrt.nptype(engine.get_tensor_dtype(name)))
            for name in self._names(tensorrt.TensorIOMode.OUTPUT)
        ]

    def connect(self, index: int, inputs: list[Tensor], outputs: list[Tensor]) -> None:
        """Keep the addresses of a batch. Raises `Unsupported` for an engine with fewer inputs."""
        names = self._names(tensorrt.TensorIOMode.INPUT)
        if len(names) != len(inputs):
            reason = f"its parser keeps {len(names)} of {len(inputs)} inputs"
            raise Unsupported("tensorrt", reason)
        places = [tensor.region.address for tensor in (*inputs, *outputs)]
        every = (*names, *self._names(tensorrt.TensorIOMode.OUTPUT))
        self._addresses[index] = list(zip(every, places, strict=True))

    def run(self, index: int) -> None:
        """Enqueue a forward pass."""
        if index != self._connected:
            for name, address in self._addresses[index]:
                self._context.set_tensor_address(name, address)
            self._connected = index
        if not self._context.execute_async_v3(self._stream):
            raise GolowError("TensorRT did not run; the reason is in the worker's log")

    def _names(self, mode: Any) -> list[str]:
        engine = self._engine
        every = (engine.get_tensor_name(i) for i in range(engine.num_io_tensors))
        return [name for name in every if engine.get_tensor_mode(name) == mode]


def built_engine(logger: Any, model: Path, tf32: bool) -> bytes:
    """The serialized engine of an ONNX model. Its types are those of the model, which TensorRT 11
    always keeps and TensorRT 10 with this flag. tf32: whether products and convolutions may use it,
    as by default. Raises `Unsupported` for an operation that its parser does not know."""
    builder = tensorrt.Builder(logger)
    flag = tensorrt.NetworkDefinitionCreationFlag.STRONGLY_TYPED
    network = builder.create_network(1 << int(flag))
    parser = tensorrt.OnnxParser(network, logger)
    if not parser.parse_from_file(str(model)):
        first = parser.get_error(0).desc() if parser.num_errors else "it gives no reason"
        raise Unsupported("tensorrt", f"its parser refuses it: {first.strip().splitlines()[0]}")
    config = builder.create_builder_config()
    if not tf32:
        config.clear_flag(tensorrt.BuilderFlag.TF32)
    engine = builder.build_serialized_network(network, config)
    if engine is None:
        raise GolowError("TensorRT cannot build an engine; the reason is in the worker's log")
    return bytes(engine)
