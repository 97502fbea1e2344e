"""Training steps of `golow emit --level cudnn`, built and run without a GPU: `gpu_stand_in.cpp` is
the driver, and both libraries."""

from __future__ import annotations

import copy
import os
import re
import subprocess
from ctypes import c_float, c_void_p
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from golow.levels.called.project_building import missing
from golow.workload.batch import Batch
from support.direct.emitted_steps_on_host import NAMES, case, project
from support.direct.emitted_trainings import Training, training

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(missing("cudnn") is not None, reason="CUDA's headers are not installed"),
]

BAD_WEIGHTS, BAD_CALL = 2, 3


def run(
    name: str, made: Path, *options: str, status: int = 0, **environment: str
) -> subprocess.CompletedProcess[str]:
    folder = project(name)
    files = [folder / f"{end}.safetensors" for end in ("weights", "example")]
    answer = subprocess.run(
        [folder / "build" / f"{name}_run", *files, made, *options], capture_output=True, text=True,
        env={"PATH": os.environ["PATH"], **environment}, check=False, timeout=300,
    )  # fmt: skip
    assert answer.returncode == status, answer.stdout + answer.stderr
    return answer


@pytest.mark.parametrize("name", NAMES)
def test_the_program_trains_and_evaluates_as_the_plans_do(name: str, tmp_path: Path) -> None:
    """Losses, state and outputs, in batches of two sizes. The stand-in adds up in another order."""
    example, expected = (project(name) / f"{n}.safetensors" for n in ("example", "expected"))
    evaluate = ["--evaluate", str(example), str(tmp_path / "outputs")]
    answer = run(name, tmp_path / "made", *evaluate)
    wanted, found = load_file(expected), load_file(tmp_path / "made")
    found |= load_file(tmp_path / "outputs")
    loss = wanted.pop("loss")
    assert found.keys() == wanted.keys()
    limit = 5e-3 if name == "scaled" else 1e-4
    for key, item in wanted.items():
        assert torch.allclose(found[key].double(), item.double(), atol=limit, rtol=limit), key
    said = re.search(r"epoch 1: loss ([0-9.e-]+)", answer.stdout)
    assert said is not None
    assert abs(float(said[1]) - float(loss[-1])) < limit
    assert "different" in run(
        name, tmp_path / "made", "--rate", "0.5", "--expect", str(expected), status=1
    ).stdout  # fmt: skip


@pytest.mark.parametrize("name", ["tied", "dropping"])
def test_a_client_of_the_header_goes_on_from_a_state(name: str, tmp_path: Path) -> None:
    """Random numbers begin again with it, and the optimizer goes on."""
    data, folder = case(name).batches, project(name)
    with training(name, folder=folder) as made:
        for batch in data:
            made(batch)
        made.set_rate(0.003)
        made.save(tmp_path / "state")
        made.load(tmp_path / "state")
        losses = [enqueueing(made, batch) for batch in data]
        made.save(tmp_path / "last")
    last = load_file(tmp_path / "last")
    with training(name, tmp_path / "state", folder) as again:
        again.set_rate(0.003)
        assert [again(batch) for batch in data] == losses
        for key, item in last.items():
            if key.startswith(("norm", "words", "momentum", "steps")):
                assert torch.equal(again.read(key, item), item), key
        again.load(folder / "weights.safetensors")  # without an optimizer's state
        again.set_rate(case(name).optimizer.learning_rate)
        wanted = load_file(folder / "expected.safetensors")["loss"]
        found = torch.tensor([again(batch) for batch in data])
        assert torch.allclose(found, wanted, atol=1e-4)
        again.set_rate(0.5)
        again.load(folder / "weights.safetensors")  # the rate stays
        other = torch.tensor([again(batch) for batch in data])
        assert not torch.allclose(other[1:], wanted[1:], atol=1e-2)


def test_evaluation_has_the_weights_of_the_last_step(tmp_path: Path) -> None:
    """In a size that is planned, in one that is padded, after steps, and after another state."""
    data, module = case("tied").batches, copy.deepcopy(case("tied").module).eval()
    seen: list[Tensor] = []
    with training("tied", folder=project("tied")) as made:
        for batch in (data[0], data[2]):
            made(batch)
            made.save(tmp_path / "state")
            state = load_file(tmp_path / "state")
            module.load_state_dict({key: t for key, t in state.items() if "/" not in key})
            for rows in (3, 5, 8):
                x = data[0].inputs[0][:rows]
                wanted = module(x).detach()
                assert torch.allclose(made.evaluate(x, wanted), wanted, atol=1e-5)
            seen.append(made.evaluate(x, wanted))
        assert not torch.allclose(*seen, atol=1e-4)
        made.load(project("tied") / "weights.safetensors")
        assert not torch.allclose(made.evaluate(x, wanted), seen[1], atol=1e-4)


def test_what_does_not_fit_is_a_status(tmp_path: Path) -> None:
    data, folder = case("tied").batches, project("tied")
    state = load_file(folder / "weights.safetensors")
    save_file({key: t for key, t in state.items() if key != "norm.bias"}, tmp_path / "fewer")
    with training("tied", folder=folder) as made, training("tied", folder=folder) as same:
        library, loss = made.library, c_float()
        assert library.load(made.handle, str(tmp_path / "fewer").encode()) == BAD_WEIGHTS
        assert "has no norm.bias" in library.error().decode()
        assert made.step(data[0], loss, rows=5) == BAD_CALL
        assert "no plan for a batch of 5; there are 3, 8" in library.error().decode()
        x = data[0].inputs[0]
        inputs, output = (c_void_p * 1)(x.data_ptr()), torch.empty(9, 5)
        outputs = (c_void_p * 1)(output.data_ptr())
        assert library.evaluate(made.handle, 9, inputs, outputs) == BAD_CALL
        assert library.read(made.handle, b"nothing", output.data_ptr(), 4) == BAD_CALL
        assert library.rate(made.handle, float("inf")) == BAD_CALL
        assert made(data[0]) == same(data[0])
    answer = run("tied", tmp_path / "made", status=2, STAND_IN_CAPABILITY="8")
    assert "tied was written for a stand-in (sm_90, 132 multiprocessors)" in answer.stderr


def enqueueing(made: Training, batch: Batch) -> float:
    """The loss of a step on the GPU's memory, which is the processor's here."""
    loss = torch.full((), torch.nan)
    made.require(made.enqueued(batch, loss, 0))
    return float(loss)
