"""From what a user names to a workload: models, sizes, weights, losses and targets."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from golow.levels.level import python_worker
from golow.records.workload import Mode
from golow.worker.client import Worker
from golow.workload.bundle import Bundle, write_bundle, write_last
from golow.workload.graph_capture import capture
from golow.workload.prepare import prepare
from golow.workload.request import Request
from support.models.model_files import (
    FILE,
    assert_computes,
    eager_outputs,
    refusal,
)

pytestmark = pytest.mark.usefixtures("forked", "own_imports")


# ---------------------------------------------------------------- models


def test_a_class_of_a_file(file: Path, tmp_path: Path) -> None:
    prepared = prepare(Request(f"{file}:Net", batch=3, input_shape=(16,)))
    workload = prepared.workload
    assert (workload.model, workload.source.kind, workload.parameters) == ("Net", "file", 68)
    assert workload.inputs[0].shape == (3, 16)
    assert workload.initialisation == "the model's constructor, seed 0"
    assert len(workload.source.sha256) == 64
    assert_computes(prepared, tmp_path)


@pytest.mark.parametrize("name", ["ready", "build"])
def test_an_instance_or_a_function_of_a_file(file: Path, name: str) -> None:
    assert prepare(Request(f"{file}:{name}", input_shape=(16,))).workload.model == name


def test_a_file_may_import_its_neighbours(file: Path, tmp_path: Path) -> None:
    file.write_text("from neighbour import Inner as Net\n")
    (tmp_path / "neighbour.py").write_text(FILE.replace("Net", "Inner"))
    assert_computes(prepare(Request(f"{file}:Net", input_shape=(16,))), tmp_path)


def test_a_dotted_path_from_the_current_folder(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The user's package need not be installed; the worker finds it too."""
    package = tmp_path / "mypackage"
    package.mkdir()
    (package / "__init__.py").write_text("")
    file.rename(package / "models.py")
    monkeypatch.chdir(tmp_path)
    prepared = prepare(Request("mypackage.models:build", input_shape=(16,)))
    assert (prepared.workload.model, prepared.workload.source.kind) == ("build", "import")
    assert_computes(prepared, tmp_path)


class Live(nn.Module):
    """A module that only this process knows."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(16, 4)
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        z = self.norm(self.fc(x))
        return z, {"sum": z.sum(1) + y}


def test_a_live_module_with_two_inputs_and_two_outputs(tmp_path: Path) -> None:
    module = Live()
    prepared = prepare(Request(module, (torch.randn(4, 16), torch.arange(4))))
    assert [t.dtype for t in prepared.workload.inputs] == ["float32", "int64"]
    found = eager_outputs(prepared, tmp_path)
    assert set(found) == {"0/output/0", "0/output/1", "1/output/0", "1/output/1"}
    with torch.no_grad():
        expected = module.eval()(*prepared.batches[0].inputs)
    torch.testing.assert_close(found["0/output/1"], expected[1]["sum"])


class Watched(nn.Module):
    """Notes whether the device was taken when it was called."""

    taken = False
    seen: ClassVar[list[bool]] = []

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        Watched.seen.append(Watched.taken)
        return self.linear(x)


@contextmanager
def device_taken() -> Iterator[None]:
    Watched.taken = True
    yield
    Watched.taken = False


@pytest.mark.parametrize("mode", ["infer", "train"])
def test_the_device_is_taken_while_the_model_is_tried(mode: Mode) -> None:
    Watched.seen.clear()
    prepare(Request(Watched(), torch.randn(2, 4), mode=mode), device_taken())
    assert Watched.seen
    assert all(Watched.seen)
    assert not Watched.taken


@pytest.mark.parametrize("training", [False, True])
def test_the_callers_module_stays_as_it_is(training: bool) -> None:
    """Its mode, its weights and its statistics are the caller's."""
    module = Live().train(training)
    before = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    inputs = (torch.randn(4, 16), torch.arange(4))
    prepare(Request(module, inputs))
    prepare(
        Request(
            module,
            inputs,
            mode="train",
            initialisation="kaiming",
            loss=lambda output: output[0].sum(),
        )
    )
    assert module.training is training
    assert module.norm.training is training
    for name, tensor in module.state_dict().items():
        assert torch.equal(tensor, before[name])


MAIN = """
import sys, torch
from pathlib import Path
from torch import nn
from golow.workload.bundle import write_bundle
from golow.workload.inputs import require_batches
from golow.workload.prepare import prepare
from golow.workload.request import PROGRAMS_INPUTS, Request

SCALE = 3.0

class Mine(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(16, 4)

    def forward(self, x):
        return SCALE * self.fc(x)

def my_loss(output, target):
    return SCALE * (output - target).square().mean()

torch.manual_seed(0)
asked = Request(
    Mine(), torch.ones(2, 16), mode="train", loss=my_loss, targets=torch.ones(2, 4)
)
prepared = prepare(asked)
write_bundle(prepared, Path(sys.argv[1]))
module = prepared.module
print(my_loss(module(torch.ones(2, 16)), torch.ones(2, 4)).item())
"""


@pytest.mark.slow
def test_a_live_module_of_a_script_or_a_notebook(tmp_path: Path) -> None:
    """Defined in ``__main__``, which the worker has not: it travels whole, and so does its loss."""
    script = tmp_path / "script.py"
    script.write_text(MAIN)
    done = subprocess.run(
        [sys.executable, script, tmp_path / "bundle"], capture_output=True, text=True, check=True
    )
    with Worker("eager", python_worker("golow.levels.torch.eager", ""), threads=1) as worker:
        worker.load(tmp_path / "bundle")
        worker.outputs([0], 0.1, tmp_path / "outputs")
    found = load_file(tmp_path / "outputs")["0/loss/loss"].item()
    assert found == pytest.approx(float(done.stdout), rel=1e-5)


def test_a_module_that_cannot_travel(tmp_path: Path) -> None:
    module = Live()
    module.handle = open(__file__)  # type: ignore[assignment]  # noqa: SIM115, PTH123
    refused = refusal(module, (torch.randn(4, 16), torch.arange(4)))
    module.handle.close()
    assert "the module cannot be copied: TypeError" in refused.message
    assert "put it into a file" in refused.hint


def test_equal_workloads_have_one_digest(file: Path, tmp_path: Path) -> None:
    def digest(**asked: Any) -> str:
        prepared = prepare(Request(f"{file}:Net", input_shape=(16,), **asked))
        return write_bundle(prepared, tmp_path / "bundle")[1].workload.digest

    assert digest() == digest()
    assert len({digest(), digest(seed=1), digest(batch=3), digest(initialisation="kaiming")}) == 4


# ---------------------------------------------------------------- the bundle


def test_a_bundle_is_read_once(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepared = prepare(Request(f"{file}:Net", input_shape=(16,)))
    folder = write_bundle(prepared, tmp_path / "bundle")[0].folder
    reads: list[str] = []
    read_bytes = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda p: reads.append(p.name) or read_bytes(p))
    bundle = Bundle(folder)
    assert reads == []
    assert bundle.workload is bundle.workload
    assert bundle.graph is None is bundle.last
    assert reads == ["workload.json"]


def test_a_bundle_has_the_graph_and_the_last_batch_that_were_added(
    file: Path, tmp_path: Path
) -> None:
    """Also where they were asked for before."""
    prepared = prepare(Request(f"{file}:Net", input_shape=(16,), batch=4))
    smaller = prepare(Request(f"{file}:Net", input_shape=(16,), batch=3))
    bundle, _ = write_bundle(prepared, tmp_path / "bundle")
    assert bundle.graph is None is bundle.last
    captured = capture(prepared)
    bundle.write_graph(captured.graph, captured.constants)
    assert bundle.graph == captured.graph == Bundle(bundle.folder).graph
    last = write_last(smaller, bundle)
    assert bundle.last is last
    assert last.workload.batch == 3
    last.write_graph(captured.graph, captured.constants)
    assert bundle.last.graph == captured.graph


# ---------------------------------------------------------------- shapes and sizes


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"batch": 0}, "a batch of 0 has no sample"),
        ({"batch": -3}, "a batch of -3 has no sample"),
        ({"resolution": 0}, "a resolution of 0 has no pixel"),
        ({"resolution": -1}, "a resolution of -1 has no pixel"),
        ({"input_shape": (3, 0, 32)}, "the input shape (3, 0, 32) is empty"),
        ({"input_shape": ()}, "the input shape () is empty"),
        ({"input_shape": (3, 32, 32), "resolution": 32}, "both give the shape"),
        ({"input_shape": (3, 32, 48)}, "takes square images, not 3x32x48"),
        ({"input_shape": (32, 32)}, "takes square images, not 32x32"),
        ({"mode": "tarin"}, "there is no mode 'tarin'"),
        ({"threads": 0}, "0 threads compute nothing"),
        ({"initialisation": "kaming"}, "kaming"),
    ],
)
def test_what_cannot_be(asked: dict[str, Any], message: str) -> None:
    assert message in refusal("resnet18", **asked).message


def test_a_resolution_that_is_too_small() -> None:
    assert "alexnet" in refusal("alexnet", batch=1, resolution=8).message


def test_a_models_own_input_is_not_guessed(file: Path) -> None:
    refused = refusal(f"{file}:Net")
    assert "cannot guess the input of Net" in refused.message
    assert "--input 3x224x224" in refused.hint
    assert "sets them itself" in refusal(f"{file}:Net", channels=1, input_shape=(16,)).message


@pytest.mark.parametrize(
    ("inputs", "asked", "message"),
    [
        ((), {}, "example_inputs is empty"),
        (torch.tensor(3.0), {}, "need the same first dimension"),
        ((torch.ones(4, 16), torch.ones(3)), {}, "the batch: these are 4x16, 3"),
        (torch.ones(0, 16), {}, "an empty batch"),
        ([1, 2], {}, "is of type int, and golow gives models tensors"),
        (torch.ones(4, 16), {"batch": 5}, "a batch has 5 samples, but the example inputs hold 4"),
        (torch.ones(4, 16), {"targets": torch.ones(3, 4), "mode": "train"}, "same first dimension"),
    ],
)
def test_example_inputs_that_do_not_fit(inputs: Any, asked: dict[str, Any], message: str) -> None:
    assert message in refusal(nn.Linear(16, 4), inputs, **asked).message


@pytest.mark.parametrize(
    "inputs",
    [torch.arange(64.0).reshape(4, 16) + 1, torch.ones(1, 16), torch.arange(16).reshape(1, 16) + 1],
    ids=["floats", "one sample", "one sample of integers"],
)
def test_every_batch_is_another(inputs: Tensor) -> None:
    """A level that answered with the batch before would be found, whatever the example."""
    batches = prepare(Request(nn.Identity(), inputs)).batches
    assert len(batches) == 4
    for index, batch in enumerate(batches):
        assert batch.inputs[0].dtype == inputs.dtype
        for other in batches[:index]:
            assert not torch.equal(batch.inputs[0], other.inputs[0])
