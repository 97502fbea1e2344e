"""A recurrent layer at `onednn` as one primitive and as a loop over time, beside PyTorch's, on
drawn shapes: the table of docs/understand/onednn.md. One thread; the least of some turns, in
milliseconds of the process's own time, so that other processes on the cores disturb it less.

    OMP_NUM_THREADS=1 PYTHONPATH=tests python benchmarks/recurrent_layers.py infer 12
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from golow.lower.recognise.recurrences import name_recurrences, unfold_recurrences
from golow.records.workload import Mode
from support.direct.onednn_in_process import Running, lower

TURNS = 7
KINDS = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn": nn.RNN}


class Layer(nn.Module):
    """A recurrent layer on an input that has a gradient."""

    def __init__(self, kind: str, inputs: int, hidden: int) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(inputs))
        self.rnn = KINDS[kind](inputs, hidden)

    def forward(self, x: Tensor) -> Tensor:
        """[steps, rows, inputs] -> [steps, rows, hidden]"""
        y: Tensor = self.rnn(x * self.scale)[0]
        return y


def eager(module: nn.Module, x: Tensor, mode: Mode) -> Callable[[], object]:
    """PyTorch's iteration."""
    if mode == "infer":
        return torch.no_grad()(lambda: module(x))
    optimizer = torch.optim.SGD(module.parameters(), 0.05, momentum=0.9, weight_decay=0.01)
    target = torch.zeros_like(module(x))

    def step() -> None:
        optimizer.zero_grad()
        nn.functional.mse_loss(module(x), target).backward()
        optimizer.step()

    return step


def least(runs: Sequence[Callable[[], object]]) -> list[float]:
    """Milliseconds of each, all in turn."""
    found = [float("inf")] * len(runs)
    for _ in range(TURNS):
        for index, run in enumerate(runs):
            start = time.process_time()
            run()
            found[index] = min(found[index], 1e3 * (time.process_time() - start))
    return found


def compare(kind: str, shape: tuple[int, int, int, int], mode: Mode) -> list[float]:
    """Milliseconds of the primitive, the loop and eager. shape: steps, rows, inputs, hidden."""
    steps, rows, inputs, hidden = shape
    module, x = Layer(kind, inputs, hidden), torch.randn(steps, rows, inputs)
    runs: list[Callable[[], object]] = []
    for recurrences in (name_recurrences, unfold_recurrences):
        running = Running(lower(module, x, mode, loss="mse_loss", recurrences=recurrences))
        running.point_at(0)
        runs.append(running.execution.run)
    return least([*runs, eager(module, x, mode)])


def drawn(draw: random.Random) -> tuple[int, int, int, int]:
    """Steps, rows, inputs and hidden."""
    steps, rows = draw.choice((4, 10, 20, 35)), draw.choice((1, 2, 8, 32, 64))
    return steps, rows, draw.choice((32, 128, 512)), draw.choice((32, 100, 256, 650, 1024))


def main(mode: Mode, count: int) -> None:
    """Print a row for each drawn layer."""
    torch.set_num_threads(1)
    print("| layer | steps | rows | inputs | hidden | primitive | loop | eager |")
    print("|---|---|---|---|---|---|---|---|")
    draw = random.Random(0)  # noqa: S311
    for _ in range(count):
        shape = drawn(draw)
        for kind in KINDS:
            times = compare(kind, shape, mode)
            numbers = [*map(str, shape), *(f"{t:.3g}" for t in times)]
            print("|", " | ".join([kind, *numbers]), "|", flush=True)


if __name__ == "__main__":
    main("train" if sys.argv[1] == "train" else "infer", int(sys.argv[2]))
