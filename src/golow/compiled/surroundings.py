"""PyTorch's settings while a level is built or called: its worker's; then the caller's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from golow.records.workload import Workload


@contextmanager
def as_in_a_worker(workload: Workload) -> Iterator[None]:
    """Within the block PyTorch has the workload's threads, and TF32 as its precision states."""
    with _threads(workload.threads):
        if workload.precision in ("ieee", "tf32"):
            with _tf32(workload.precision == "tf32"):
                yield
        else:
            yield


@contextmanager
def _threads(wanted: int) -> Iterator[None]:
    before = torch.get_num_threads()
    if before == wanted:
        yield
        return
    torch.set_num_threads(wanted)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def _tf32(wanted: bool) -> Iterator[None]:
    products, convolutions = torch.backends.cuda.matmul, torch.backends.cudnn
    before = products.allow_tf32, convolutions.allow_tf32
    products.allow_tf32 = convolutions.allow_tf32 = wanted
    try:
        yield
    finally:
        products.allow_tf32, convolutions.allow_tf32 = before
