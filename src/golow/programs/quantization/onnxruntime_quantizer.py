"""The network quantised by ONNX Runtime, as its users do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from golow.levels.peers.onnx_export import write_onnx
from golow.levels.peers.onnxruntime import probe
from golow.levels.peers.onnxruntime_session import import_onnxruntime, session_options
from golow.programs.quantization.fixed_batches import joined, of_rows
from golow.programs.quantization.quiet_libraries import quiet
from golow.programs.quantization.samples import Samples
from golow.records.errors import Unsupported
from golow.workload.prepare import Prepared
from golow.workload.printed import printed_to_stderr

NAME = "onnxruntime (quantize_static, QDQ, int8, per channel)"


class QuantizedSession:
    """The outputs of the quantised model, in batches of the size that it was exported for."""

    def __init__(self, prepared: Prepared, samples: Samples, folder: Path) -> None:
        """Raises `Unsupported` if the package is missing, or refuses the model."""
        found = probe()
        if not found.available:
            raise Unsupported("onnxruntime", f"{found.missing} ({found.fix})")
        self._rows = prepared.workload.batch
        model, quantized = folder / "model.onnx", folder / "quantized.onnx"
        onnxruntime = import_onnxruntime()
        with quiet():
            write_onnx("onnxruntime", prepared.module, prepared.batches[0].inputs, model)
            _quantize(model, quantized, self._fed(samples, onnxruntime, model))
        options = session_options(onnxruntime, prepared.workload, {})
        self._session = onnxruntime.InferenceSession(quantized, options)
        self._names = [item.name for item in self._session.get_inputs()]

    def __call__(self, inputs: tuple[Tensor, ...]) -> Sequence[Tensor]:
        """The outputs for a batch of any size."""
        return joined(self._run, inputs, self._rows)

    def _run(self, batch: tuple[Tensor, ...]) -> list[Tensor]:
        found: list[np.ndarray] = self._session.run(None, _feed(batch, self._names))
        return [torch.from_numpy(array) for array in found]

    def _fed(
        self, samples: Samples, onnxruntime: Any, model: Path
    ) -> Iterator[dict[str, np.ndarray]]:
        names = [item.name for item in onnxruntime.InferenceSession(model).get_inputs()]
        for batch in samples.calibration:
            for part in of_rows(batch.inputs, self._rows):
                yield _feed(part, names)


def _feed(batch: tuple[Tensor, ...], names: Sequence[str]) -> dict[str, np.ndarray]:
    return {name: tensor.numpy() for name, tensor in zip(names, batch, strict=True)}


@printed_to_stderr()
def _quantize(model: Path, quantized: Path, fed: Iterator[dict[str, np.ndarray]]) -> None:
    import onnx
    from onnxruntime import quantization
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Reader(quantization.CalibrationDataReader):  # type: ignore[misc]
        """Feeds the samples, one batch after the other."""

        def get_next(self) -> dict[str, np.ndarray] | None:
            return next(fed, None)

    whole, prepared = model.with_name("whole.onnx"), model.with_name("prepared.onnx")
    onnx.save(onnx.load(model), whole)  # the exporter keeps weights in a file beside the model
    quant_pre_process(str(whole), str(prepared), skip_symbolic_shape=True)
    quantization.quantize_static(
        str(prepared),
        str(quantized),
        Reader(),
        quant_format=quantization.QuantFormat.QDQ,
        per_channel=True,
        activation_type=quantization.QuantType.QInt8,
        weight_type=quantization.QuantType.QInt8,
    )
