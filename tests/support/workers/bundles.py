"""Bundles of the tests' networks, made as `golow.compare` makes them."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import nn

from golow.lower.ir.clean_up import CLEAN_UP
from golow.lower.ir.pass_runner import apply
from golow.records.workload import Device, Mode, Optimizer
from golow.workload.bundle import Bundle, write_bundle
from golow.workload.graph_capture import capture
from golow.workload.prepare import prepare
from golow.workload.request import Request
from support.places import SUPPORT

NETWORKS = SUPPORT / "models" / "networks.py"


SGD = Optimizer(learning_rate=0.1, momentum=0.9, weight_decay=0.01)


def network_bundle(
    folder: Path,
    mode: Mode,
    *,
    threads: int = 1,
    batch: int = 8,
    network: str = "Network",
    optimizer: Optimizer = SGD,
    device: Device = "cpu",
) -> Bundle:
    """`networks.Network`, or another of its kind, with its graph; the step is large enough to show
    what goes wrong."""
    prepared = prepare(
        Request(
            f"{NETWORKS}:{network}",
            mode=mode,
            batch=batch,
            input_shape=(3, 16, 16),
            optimizer=optimizer,
            threads=threads,
            device=device,
            precision="ieee",
        )
    )
    bundle, prepared = write_bundle(prepared, folder)
    captured = capture(prepared)
    bundle.write_graph(apply(captured.graph, CLEAN_UP), captured.constants)
    return bundle


def linear_bundle(folder: Path) -> Bundle:
    """`networks.Linear` for inference, which the tiny worker in C can run."""
    prepared = prepare(Request(f"{NETWORKS}:Linear", batch=4, input_shape=(16,)))
    return write_bundle(prepared, folder)[0]


def product_bundle(folder: Path) -> Bundle:
    """``y = x W^T``, which `golow.worker.plant` serves."""
    torch.manual_seed(0)
    prepared = prepare(Request(nn.Linear(64, 64, bias=False), torch.randn(8, 64)))
    return write_bundle(prepared, folder)[0]
