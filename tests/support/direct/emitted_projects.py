"""Networks, and their C++ projects, written and built once for all tests of a run."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

import golow
from golow.compiled.compiled_module import CompiledModule
from golow.levels.called.emission import write_called
from golow.levels.direct.onednn.bindings.library import find_library
from golow.models.lenet import lenet5
from golow.models.resnet import resnet18
from golow.models.vision_transformer import VisionTransformer
from support import one_run


class Sequences(nn.Module):
    """An LSTM over sequences, with its last state as an output whose first axis is no batch."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn = nn.LSTM(16, 24, 2, batch_first=True)
        self.head = nn.Linear(24, 5)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y, (hidden, _) = self.rnn(x)
        return self.head(y), hidden


class Positions(nn.Module):
    """Adds numbers that NumPy computes when weights are loaded, not in an iteration."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layer(x) + torch.arange(6).cumsum(0)
        return y


class Adding(nn.Module):
    """Changes its second input in place."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x: Tensor, sums: Tensor) -> Tensor:
        y: Tensor = self.layer(x)
        sums += y
        return y.relu()


class Case(NamedTuple):
    """A network: its example and the batches to write; None is the example's alone."""

    module: nn.Module
    example: Tensor
    batch: list[int] | None


def drawn(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@cache
def case(name: str) -> Case:
    torch.manual_seed(0)
    if name == "lenet5":
        return Case(lenet5().eval(), drawn(4, 1, 28, 28), [1, 4])
    if name == "resnet18":
        network = resnet18().eval()
        for module in network.modules():  # folded as after a training
            if isinstance(module, nn.BatchNorm2d):
                nn.init.uniform_(module.running_mean, -0.1, 0.1)
                nn.init.uniform_(module.running_var, 0.5, 1.5)
                nn.init.uniform_(module.bias, -0.1, 0.1)
        return Case(network, drawn(2, 3, 32, 32), [1, 2])
    if name == "vit":
        return Case(VisionTransformer(3, 10, 32, layers=2).eval(), drawn(2, 3, 32, 32), [1, 2])
    if name == "positions":
        return Case(Positions().eval(), drawn(2, 6), None)
    return Case(Sequences().eval(), drawn(3, 7, 16), None)


NAMES = ("lenet5", "resnet18", "vit", "lstm", "positions")


@cache
def compiled(name: str) -> CompiledModule:
    module, example, batch = case(name)
    return golow.compile(module, example, batch=batch, quiet=True, threads=1)  # type: ignore[return-value]


@cache
def project(name: str) -> Path:
    """The folder of a project, built, with the path alone in the environment."""
    with one_run.one_at_a_time(one_run.own_folder(), f"emitted-{name}") as folder:
        if not (folder / "done").exists():
            write_called(compiled(name), name, folder / "project")
            build(folder / "project")
            (folder / "done").touch()
        return folder / "project"


def build(folder: Path) -> None:
    library = find_library()
    assert library is not None
    prefix = f"-DCMAKE_PREFIX_PATH={library.parents[1]}"
    clean("cmake", "-S", str(folder), "-B", str(folder / "build"), prefix)
    clean("cmake", "--build", str(folder / "build"), "--parallel", "2")


def clean(*command: str, status: int = 0, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run a command with nothing in its environment but the path."""
    answer = subprocess.run(
        command, env={"PATH": os.environ["PATH"], **environment}, capture_output=True, text=True,
        check=False, timeout=300,
    )  # fmt: skip
    assert answer.returncode == status, answer.stdout + answer.stderr
    return answer


class Ran(NamedTuple):
    """How the program of a project ended."""

    status: int
    output: str
    error: str
    outputs: Mapping[str, Tensor]


def run(
    name: str, inputs: Mapping[str, Tensor], scratch: Path, *options: str,
    weights: Path | None = None,
    **environment: str,
) -> Ran:  # fmt: skip
    """Run the program of a project on inputs, in a file."""
    folder = project(name)
    save_file({key: item.contiguous() for key, item in inputs.items()}, scratch / "in.safetensors")
    (scratch / "out.safetensors").unlink(missing_ok=True)
    files = [weights or folder / "weights.safetensors"]
    files += [scratch / f"{end}.safetensors" for end in ("in", "out")]
    answer = subprocess.run(
        [folder / "build" / f"{name}_run", *files, *options], capture_output=True, text=True,
        env={"PATH": os.environ["PATH"], **environment}, check=False, timeout=300,
    )  # fmt: skip
    made = scratch / "out.safetensors"
    outputs = load_file(made) if made.exists() else {}
    return Ran(answer.returncode, answer.stdout, answer.stderr, outputs)
