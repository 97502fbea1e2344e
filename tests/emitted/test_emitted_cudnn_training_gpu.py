"""Training steps of `golow emit --level cudnn` make those of `golow.compile_step` on the GPU."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from golow.levels.called.project_building import missing
from golow.levels.called.training.training_step import TrainingStep
from golow.workload.batch import Batch
from support.command import golow as command
from support.direct.emitted_steps_on_gpu import NAMES, case, project, step_of
from support.direct.emitted_trainings import Training, training

pytestmark = pytest.mark.gpu
if not torch.cuda.is_available():
    pytest.skip("there is no GPU", allow_module_level=True)
if (lacking := missing("cudnn")) is not None:
    pytest.skip(f"{lacking[0]}: {lacking[1]}", allow_module_level=True)


def stepping(step: TrainingStep, batch: Batch) -> float:
    return float(step(batch.inputs[0], *batch.targets))


def enqueueing(made: Training, batch: Batch) -> float:
    loss = torch.full((), torch.nan, device="cuda")
    made.require(made.enqueued(batch, loss, torch.cuda.current_stream().cuda_stream))
    return float(loss)


def on_host(batch: Batch) -> Batch:
    return Batch(*(tuple(item.cpu() for item in part) for part in batch))


def assert_same(found: Tensor, wanted: Tensor, what: str) -> None:
    found, wanted = found.cpu(), wanted.cpu()
    assert (found.shape, found.dtype) == (wanted.shape, wanted.dtype), what
    far = (found.double() - wanted.double()).abs().max() if found.numel() else 0
    assert torch.equal(found, wanted), f"{what}: different, by at most {far}"


@pytest.mark.parametrize("name", NAMES)
def test_the_program_trains_and_evaluates_as_the_plans_do(name: str, tmp_path: Path) -> None:
    folder = project(name)
    files = [folder / f"{file}.safetensors" for file in ("weights", "example")]
    run = [folder / "build" / f"{name}_run", *files, tmp_path / "made"]
    options = ["--evaluate", files[1], tmp_path / "out", "--expect"]
    ended = subprocess.run(
        [*run, *options, folder / "expected.safetensors"], capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert "equal bit for bit" in ended.stdout, ended.stdout + ended.stderr
    ended = subprocess.run(
        [*run, "--expect", folder / "expected.safetensors", "--rate", "0.5"], check=False,
        capture_output=True, text=True,
    )  # fmt: skip
    assert (ended.returncode, "different" in ended.stdout) == (1, True)


@pytest.mark.parametrize("name", NAMES)
def test_a_client_goes_on_where_python_stopped_and_back(name: str, tmp_path: Path) -> None:
    """On memory of the host and of the GPU, with another rate, from one program to the other."""
    data, folder = case(name).batches, project(name)
    drops = name == "dropping"  # random numbers begin again when a state is loaded
    with step_of(name) as step, training(name, folder=folder) as made:
        for batch in data:
            assert made(on_host(batch)) == stepping(step, batch)
        made.set_rate(0.003)
        step.learning_rate = 0.003
        for batch in data:
            assert enqueueing(made, batch) == stepping(step, batch)
        for key, item in step.state_dict().items():
            if not key.startswith(("unused", "frozen", "first.")) and key != "last.weight":
                assert_same(made.read(key, item.cpu()), item, key)
        x = data[2].inputs[0]
        wanted = step.evaluate(x)
        assert_same(made.evaluate(x.cpu(), wanted.cpu()), wanted, "evaluation")
        made.save(tmp_path / "state")
        for batch in data:
            stepping(step, batch)
        last = step.state_dict()
    with training(name, tmp_path / "state", folder) as again:
        again.set_rate(0.003)
        for batch in data:
            again(on_host(batch))
        again.save(tmp_path / "last")
    found = load_file(tmp_path / "last")
    assert found.keys() >= last.keys()
    for key, item in last.items():
        if not drops:
            assert_same(found[key], item, key)


def test_the_loss_scale_is_pythons_and_is_kept(tmp_path: Path) -> None:
    name = "residual_fp16"
    with step_of(name) as step, training(name, folder=project(name)) as made:
        for batch in case(name).batches:
            made(on_host(batch))
            stepping(step, batch)
        made.save(tmp_path / "state")
        wanted = step.scaler_state()
    state = load_file(tmp_path / "state")
    assert float(state["scaler/scale"]) == wanted["scale"]
    assert int(state["scaler/good_steps"]) == wanted["_growth_tracker"]
    with training(name, tmp_path / "state", project(name)) as again:
        again.save(tmp_path / "again")
    again_state = load_file(tmp_path / "again")
    assert all(torch.equal(again_state[key], item) for key, item in state.items())


def test_it_becomes_a_part_of_a_graph_that_is_captured() -> None:
    name = "lenet5"
    batch = case(name).batches[0]
    loss, graph = torch.full((), torch.nan, device="cuda"), torch.cuda.CUDAGraph()
    with training(name, folder=project(name)) as made, training(name, folder=project(name)) as own:
        losses = [own(on_host(batch)) for _ in range(3)]
        with torch.cuda.graph(graph):
            stream = torch.cuda.current_stream().cuda_stream
            made.require(made.enqueued(batch, loss, stream))
        for wanted in losses:
            graph.replay()
            assert float(loss) == wanted
        del graph
        torch.cuda.synchronize()


def test_the_command_writes_a_step(tmp_path: Path) -> None:
    options = ["--mode", "train", "--level", "cudnn", "--batch", "8", "--optimizer", "adamw"]
    ended = command("emit", "lenet5", *options, "--out", str(tmp_path / "made"))
    assert ended.status == 0, ended.error
    readme = (tmp_path / "made" / "README.md").read_text()
    assert "by AdamW" in readme
    assert "@" not in readme
