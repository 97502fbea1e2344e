"""A user's program for torchrun on GPUs: ``torchrun ... torchrun_gpu_step.py FOLDER``.

Each rank trains golow's compiled step, and the same network in PyTorch under
DistributedDataParallel, on batches of its own, and writes the weights of both to FOLDER.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import golow
from golow.records.workload import Optimizer
from support.direct.training_steps import LOSS, batches, network


def main() -> None:
    rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
    device = torch.device("cuda", rank)
    data = [(x.to(device), y.to(device)) for x, y in batches(12)[rank::2]]
    module = network(seed=rank).to(device)
    step = golow.compile_step(
        module, LOSS, optimizer=Optimizer(learning_rate=0.05, momentum=0.9), example=data[0],
        precision="ieee", quiet=True,
    )  # fmt: skip
    plain = DistributedDataParallel(network(seed=rank).to(device), device_ids=[rank])
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.05, momentum=0.9)
    for x, y in data:
        step(x, y)
        LOSS(plain(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
    state, names = step.state_dict(), [name for name, _ in module.named_parameters()]
    found = {name: state[name].cpu() for name in names}
    wanted = {name: p.detach().cpu() for name, p in plain.module.named_parameters()}
    torch.save({"parameters": found, "wanted": wanted}, Path(sys.argv[1]) / f"{rank}.pt")
    step.close()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
