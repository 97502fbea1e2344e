"""A user's program for torchrun: ``torchrun ... torchrun_step.py FOLDER LEVEL GROUP FAULT``.

Each rank compiles a step of a network with weights of its own, trains it on batches of its own, the
last of which is smaller, and writes losses and weights to FOLDER. LEVEL: ``onednn``, or ``cudnn``
with the device, and NCCL, on the host. GROUP: ``group`` if it has a process group. FAULT: ``none``;
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

FOLDER, LEVEL, GROUP, FAULT = Path(sys.argv[1]), *sys.argv[2:]


def main() -> None:
    rank = int(os.environ["RANK"])
    if GROUP == "group":
        dist.init_process_group("gloo")
    torch.set_num_threads(1)
    own = FOLDER / f"own-{rank}"
    own.mkdir()
    one_run.begin(own)
    module = perceptron(seed=rank) if LEVEL == "cudnn" else network(seed=rank)
    shape = (6,) if LEVEL == "cudnn" else (3, 12, 12)
    data = batches(8, shape, last=3)[rank::2]
    options = {"ranks": 1} if FAULT == "alone" else {}
    with steps_on_host(RanksGpu) if LEVEL == "cudnn" else nullcontext():
        every = 2 if GROUP == "group" else 1
        optimizer = Optimizer(learning_rate=0.05, momentum=0.9)
        example = batches(1, shape)[0]
        step = stepped(module, optimizer, example, LOSS, every=every, **options)
        losses = [float(step(x, y)) for x, y in data]
        state = step.state_dict()
        step.close()
    torch.save({"losses": losses, "state": state}, FOLDER / f"{rank}.pt")


if __name__ == "__main__":
    main()
