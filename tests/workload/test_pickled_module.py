"""Modules of a script or a notebook in another process."""

from __future__ import annotations

import copy
import dataclasses
import os
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.parametrizations import spectral_norm, weight_norm
from torch.nn.utils.parametrize import is_parametrized

from golow.levels.torch import bundle as torch_bundle
from golow.levels.torch.bundle import loss as loss_of
from golow.records.errors import GolowError
from golow.workload.bundle import Bundle, write_bundle
from golow.workload.pickled_module import RECORDERS, pickled, unpickled
from golow.workload.prepare import prepare
from golow.workload.request import Request
from golow.workload.source import build_module, locate

IN_A_SCRIPT = """
from torch import nn
FACTOR = 3.0

def scaled(x):
    return nn.functional.silu(x) * FACTOR

class Inner(nn.Module):
    def forward(self, x):
        return nn.functional.relu(scaled(x))
"""


@pytest.mark.usefixtures("own_imports")
def test_a_module_of_a_file_is_sent_with_its_class(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As that of a quantisation of ``net.py:Net``: no other process has the file's module."""
    file = tmp_path / "net.py"
    file.write_text(IN_A_SCRIPT)
    module = build_module(locate(f"{file}:Inner"))
    data = pickled(module, "the module")
    assert isinstance(data, bytes)
    monkeypatch.delitem(sys.modules, type(module).__module__)
    found, x = unpickled(data), torch.randn(4)
    assert torch.equal(found(x), module(x))


def test_a_module_that_is_on_no_path_is_sent_with_its_class(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As pytest imports tests: by their files, under names that no other process finds."""
    code = ModuleType("nowhere.net")
    exec(IN_A_SCRIPT, vars(code))  # noqa: S102 - a constant of this file
    monkeypatch.setitem(sys.modules, "nowhere.net", code)
    module = nn.Sequential(code.Inner())
    data = pickled(module, "the module")
    assert isinstance(data, bytes)
    monkeypatch.delitem(sys.modules, "nowhere.net")
    found, x = unpickled(data), torch.randn(4)
    assert torch.equal(found(x), module(x))


def test_torch_compile_finds_what_a_layer_of_a_script_reads() -> None:
    """In the layer's own scope, where it stands in a module of torch's; ``__main__`` is another
    module here."""
    scope: dict[str, Any] = {"__name__": "__main__"}
    exec(IN_A_SCRIPT, scope)  # noqa: S102
    live = torch.nn.Sequential(scope["Inner"]())
    data = pickled(live, "the module")
    assert isinstance(data, bytes)
    module, x = unpickled(data), torch.randn(3, 4)
    found = torch.compile(module, backend="eager", fullgraph=True)(x)
    torch.testing.assert_close(found, live(x))
    assert sys.modules["__main__"].__name__ == "__main__"


class ByModel(dict[Any, Any]):
    """Keys are models, and kept as the names of their classes: transformers from 5.20 on."""

    def __setitem__(self, model: object, recorders: object) -> None:
        super().__setitem__(str(type(model)), recorders)


class Recording(torch.nn.Module):
    """What transformers gives its models; the table is filled by their constructors alone."""

    _can_record_outputs: ClassVar[dict[str, str]] = {"hidden_states": "Layer"}


@pytest.mark.parametrize("table", [dict[Any, Any](), ByModel()], ids=["by name", "by model"])
def test_models_from_another_process_record_their_states(
    table: dict[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in = SimpleNamespace(_CAN_RECORD_REGISTRY=table)
    monkeypatch.setitem(sys.modules, RECORDERS, stand_in)  # type: ignore[arg-type]
    data = pickled(torch.nn.Sequential(Recording(), torch.nn.ReLU()), "the module")
    assert isinstance(data, bytes) and not table
    unpickled(data)
    assert table == {str(Recording): {"hidden_states": "Layer"}}


def test_equal_modules_are_equal_bytes_wherever_their_tensors_are() -> None:
    """The digest of a workload covers them, and the caches of exported models its digest."""
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Conv2d(2, 3, 1), torch.nn.BatchNorm2d(3))
    module.register_buffer("scale", torch.randn(4, dtype=torch.bfloat16)[1:])
    module.register_buffer("empty", torch.empty(0))
    copied = copy.deepcopy(module)
    data = pickled(module, "the module")
    assert data == pickled(copied, "the module")
    with torch.no_grad():
        copied[0].weight[0, 0] += 1
    assert data != pickled(copied, "the module")
    assert isinstance(data, bytes)
    found = unpickled(data).state_dict()
    assert all(torch.equal(found[name], item) for name, item in module.state_dict().items())
    assert found["scale"].dtype == torch.bfloat16


def test_parametrised_layers_are_sent() -> None:
    """PyTorch itself refuses to pickle them."""
    module = nn.Sequential(weight_norm(nn.Linear(4, 3)), spectral_norm(nn.Linear(3, 2))).eval()
    data = pickled(module, "the module")
    assert isinstance(data, bytes)
    found, x = unpickled(data), torch.randn(5, 4)
    assert torch.equal(found(x), module(x))
    with torch.no_grad():
        found[0].parametrizations.weight.original0.mul_(2)
    assert torch.equal(found[0].weight, 2 * module[0].weight)
    assert type(found[0]).__bases__ == (nn.Linear,)
    assert not is_parametrized(nn.Linear(4, 3))


# ---------------------------------------------------------------- what a worker reads


class Planted:
    """Unpickling it makes a folder."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.mark),)


def own_mean(output: Tensor, targets: Tensor) -> Tensor:
    return (output - targets).abs().mean()


@pytest.fixture
def carried(tmp_path: Path) -> Bundle:
    """The bundle of a live module with a loss of its user's own."""
    request = Request(nn.Linear(4, 4), torch.ones(2, 4), targets=torch.ones(2, 4), mode="train")
    made = prepare(dataclasses.replace(request, loss=own_mean))
    return write_bundle(made, tmp_path / "bundle")[0]


@pytest.mark.parametrize(("name", "read"), [("module", torch_bundle.module), ("loss", loss_of)])
def test_a_pickle_that_golow_did_not_write_is_not_read(
    carried: Bundle, tmp_path: Path, name: str, read: Callable[[Bundle], object]
) -> None:
    assert read(carried) is not None
    file, mark = carried.file(f"{name}.pkl"), tmp_path / "mark"
    file.write_bytes(pickle.dumps(Planted(mark)))
    with pytest.raises(GolowError, match=f"the bundle's {name} was changed after golow wrote it"):
        read(carried)
    file.unlink()
    with pytest.raises(GolowError, match=f"the bundle's {name} cannot be read"):
        read(carried)
    assert not mark.exists()


def test_a_pickle_that_nobody_asked_for_is_not_read(tmp_path: Path) -> None:
    request = Request(nn.Linear(4, 4), torch.ones(2, 4), targets=torch.ones(2, 4), mode="train")
    bundle, _ = write_bundle(prepare(dataclasses.replace(request, loss="mse_loss")), tmp_path / "b")
    bundle.file("loss.pkl").write_bytes(pickle.dumps(Planted(tmp_path / "mark")))
    assert loss_of(bundle) is functional.mse_loss
    assert not (tmp_path / "mark").exists()


def test_two_losses_of_one_name_are_two_workloads(tmp_path: Path) -> None:
    """Digests are keys of caches."""
    request = Request(nn.Linear(4, 4), torch.ones(2, 4), targets=torch.ones(2, 4), mode="train")
    losses = (
        lambda output, targets: (output - targets).mean(),
        lambda output, targets: output.sum(),
    )
    digests = {
        write_bundle(prepare(dataclasses.replace(request, loss=one)), tmp_path / str(k))[
            0
        ].workload.digest
        for k, one in enumerate(losses)
    }
    assert len(digests) == 2
