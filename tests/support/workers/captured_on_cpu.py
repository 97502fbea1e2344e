"""The level `cudagraph`, as far as a CPU has it."""

from __future__ import annotations

from pathlib import Path

from golow.levels.torch.graph import CapturedProgram
from golow.levels.torch.program import TorchProgram
from golow.worker.protocol import LoadReport


class CapturedOnCpu(CapturedProgram):
    """`cudagraph` as far as a CPU has it: its optimizer and its state, without the graphs."""

    def load(self, bundle: Path) -> LoadReport:
        return TorchProgram.load(self, bundle)
