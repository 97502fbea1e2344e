"""A user's program for torchrun: ``torchrun ... torchrun_step.py FOLDER LEVEL BASE CASE...``.

For each case each rank compiles a step of a network with weights of its own, trains it on batches
of its own, the last of which is smaller, and writes losses and weights to FOLDER. LEVEL:
``onednn``, or ``cudnn`` with the device, and NCCL, on the host. BASE: the temporary folder of the
tests' process. CASE: ``torchrun``, without a process group; ``group``, with one from there on;
``alone`` (ranks=1).
"""

from __future__ import annotations

import os
import sys
from contextlib import nullcontext
from pathlib import Path

import torch
import torch.distributed as dist

from golow.records.workload import Optimizer
from support import one_run
from support.direct.ranks_on_host import RanksGpu
from support.direct.steps_on_host import steps_on_host
from support.direct.training_steps import LOSS, batches, network, perceptron, stepped

FOLDER, LEVEL, BASE, CASES = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]), sys.argv[4:]


def main() -> None:
    rank = int(os.environ["RANK"])
    torch.set_num_threads(1)
    one_run.begin(BASE)
    with steps_on_host(RanksGpu) if LEVEL == "cudnn" else nullcontext():
        for case in CASES:
            if case == "group":
                dist.init_process_group("gloo")
            torch.save(trained(rank, case), FOLDER / f"{case}-{rank}.pt")


def trained(rank: int, case: str) -> dict[str, object]:
    """Losses and weights of this rank's training."""
    module = perceptron(seed=rank) if LEVEL == "cudnn" else network(seed=rank)
    shape = (6,) if LEVEL == "cudnn" else (3, 12, 12)
    options = {"ranks": 1} if case == "alone" else {}
    every = 1 if case == "torchrun" else 2
    optimizer = Optimizer(learning_rate=0.05, momentum=0.9)
    example = batches(1, shape)[0]
    step = stepped(module, optimizer, example, LOSS, every=every, **options)
    losses = [float(step(x, y)) for x, y in batches(8, shape, last=3)[rank::2]]
    state = step.state_dict()
    step.close()
    return {"losses": losses, "state": state}


if __name__ == "__main__":
    main()
