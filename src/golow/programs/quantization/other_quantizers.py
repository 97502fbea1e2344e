"""Other tools' quantisers, run as their users do. Each produces a different network, which gets the
statements about the original, and no verdict against golow's."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from golow.programs.quantization import nncf_quantizer, onnxruntime_quantizer, torchao_quantizer
from golow.programs.quantization.outputs import Outputs
from golow.programs.quantization.samples import Samples
from golow.workload.prepare import Prepared


class OtherQuantizer(NamedTuple):
    """A quantiser. make: returns the outputs of the network that it produces, with a folder for
    files; raises `Unsupported` if it cannot."""

    name: str
    make: Callable[[Prepared, Samples, Path], Outputs]


OTHERS = (
    OtherQuantizer(onnxruntime_quantizer.NAME, onnxruntime_quantizer.QuantizedSession),
    OtherQuantizer(nncf_quantizer.NAME, nncf_quantizer.NncfModel),
    OtherQuantizer(torchao_quantizer.NAME, torchao_quantizer.TorchaoModule),
)
