"""A file of models for `prepare`, and what becomes of them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from golow.levels.level import python_worker
from golow.records.errors import GolowError
from golow.worker.client import Worker
from golow.workload.bundle import write_bundle
from golow.workload.prepare import Prepared, prepare
from golow.workload.request import Request

FILE = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(16, 4)

    def forward(self, x):
        return self.fc(x)

class Versioned(Net):
    _version = 2

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, *rest):
        version = local_metadata.get("version", None)
        if version not in (1, 2):
            raise ValueError(f"version should be set to 1 or 2 instead of {version}")
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)

class Needy(nn.Module):
    def __init__(self, classes):
        super().__init__()

class Broken(nn.Module):
    def __init__(self):
        super().__init__()
        raise RuntimeError("no weights at /data/weights")

class Talks(nn.Module):
    def forward(self, x):
        return "sixteen"

class Silent(nn.Module):
    def forward(self, x):
        pass

class Counts(nn.Module):
    def forward(self, x):
        return {"y": x, "count": 3}

class Empty(nn.Module):
    def forward(self, x):
        return x[:0]

class Fails(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Identity(), Net())

    def forward(self, x):
        return self.inner(x)

class Scores(Net):
    def forward(self, x):
        return self.fc(x).sum(1)

ready = Net()
number = 7

def build():
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 3))

def build_nothing():
    return 7
"""


def written_models(folder: Path) -> Path:
    """The file of them."""
    path = folder / "mynet.py"
    path.write_text(FILE)
    return path


@contextmanager
def imports_forgotten() -> Iterator[None]:
    """What is imported within is forgotten after it."""
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if name.startswith(("golow_user_", "mypackage", "neighbour")):
            del sys.modules[name]


def refusal(model: str | nn.Module, inputs: Any = None, **asked: Any) -> GolowError:
    """Why that cannot be prepared."""
    with pytest.raises(GolowError) as raised:
        prepare(Request(model, inputs, **asked))
    print(raised.value.message, raised.value.hint, sep="\n")
    return raised.value


def eager_outputs(prepared: Prepared, folder: Path) -> dict[str, Tensor]:
    """What the eager worker makes of it, in a process of its own."""
    bundle, _ = write_bundle(prepared, folder / "bundle")
    with Worker("eager", python_worker("golow.levels.torch.eager", ""), threads=1) as worker:
        worker.load(bundle.folder)
        worker.outputs([0, 1], 0.1, folder / "outputs")
    return load_file(folder / "outputs")


def assert_computes(prepared: Prepared, folder: Path) -> None:
    """The worker has the same module, weights and batches."""
    found = eager_outputs(prepared, folder)
    with torch.no_grad():
        expected = prepared.module(*prepared.batches[1].inputs)
    torch.testing.assert_close(found["1/output/0"], expected)
