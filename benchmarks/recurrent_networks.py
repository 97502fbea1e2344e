"""A recurrent network at `cudnn` as cuDNN's call, with each of its algorithms, and as a loop over
time, beside PyTorch under a CUDA graph: milliseconds of an iteration, of many that are enqueued
without waiting, the least of some turns.

    PYTHONPATH=tests python benchmarks/recurrent_networks.py [infer|train] [tf32|bf16|fp16|ieee]
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple, cast, get_args

import torch
from torch import Tensor, nn

from golow.levels.direct.cudnn.bindings.rnn_api import ALGORITHMS
from golow.levels.direct.cudnn.engines import recurrent_engines
from golow.lower.recognise.recurrences import name_recurrences, unfold_recurrences
from golow.records.errors import GolowError
from golow.records.workload import Mode, Precision
from support.direct.cudnn_in_process import OnGpu, Running, lowered
from support.direct.in_process import Network
from support.models.drawn_recurrences import KINDS

TURNS, ITERATIONS = 5, 20


class Shape(NamedTuple):
    """A network's sizes."""

    kind: str
    layers: int
    sides: int
    steps: int
    rows: int
    width: int


SHAPES = (
    Shape("lstm", 2, 1, 35, 8, 650),  # the zoo's lstm
    Shape("lstm", 1, 1, 32, 8, 1024),  # layers of gnmt
    Shape("lstm", 1, 2, 32, 8, 1024),
    Shape("lstm", 1, 1, 35, 8, 128),
    Shape("lstm", 1, 1, 4, 8, 128),
    Shape("lstm", 1, 1, 2, 8, 1024),
    Shape("gru", 2, 2, 50, 64, 256),
    Shape("rnn", 1, 1, 35, 8, 256),
)


class Sequence(nn.Module):
    """A recurrent network on an input that has a gradient."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(shape.width))
        sizes = (shape.width, shape.width, shape.layers)
        self.rnn = KINDS[shape.kind](*sizes, batch_first=True, bidirectional=shape.sides == 2)

    def forward(self, x: Tensor) -> Tensor:
        """[rows, steps, width] -> [rows, steps, sides * width]"""
        y: Tensor = self.rnn(x * self.scale)[0]
        return y


def least(run: Callable[[], object]) -> float:
    """Milliseconds of an iteration."""
    found = []
    for _ in range(TURNS):
        run()
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(ITERATIONS):
            run()
        torch.cuda.synchronize()
        found.append(1e3 * (time.perf_counter() - start) / ITERATIONS)
    return min(found)


def of_level(network: Network, on: OnGpu, precision: Precision) -> float:
    """Milliseconds of the plan."""
    running = Running(network, on, precision)
    return least(lambda: running.execution.run(0))


def of_pytorch(shape: Shape, mode: Mode, precision: Precision) -> float:
    """Milliseconds of PyTorch's step under a CUDA graph; in training without an optimizer."""
    tf32 = precision in ("tf32", "default")
    torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = tf32
    half = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(precision)
    module = Sequence(shape).cuda()
    x = torch.randn(shape.rows, shape.steps, shape.width, device="cuda")

    def step() -> None:
        with torch.autocast("cuda", half or torch.bfloat16, enabled=half is not None):
            y = module(x)
        if mode == "train":
            for parameter in module.parameters():
                parameter.grad = None
            y.float().square().mean().backward()

    with torch.set_grad_enabled(mode == "train"):
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            for _ in range(3):
                step()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
    return least(graph.replay)


def line(shape: Shape, mode: Mode, precision: Precision, folder: Path) -> str:
    """A row of the table."""
    x = torch.randn(shape.rows, shape.steps, shape.width)
    module = Sequence(shape)
    whole = lowered(module, x, mode, loss="mse_loss", precision=precision)
    cells = [f"{of_pytorch(shape, mode, precision):.3f}"]
    cells.append(f"{of_level(as_loop(module, x, mode, precision), OnGpu(folder), precision):.3f}")
    every = dict(ALGORITHMS)
    for algorithm, number in every.items():
        recurrent_engines.ALGORITHMS = {algorithm: number}
        try:
            on = OnGpu(Path(tempfile.mkdtemp(dir=folder)))
            cells.append(f"{of_level(whole, on, precision):.3f}")
        except GolowError:  # it does not have these sizes
            cells.append("-")
    recurrent_engines.ALGORITHMS = every
    return " | ".join(["", *map(str, shape), mode, precision, *cells, ""]).strip()


def as_loop(module: nn.Module, x: Tensor, mode: Mode, precision: Precision) -> Network:
    """The network with its recurrences unfolded before anything else."""
    from support.direct import cudnn_in_process

    taken = cudnn_in_process.passes
    cudnn_in_process.passes = lambda workload: (  # type: ignore[assignment]
        name_recurrences, unfold_recurrences, *taken(workload),
    )  # fmt: skip
    try:
        return lowered(module, x, mode, loss="mse_loss", precision=precision)
    finally:
        cudnn_in_process.passes = taken


def main(given: list[str]) -> None:
    """Print the table."""
    modes = [m for m in get_args(Mode) if m in given] or list(get_args(Mode))
    precisions = [p for p in get_args(Precision) if p in given] or ["tf32", "bf16"]
    print(torch.cuda.get_device_name(), torch.__version__, torch.backends.cudnn.version())
    heads = [*Shape._fields, "mode", "precision", "pytorch", "loop", *ALGORITHMS]
    print("| " + " | ".join(heads) + " |")
    print("|---" * len(heads) + "|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        for mode, precision, shape in product(modes, precisions, SHAPES):
            row: Any = line(shape, cast("Mode", mode), cast("Precision", precision), Path(folder))
            print(row, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
