"""Verify that the ranks of a training run drop different elements.

With random layers the loss of a step cannot be predicted, but where ranks drop the same elements,
equal samples have equal losses. So every rank gets rank 0's samples, and runs some steps.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from safetensors import safe_open

from golow.worker.client import Worker
from golow.worker.protocol import Challenge
from golow.worker.ranks import own_name
from golow.workload.bundle import Bundle

STEPS = 3
"""Number of losses that must all be equal: with few elements, masks may agree by chance."""
LOSS = "loss/loss"


def judge_masks(worker: Worker, bundle: Bundle, learning_rate: float, folder: Path) -> str:
    """Return why the random layers of two ranks drop the same elements; empty if they do not, or
    without random layers or ranks. The worker has its own samples again afterwards. Raises
    WorkerFailure."""
    if bundle.workload.ranks == 1 or not bundle.workload.random_layers:
        return ""
    alike = folder / "alike"
    _write_alike(bundle, alike)
    try:
        worker.load(alike)
        suspects = set(range(1, bundle.workload.ranks))
        for step in range(STEPS):
            challenge = Challenge(first=step, reset=step == 0, learning_rate=learning_rate)
            worker.time(1, 0, challenge=challenge)
            suspects &= _alike(worker, bundle.workload.ranks, folder / "alike.safetensors")
    finally:
        shutil.rmtree(alike)
    worker.load(bundle.folder)
    if not suspects:
        return ""
    return (
        f"rank {min(suspects)} drops the same elements as an earlier rank: with equal samples, "
        f"their losses are equal in {STEPS} steps"
    )


def _write_alike(bundle: Bundle, folder: Path) -> None:
    """Write the bundle in which every rank has the samples of rank 0."""
    shutil.copytree(bundle.folder, folder, copy_function=os.link)
    alike = Bundle(folder)
    for rank in range(1, bundle.workload.ranks):
        file = alike.of_rank(rank).file("batches.safetensors")
        file.unlink()
        os.link(alike.file("batches.safetensors"), file)


def _alike(worker: Worker, ranks: int, file: Path) -> set[int]:
    """The ranks whose last loss equals that of an earlier rank."""
    worker.result(file)
    try:
        with safe_open(file, "numpy") as tensors:
            losses = [float(tensors.get_tensor(own_name(LOSS, rank))) for rank in range(ranks)]
    finally:
        file.unlink()
    return {rank for rank in range(1, ranks) if losses[rank] in losses[:rank]}
