"""A short epoch on 1x28x28 pictures, its bundles, and the same epoch in PyTorch: what the tests of
the two direct levels share beside `courses`."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from safetensors.numpy import save_file
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional

from golow.lower.ir.clean_up import CLEAN_UP
from golow.lower.ir.pass_runner import apply
from golow.records.workload import Device, Mode, Optimizer, Precision
from golow.worker.feed import Feed, augmented, normalised
from golow.workload.bundle import Bundle, write_bundle, write_last
from golow.workload.graph_capture import capture
from golow.workload.prepare import Prepared, prepare
from golow.workload.request import Request
from golow.workload.source import build_module, random_layers_off

OPTIMIZER = Optimizer(learning_rate=0.1, momentum=0.9, weight_decay=0.01)
BATCH, ROWS = 4, 26  # six whole batches, more than a bundle holds, and one of two rows
RATES = (0.02, 0.01, 0.015, 0.005, 0.008, 0.012, 0.01)


class Grouped(nn.Module):
    """Channels that fill no block of 16, a convolution in groups, batch norm, dropout."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)  # with other weights a relu may fall on the other side of zero
        self.conv, self.bn = nn.Conv2d(1, 20, 3, bias=False), nn.BatchNorm2d(20)
        self.groups = nn.Conv2d(20, 24, 3, groups=2)
        self.drop, self.fc = nn.Dropout(0.5), nn.Linear(24, 10)

    def forward(self, x: Tensor) -> Tensor:
        """[batch, 1, 28, 28] -> [batch, 10]"""
        x = functional.max_pool2d(torch.relu(self.bn(self.conv(x))), 4)
        return self.fc(self.drop(torch.tanh(self.groups(x)).mean((2, 3))))


def short_bundle(
    folder: Path,
    model: str | nn.Module,
    mode: Mode,
    device: Device = "cpu",
    precision: Precision = "default",
) -> Bundle:
    """The bundle of a workload; in training with that of the smaller last batch."""
    torch.manual_seed(0)

    def prepared(batch: int) -> Prepared:
        given = torch.randn(batch, 1, 28, 28) if isinstance(model, nn.Module) else None
        size = batch if given is None else None
        return prepare(
            Request(
                model,
                given,
                mode=mode,
                batch=size,
                optimizer=OPTIMIZER,
                device=device,
                precision=precision,
            )
        )

    whole = prepared(BATCH)
    bundle = _with_graph(write_bundle(whole, folder)[0], whole)
    if mode == "train":
        smaller = prepared(ROWS % BATCH)
        _with_graph(write_last(smaller, bundle), smaller)
    return bundle


def _with_graph(bundle: Bundle, prepared: Prepared) -> Bundle:
    captured = capture(prepared)
    bundle.write_graph(apply(captured.graph, CLEAN_UP), captured.constants)
    return bundle


def short_feed(folder: Path, side: int = 28) -> Feed:
    """Random pictures in an order of their own, moved and turned: a whole epoch of them."""
    random = np.random.default_rng(3)
    data, order = folder / "data.safetensors", folder / "order.safetensors"
    images = random.integers(0, 256, (ROWS, 1, side, side), np.uint8)
    save_file({"images": images, "labels": random.integers(0, 10, ROWS)}, data)
    shifts = random.integers(-4, 5, (ROWS, 2), np.int8)
    flips = random.integers(0, 2, ROWS, np.uint8)
    save_file({"rows": random.permutation(ROWS), "shifts": shifts, "flips": flips}, order)
    return Feed(data, batch=BATCH, batches=len(RATES), scale=[0.013], shift=[-1.7], order=order)


def learned(bundle: Bundle, feed: Feed) -> tuple[list[float], nn.Module]:
    """What PyTorch makes of the epoch in float64, random layers off: losses, and the module."""
    module = build_module(bundle.workload.source, bundle.folder)
    module.load_state_dict(load_file(bundle.file("weights.safetensors")))
    module.double().train()
    settings = {"momentum": OPTIMIZER.momentum, "weight_decay": OPTIMIZER.weight_decay}
    optimizer = torch.optim.SGD(module.parameters(), **settings)
    losses = []
    with random_layers_off(module):
        for fed, rate in zip(feed, RATES, strict=True):
            optimizer.param_groups[0]["lr"] = rate
            optimizer.zero_grad()
            pictures = torch.from_numpy(normalised(augmented(fed), feed.scale, feed.shift))
            loss = functional.cross_entropy(module(pictures.double()), torch.from_numpy(fed.labels))
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    return losses, module


def assert_learned(
    losses: list[float], state: dict[str, np.ndarray], wanted: tuple[list[float], nn.Module],
    tolerance: float,
) -> None:  # fmt: skip
    """Within the tolerance of float64, relative to the largest value of a tensor."""
    np.testing.assert_allclose(losses, wanted[0], rtol=tolerance)
    for name, tensor in wanted[1].state_dict().items():
        kinds = [kind for kind in ("parameter", "buffer") if f"{kind}/{name}" in state]
        right = tensor.numpy()
        error = np.abs(state[f"{kinds[0]}/{name}"] - right).max()
        assert error <= tolerance * (np.abs(right).max() + 0.1), f"{name}: {error}"
