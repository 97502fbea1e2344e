"""What do calls of a compiled module take that follow one another on a GPU?

    python benchmarks/calls_in_a_row.py

Microseconds a call: of the plan's CUDA graph alone, of `f(x)` with the same input, with other
inputs each time, and with the caller's own memory for the output; and what parts of a call take the
host. The median of seven runs of 3,000 calls. The last two columns are calls that find the GPU
idle, between two CUDA events: of the graph alone, and of `f(x)` with other inputs each time; the
median of 300.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn

import golow

CALLS, RUNS, FROM_IDLE = 3000, 7, 300


def main() -> int:
    if not torch.cuda.is_available():
        print("torch sees no GPU", file=sys.stderr)
        return 2
    print(
        "| network | graph alone | f(x) | other inputs | out=y | host: checks | outputs "
        "| idle: graph alone | other inputs |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    x = torch.randn(8, 1, 28, 28, device="cuda")
    for name, module in (("mlp", mlp()), ("lenet5", lenet5())):
        print(row(name, module.eval().cuda(), x))
    return 0


def mlp() -> nn.Module:
    """Three linear layers."""
    layers = nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)
    return nn.Sequential(nn.Flatten(), *layers)


def lenet5() -> nn.Module:
    """Two convolutions and three linear layers."""
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.Sigmoid(), nn.AvgPool2d(2), nn.Conv2d(6, 16, 5),
        nn.Sigmoid(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(400, 120), nn.Sigmoid(),
        nn.Linear(120, 84), nn.Sigmoid(), nn.Linear(84, 10),
    )  # fmt: skip


def row(name: str, module: nn.Module, x: Tensor) -> str:
    """A network's figures."""
    compiled: Any = golow.compile(module, x, quiet=True)
    with compiled as f:
        y = f(x).clone()
        others = itertools.cycle([x.clone() for _ in range(4)])
        size, addresses = f.inputs.exact((x,))
        run = f._running[size].__self__
        places = [*addresses, y.data_ptr()]
        stream = torch.cuda.current_stream().cuda_stream
        figures = (
            microseconds(lambda: run._graph.launch(places, stream)),
            microseconds(lambda: f(x)),
            microseconds(lambda: f(next(others))),
            microseconds(lambda: f(x, out=y)),
            microseconds(lambda: f.inputs.exact((x,))),
            microseconds(lambda: f.outputs.new(size)),
            from_idle(lambda: run._graph.launch(places, stream)),
            from_idle(lambda: f(next(others))),
        )
    return f"| {name} | {' | '.join(f'{figure:.1f}' for figure in figures)} |"


def microseconds(call: Callable[[], object]) -> float:
    """Of a call, the GPU's work included."""
    found = []
    for _ in range(RUNS):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(CALLS):
            call()
        torch.cuda.synchronize()
        found.append((time.perf_counter() - start) / CALLS * 1e6)
    return median(found)


def from_idle(call: Callable[[], object]) -> float:
    """Between events around a call that finds the GPU idle, as an iteration of a race does."""
    found = []
    for _ in range(FROM_IDLE):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        begin.record()
        call()
        end.record()
        torch.cuda.synchronize()
        found.append(begin.elapsed_time(end) * 1e3)
    return median(found)


if __name__ == "__main__":
    sys.exit(main())
