"""The network quantised by NNCF for OpenVINO, with NNCF's defaults, as OpenVINO's users do."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from golow.levels.peers import openvino as level
from golow.programs.quantization.fixed_batches import joined, of_rows
from golow.programs.quantization.quiet_libraries import quiet
from golow.programs.quantization.samples import Samples
from golow.records.errors import Unsupported
from golow.workload.prepare import Prepared
from golow.workload.printed import printed_to_stderr

NAME = "openvino (NNCF, 8 bits)"


class NncfModel:
    """The outputs of the quantised model, in batches of the size that it was exported for."""

    def __init__(self, prepared: Prepared, samples: Samples, folder: Path) -> None:
        """Raises `Unsupported` if a package is missing, or OpenVINO refuses the model."""
        found = level.probe()
        if not found.available:
            raise Unsupported("openvino", f"{found.missing} ({found.fix})")
        if find_spec("nncf") is None:
            raise Unsupported("openvino", "nncf is not installed (pip install 'golow[nncf]')")
        self._rows = prepared.workload.batch
        with quiet():
            self._compiled = self._quantized(prepared, samples, folder)

    def __call__(self, inputs: tuple[Tensor, ...]) -> Sequence[Tensor]:
        """The outputs for a batch of any size."""
        return joined(self._run, inputs, self._rows)

    def _run(self, batch: tuple[Tensor, ...]) -> list[Tensor]:
        found = self._compiled([tensor.numpy() for tensor in batch])
        return [torch.from_numpy(found[port].copy()) for port in self._compiled.outputs]

    @printed_to_stderr()
    def _quantized(self, prepared: Prepared, samples: Samples, folder: Path) -> Any:
        openvino = level.import_openvino()
        import nncf  # without the telemetry that the import before leaves out

        level.export(prepared.module, prepared.batches[0].inputs, prepared.workload, folder)
        model = openvino.Core().read_model(folder / level.MODEL)
        fed = [
            [tensor.numpy() for tensor in part]
            for batch in samples.calibration
            for part in of_rows(batch.inputs, self._rows)
        ]
        quantized = nncf.quantize(model, nncf.Dataset(fed), subset_size=len(fed))
        settings = level.SETTINGS | {"INFERENCE_NUM_THREADS": str(prepared.workload.threads)}
        return openvino.Core().compile_model(quantized, "CPU", settings)
