"""Layers that show how a GPU rounds the operands of sums, and how each precision means it."""

from __future__ import annotations

from pathlib import Path

from safetensors.torch import load_file
from torch import Tensor, nn

from golow.levels import ladder
from golow.worker.client import Worker
from golow.workload.bundle import Bundle


class Product(nn.Module):
    """A product whose sums are long enough to show how its operands were rounded."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(512, 512, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)


class Convolution(nn.Module):
    """The same by a convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(64, 64, 3, padding=1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)


# Least and largest error, relative to the result, of the arithmetic meant.
IEEE, IN_TF32, IN_BF16, IN_FP16 = (0, 1e-5), (1e-4, 2e-3), (1e-3, 2e-2), (1e-4, 2e-3)


MEANT = [
    ("default", IEEE, IN_TF32),
    ("ieee", IEEE, IEEE),
    ("tf32", IN_TF32, IN_TF32),
    ("bf16", IN_BF16, IN_BF16),
    ("fp16", IN_FP16, IN_FP16),
]


def outputs(name: str, bundle: Bundle, file: Path) -> Tensor:
    chosen = ladder.choose(name, "infer", "cuda")
    launch = chosen.prepare(bundle, bundle.folder)
    with Worker(name, launch.command, threads=1, environment=launch.environment) as worker:
        worker.load(bundle.folder)
        worker.outputs([0], 0.1, file)
    return load_file(file)["0/output/0"]
