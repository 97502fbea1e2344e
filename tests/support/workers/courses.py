"""What the tests of ``epoch`` train on, and the same training as a plain loop in PyTorch.

The loop reads the files by lines of its own; nothing of it comes from golow's workers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional

from golow.lower.ir.clean_up import CLEAN_UP
from golow.lower.ir.pass_runner import apply
from golow.records.workload import Device, Mode, Optimizer, Precision
from golow.workload.bundle import Bundle, write_bundle, write_last
from golow.workload.graph_capture import capture
from golow.workload.prepare import Prepared, prepare
from golow.workload.request import Request
from golow.workload.source import build_module
from support.workers.bundles import NETWORKS

BATCH, ROWS = 8, 27  # three whole batches and one of three rows
BATCHES = 4
RATES = (0.1, 0.02, 0.05, 0.08)
OPTIMIZER = Optimizer(learning_rate=0.1, momentum=0.9, weight_decay=0.01)
SCALE, SHIFT = (0.015, 0.012, 0.019), (-2.1, -1.4, -0.7)
REACH = 3  # pixels by which pictures are moved at most

State = dict[str, Tensor]


class Course(NamedTuple):
    """A data set, the orders of two epochs, and bundles of one network for both modes."""

    folder: Path
    data: Path
    orders: tuple[Path, Path]
    training: Bundle
    inference: Bundle

    def module(self, state: State | None = None, dtype: torch.dtype = torch.float32) -> nn.Module:
        """The network with the state's weights, or with those of training's bundle."""
        module = build_module(self.training.workload.source).to(dtype)
        module.load_state_dict(weights(self.start() if state is None else state))
        return module

    def start(self, bundle: Bundle | None = None) -> State:
        """The weights of a bundle, by default of training's, as `save` would write them, without
        momentum. In inference, norms that have seen no batch have variances of their own."""
        source = self.training.workload.source
        parameters = {name for name, _ in build_module(source).named_parameters()}
        file = (bundle or self.training).file("weights.safetensors")
        return {
            f"{'parameter' if name in parameters else 'buffer'}/{name}": tensor
            for name, tensor in load_file(file).items()
        }


def make_course(
    folder: Path, *, device: Device = "cpu", precision: Precision = "default"
) -> Course:
    """`networks.Network` and random pictures; training's bundle has its ``last/``."""
    folder.mkdir(parents=True)
    generator = torch.Generator().manual_seed(0)
    data = folder / "data.safetensors"
    images = torch.randint(256, (ROWS, 3, 16, 16), generator=generator, dtype=torch.uint8)
    save_file({"images": images, "labels": torch.arange(ROWS) * 7 % 10}, data)
    orders = (folder / "order-1.safetensors", folder / "order-2.safetensors")
    for order in orders:
        save_file(_order(generator), order)

    def prepared(mode: Mode, batch: int) -> Prepared:
        return prepare(
            Request(
                f"{NETWORKS}:Network",
                mode=mode,
                batch=batch,
                input_shape=(3, 16, 16),
                optimizer=OPTIMIZER,
                device=device,
                precision=precision,
            )
        )

    last = prepared("train", ROWS % BATCH)
    training, whole = write_bundle(prepared("train", BATCH), folder / "train")
    inference, shown = write_bundle(prepared("infer", BATCH), folder / "infer")
    _add_graph(training, whole)
    _add_graph(inference, shown)
    _add_graph(write_last(last, training), last)
    return Course(folder, data, orders, training, inference)


def _order(generator: torch.Generator) -> State:
    moves = torch.randint(-REACH, REACH + 1, (ROWS, 2), generator=generator, dtype=torch.int8)
    flips = torch.randint(2, (ROWS,), generator=generator, dtype=torch.uint8)
    return {"rows": torch.randperm(ROWS, generator=generator), "shifts": moves, "flips": flips}


def _add_graph(bundle: Bundle, prepared: Prepared) -> None:
    captured = capture(prepared)
    bundle.write_graph(apply(captured.graph, CLEAN_UP), captured.constants)


# ---------------------------------------------------------------- the plain loop


def batches(course: Course, order: Path) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Pixels as they are in the data set, the input made of them, and the labels."""
    data, tensors = load_file(course.data), load_file(order)
    for start in range(0, ROWS, BATCH):
        part = {name: tensor[start : start + BATCH] for name, tensor in tensors.items()}
        pixels, labels = data["images"][part["rows"]], data["labels"][part["rows"]]
        seen = torch.stack([_seen(pixels[i], part, i) for i in range(len(pixels))])
        yield pixels, normalised(seen), labels


def normalised(pixels: Tensor) -> Tensor:
    """In float32, rounded twice."""
    scale, shift = (torch.tensor(numbers)[:, None, None] for numbers in (SCALE, SHIFT))
    product = pixels.float() * scale
    return product + shift


def _seen(picture: Tensor, part: State, index: int) -> Tensor:
    _, height, width = picture.shape
    dy, dx = part["shifts"][index].tolist()
    wide = functional.pad(picture, (REACH, REACH, REACH, REACH))
    cut = wide[:, REACH + dy : REACH + dy + height, REACH + dx : REACH + dx + width]
    return cut.flip(2) if part["flips"][index] else cut


class Taught(NamedTuple):
    """What a training came to: the loss of each batch, the state by the protocol's names."""

    losses: list[float]
    state: State


def taught(
    course: Course,
    orders: Sequence[Path],
    dtype: torch.dtype,
    start: State | None = None,
    count: int = BATCHES,
) -> Taught:
    """An epoch of each order, or its first ``count`` batches; from the start's weights, without
    momentum."""
    module = course.module(start, dtype).train()
    optimizer = torch.optim.SGD(
        module.parameters(), momentum=OPTIMIZER.momentum, weight_decay=OPTIMIZER.weight_decay
    )
    losses = []
    with one_thread():
        for order in orders:
            for rate, (_, inputs, labels) in zip(
                RATES[:count], batches(course, order), strict=False
            ):
                optimizer.param_groups[0]["lr"] = rate
                optimizer.zero_grad()
                loss = functional.cross_entropy(module(inputs.to(dtype)), labels)
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
    return Taught(losses, _state(module, optimizer))


def _state(module: nn.Module, optimizer: torch.optim.SGD) -> State:
    state = {f"buffer/{name}": buffer for name, buffer in module.named_buffers()}
    for name, parameter in module.named_parameters():
        state[f"parameter/{name}"] = parameter.detach()
        state[f"momentum/{name}"] = optimizer.state[parameter]["momentum_buffer"]
    return state


def evaluated(course: Course, state: State, dtype: torch.dtype) -> Tensor:
    """The network's outputs for the data set in its own order, by the running statistics.

    The last batch is filled up, since another size may be computed by another kernel.
    """
    module = course.module(state, dtype).eval()
    images = normalised(load_file(course.data)["images"]).to(dtype)
    whole = torch.cat((images, images[-1:].expand(-ROWS % BATCH, -1, -1, -1)))
    with one_thread(), torch.inference_mode():
        return torch.cat([module(part) for part in whole.split(BATCH)])[:ROWS]


def weights(state: State) -> State:
    """Parameters and buffers of a state, as a module's state dict has them."""
    kinds = ("parameter/", "buffer/")
    return {n.partition("/")[2]: t for n, t in state.items() if n.startswith(kinds)}


@contextmanager
def one_thread() -> Iterator[None]:
    """As many as the workers have, since sums depend on it."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
