"""What epochs of `libtorch` are tested with: the bundles of a network, its data, and plain PyTorch
that trains on the same."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
import pytest
import torch
from safetensors.numpy import save_file as save_arrays
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional

from golow.lower.ir.clean_up import CLEAN_UP
from golow.lower.ir.pass_runner import apply
from golow.records.record import encode
from golow.records.workload import Device, Mode, Optimizer
from golow.worker.client import Worker
from golow.workload.bundle import Bundle, write_bundle, write_last
from golow.workload.graph_capture import capture
from golow.workload.prepare import prepare
from golow.workload.request import Request
from support.models.networks import Network
from support.workers.bundles import NETWORKS

SHAPE = (3, 16, 16)
ROWS, BATCH = 29, 8  # the last batch has 5
OPTIMIZER = Optimizer(learning_rate=0.1, momentum=0.9, weight_decay=0.01)
SCALE, SHIFT = [0.0131, 0.0142, 0.0153], [-1.7, -1.8, -1.9]
RATES = [0.05, 0.1, 0.07, 0.02]  # of the batches of an epoch
REACH = 128  # the farthest that a picture may be moved
NO_GPU = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
DEVICES = ["cpu", pytest.param("cuda", marks=[pytest.mark.gpu, NO_GPU])]


class Files(NamedTuple):
    """A prepared part of a data set, and the orders of epochs: plain, moved and flipped, and each
    alone."""

    data: Path
    orders: list[Path]


class Built(NamedTuple):
    """The bundles of one network for training and inference, and the commands of their workers."""

    training: Bundle
    inference: Bundle
    train: tuple[str, ...]
    infer: tuple[str, ...]
    files: Files

    def worker(self, mode: Mode = "train") -> Worker:
        """A worker with the bundle of that mode loaded."""
        worker = Worker("libtorch", self.train if mode == "train" else self.infer, threads=1)
        worker.load((self.training if mode == "train" else self.inference).folder)
        return worker


def bundle_of(
    folder: Path, mode: Mode, batch: int, device: Device, whole: Bundle | None = None
) -> Bundle:
    """A bundle as golow writes it; with ``whole``, the one for the last batch of its epochs."""
    prepared = prepare(
        Request(
            f"{NETWORKS}:Network", mode=mode, batch=batch, input_shape=SHAPE, optimizer=OPTIMIZER
        )
    )
    bundle = write_last(prepared, whole) if whole else write_bundle(prepared, folder)[0]
    captured = capture(prepared)
    bundle.write_graph(apply(captured.graph, CLEAN_UP), captured.constants)
    # Capture is on the CPU whatever the device; the tests of a CPU must not need a GPU for it.
    described = msgspec.structs.replace(bundle.workload, device=device, precision="ieee")
    bundle.file("workload.json").write_bytes(encode(described))
    return Bundle(bundle.folder)


def files_in(folder: Path) -> Files:
    """Random pictures with random labels; orders with and without augmentation."""
    random = np.random.default_rng(0)
    data = folder / "data.safetensors"
    save_arrays(
        {
            "images": random.integers(0, 256, (ROWS, *SHAPE), dtype=np.uint8),
            "labels": random.integers(0, 10, ROWS),
        },
        data,
        {"dataset": "random", "part": "train"},
    )
    shifts = {"shifts": random.integers(-4, 5, (ROWS, 2), dtype=np.int8)}
    far = {"shifts": random.choice(np.array([-128, -15, -8, 7, 127], np.int8), (ROWS, 2))}
    flips = {"flips": random.integers(0, 2, ROWS, dtype=np.uint8)}
    orders = []
    for augmentation in ({}, shifts | flips, far, flips):
        orders.append(folder / f"order-{len(orders)}.safetensors")
        save_arrays({"rows": random.permutation(ROWS), **augmentation}, orders[-1])
    return Files(data, orders)


# ---------------------------------------------------------------- plain PyTorch


class Eager:
    """The same network, trained by plain PyTorch on the CPU."""

    def __init__(self, bundle: Bundle) -> None:
        self.module: nn.Module = Network()
        self.module.load_state_dict(load_file(bundle.file("weights.safetensors")))
        self.module.train()
        self.optimizer = torch.optim.SGD(self.module.parameters(), momentum=0.9, weight_decay=0.01)

    def train(self, files: Files, epoch: int) -> list[float]:
        """One epoch, the loss of each batch."""
        losses = []
        for pixels, labels, rate in zip(*batches_of(files, epoch), RATES, strict=True):
            self.optimizer.param_groups[0]["lr"] = rate
            self.optimizer.zero_grad()
            loss = functional.cross_entropy(self.module(normalised(pixels)), labels)
            loss.backward()
            self.optimizer.step()
            losses.append(loss.item())
        return losses

    def state(self) -> dict[str, Tensor]:
        """By the names of the protocol's `save`."""
        found = {f"buffer/{name}": buffer for name, buffer in self.module.named_buffers()}
        for name, parameter in self.module.named_parameters():
            found[f"parameter/{name}"] = parameter.detach()
            found[f"momentum/{name}"] = self.optimizer.state[parameter]["momentum_buffer"]
        return found


def batches_of(files: Files, epoch: int) -> tuple[list[Tensor], list[Tensor]]:
    """Augmented pixels and labels of the epoch's batches."""
    data, order = load_file(files.data), load_file(files.orders[epoch])
    shifts = order.get("shifts", torch.zeros(ROWS, 2, dtype=torch.int8)).tolist()
    flips = order.get("flips", torch.zeros(ROWS, dtype=torch.uint8)).tolist()
    pictures = []
    for row, (dy, dx), flip in zip(order["rows"].tolist(), shifts, flips, strict=True):
        picture = functional.pad(data["images"][row], (REACH,) * 4)
        picture = picture[:, REACH + dy :, REACH + dx :][:, : SHAPE[1], : SHAPE[2]]
        pictures.append(picture.flip(2) if flip else picture)
    pixels = torch.stack(pictures)
    return list(pixels.split(BATCH)), list(data["labels"][order["rows"]].split(BATCH))


def normalised(pixels: Tensor) -> Tensor:
    """Float32, rounded after the product and after the sum."""
    scale, shift = (torch.tensor(numbers).view(-1, 1, 1) for numbers in (SCALE, SHIFT))
    return pixels.float().mul(scale).add(shift)


def checksum_of(files: Files, epoch: int) -> int:
    """crc32 over the bytes that the epoch's batches bring."""
    data, checksum = load_file(files.data), 0
    for rows in load_file(files.orders[epoch])["rows"].split(BATCH):
        for name in ("images", "labels"):
            checksum = zlib.crc32(data[name][rows].numpy().tobytes(), checksum)
    return checksum
