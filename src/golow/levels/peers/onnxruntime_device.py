"""ONNX Runtime on a GPU: its CUDA provider on golow's stream, bound to the device's memory."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from golow.levels.peers.device_program import Device, DeviceArrayProgram, Tensor
from golow.levels.peers.onnxruntime_session import (
    MODEL,
    import_onnxruntime,
    open_session,
    session_options,
)
from golow.records.errors import GolowError
from golow.records.workload import Workload

onnxruntime = import_onnxruntime()

# The run returns when everything is enqueued; the caller waits for the stream.
# https://onnxruntime.ai/docs/performance/device-tensor.html
WITHOUT_WAITING = ("disable_synchronize_execution_providers", "1")

# ONNX Runtime's names of types.
TYPES: dict[str, npt.DTypeLike] = {
    "tensor(float)": np.float32,
    "tensor(double)": np.float64,
    "tensor(float16)": np.float16,
    "tensor(int64)": np.int64,
    "tensor(int32)": np.int32,
    "tensor(int8)": np.int8,
    "tensor(uint8)": np.uint8,
    "tensor(bool)": np.bool_,
}


class OnnxRuntimeOnDevice(DeviceArrayProgram):
    """The exported model by one provider, in the memory of the kind of device that it runs on."""

    provider = "CUDAExecutionProvider"
    memory = "cuda"

    def provider_options(self, device: Device, workload: Workload) -> dict[str, str]:
        """The provider's own settings. It has one switch for the TF32 of convolutions and of
        products, on by default as in the runtime.

        https://onnxruntime.ai/docs/execution-providers/CUDA-ExecutionProvider.html
        """
        return {
            "device_id": "0",
            "user_compute_stream": str(device.stream),
            "use_tf32": "0" if workload.precision == "ieee" else "1",
        }

    def open_on(self, device: Device, folder: Path, workload: Workload) -> None:
        """Create the session; raises `GolowError` if the provider does not load, for which the
        runtime itself would take the CPU."""
        if self.memory == "cuda":
            # From NVIDIA's packages, as PyTorch does; the runtime's own search path has none.
            onnxruntime.preload_dlls(directory="")
        self._bindings: dict[int, Any] = {}
        self._run_options = onnxruntime.RunOptions()
        self._run_options.add_run_config_entry(*WITHOUT_WAITING)
        self.session = open_session(
            onnxruntime,
            folder / MODEL,
            session_options(onnxruntime, workload, self.settings),
            [(self.provider, self.provider_options(device, workload))],
        )
        if self.session.get_providers()[0] != self.provider:
            raise GolowError(
                f"ONNX Runtime cannot load its {self.provider}; the reason is in the worker's log",
                "install its CUDA and cuDNN: pip install 'onnxruntime-gpu[cuda,cudnn]'",
            )

    def describe_outputs(self) -> Sequence[tuple[tuple[int, ...], npt.DTypeLike]]:
        """As the model states; its shapes are fixed."""
        return [(tuple(node.shape), TYPES[node.type]) for node in self.session.get_outputs()]

    def connect(self, index: int, inputs: list[Tensor], outputs: list[Tensor]) -> None:
        """Bind the addresses once, so that a run passes none."""
        binding = self.session.io_binding()
        for bind, nodes, tensors in (
            (binding.bind_input, self.session.get_inputs(), inputs),
            (binding.bind_output, self.session.get_outputs(), outputs),
        ):
            for node, tensor in zip(nodes, tensors, strict=True):
                address = tensor.region.address
                bind(node.name, self.memory, 0, tensor.dtype, tensor.shape, address)
        self._bindings[index] = binding

    def run(self, index: int) -> None:
        """Enqueue a forward pass."""
        self.session.run_with_iobinding(self._bindings[index], self._run_options)
