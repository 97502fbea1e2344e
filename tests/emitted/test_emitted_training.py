"""A training step as C++: built by its README's commands, it makes the steps of the plan in Python,
bit for bit."""

from __future__ import annotations

import copy
from ctypes import byref, c_float, c_void_p
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

from golow.levels.called.project_building import missing
from golow.levels.called.training.emission import write_step
from golow.levels.called.training.training_step import TrainingStep
from golow.lower.capture.shared_tensors import first_names
from golow.records.errors import GolowError
from golow.workload.batch import Batch
from support.command import golow as command
from support.direct.emitted_projects import build, clean
from support.direct.emitted_trainings import (
    NAMES,
    SMALLER,
    Library,
    case,
    project,
    step_of,
    training,
)
from support.direct.training_steps import stepped

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        missing("onednn") is not None, reason="what builds a project is not installed"
    ),
]

BAD_FILE, BAD_WEIGHTS, BAD_CALL = 1, 2, 3


def stepping(step: TrainingStep, batch: Batch) -> float:
    return float(step(batch.inputs[0], *batch.targets))


@pytest.mark.parametrize("name", NAMES)
def test_the_program_trains_as_the_plan_does(name: str, tmp_path: Path) -> None:
    """Losses and state, in batches of two sizes; another learning rate is found to differ."""
    folder = project(name)
    files = [folder / f"{file}.safetensors" for file in ("weights", "example")]
    run = [str(folder / "build" / f"{name}_run"), *map(str, files), str(tmp_path / "made")]
    expect = ["--expect", str(folder / "expected.safetensors")]
    assert "equal bit for bit" in clean(*run, *expect).stdout
    clean("ctest", "--test-dir", str(folder / "build"))
    assert "different" in clean(*run, *expect, "--rate", "0.051", status=1).stdout
    clean(*run, "--epochs", "2")
    assert "--rate needs a number" in clean(*run, "--rate", "fast", status=2).stderr


def test_the_program_evaluates_and_a_planted_output_is_found(tmp_path: Path) -> None:
    folder, out = project("residual"), str(tmp_path / "out")
    files = [folder / f"{file}.safetensors" for file in ("weights", "example")]
    run = [str(folder / "build" / "residual_run"), *map(str, files), str(tmp_path / "made")]
    evaluate = ["--evaluate", str(files[1]), out]
    expected = load_file(folder / "expected.safetensors")
    clean(*run, *evaluate)
    found = load_file(out)
    assert sorted(found) == sorted(f"{k}/output" for k in range(len(case("residual").batches)))
    assert all(torch.equal(item, expected[key]) for key, item in found.items())
    expected["2/output"][0, 0] += 1
    save_file(expected, tmp_path / "planted")
    planted = ["--expect", str(tmp_path / "planted")]
    assert "different" in clean(*run, *evaluate, *planted, status=1).stdout
    clean(*run, *planted)  # without outputs there is nothing to compare
    assert "needs INPUTS and OUTPUTS" in clean(*run, "--evaluate", out, status=2).stderr


@pytest.mark.parametrize("name", NAMES)
def test_a_client_of_the_header_goes_on_where_python_stopped_and_back(
    name: str, tmp_path: Path
) -> None:
    batches = case(name).batches
    with step_of(name) as step, training(name) as made:
        for batch in batches:
            assert made(batch) == stepping(step, batch)
        made.set_rate(0.003)
        step.learning_rate = 0.003
        for batch in batches:
            assert made(batch) == stepping(step, batch)
        for key, item in step.state_dict().items():
            if not key.startswith("unused"):
                first = "words.weight" if key == "last.weight" and name == "tied" else key
                assert torch.equal(made.read(first, item), item), key
        made.save(tmp_path / "state")
        for batch in batches:
            stepping(step, batch)
        last = step.state_dict()
    with training(name, tmp_path / "state") as again:
        again.set_rate(0.003)
        for batch in batches:
            again(batch)
        again.save(tmp_path / "last")
    found = load_file(tmp_path / "last")
    assert all(torch.equal(found[key], item) for key, item in last.items())
    weights = {key: item for key, item in found.items() if "/" not in key}
    copy.deepcopy(case(name).module).load_state_dict(weights)  # as PyTorch has them


@pytest.mark.parametrize("name", NAMES)
def test_evaluation_has_the_weights_of_the_last_step(name: str, tmp_path: Path) -> None:
    """In a size that is planned, in one that is padded, after steps, and after another state."""
    batches = case(name).batches
    rows = [batch.inputs[0] for batch in batches[:3]] + [batches[0].inputs[0][:5]]
    with training(name) as made:
        seen = []
        for batch in (batches[0], batches[2]):
            made(batch)
            made.save(tmp_path / "state")
            own = copy.deepcopy(case(name).module).eval()
            own.load_state_dict(
                {k: t for k, t in load_file(tmp_path / "state").items() if "/" not in k}
            )
            for x in rows:
                wanted = own(x).detach()
                found = made.evaluate(x, wanted)
                assert torch.allclose(found, wanted, atol=1e-5, rtol=1e-4)
                assert torch.equal(found, made.evaluate(x, wanted))
            seen.append(made.evaluate(rows[0], own(rows[0]).detach()))
        assert not torch.equal(*seen)
        first = made.evaluate(rows[0], seen[0])
        made.load(project(name) / "weights.safetensors")
        assert not torch.equal(made.evaluate(rows[0], first), first)


def test_two_trainings_are_apart_and_a_state_is_loaded_again(tmp_path: Path) -> None:
    batches = case("lenet5").batches
    with training("lenet5") as one, training("lenet5") as other:
        losses = [one(batch) for batch in batches]
        assert [other(batch) for batch in batches] == losses
        one.load(project("lenet5") / "weights.safetensors")
        assert [one(batch) for batch in batches] == losses
        assert one.library.batch(0) == SMALLER
        assert [one.library.batch(number) for number in (1, 2, -1)] == [8, 0, 0]


# ---------------------------------------------------------------- what does not fit


def test_a_file_that_does_not_fit_changes_nothing(tmp_path: Path) -> None:
    library, state = Library("lenet5"), load_file(project("lenet5") / "weights.safetensors")
    name = next(iter(state))
    save_file({k: t for k, t in state.items() if k != name}, tmp_path / "fewer")
    save_file(state | {name: torch.zeros(1)}, tmp_path / "shape")
    save_file(state | {f"momentum/{name}": torch.zeros(1)}, tmp_path / "momentum")
    (tmp_path / "cut").write_bytes((project("lenet5") / "weights.safetensors").read_bytes()[:-5])
    batch = case("lenet5").batches[0]
    with training("lenet5") as made, training("lenet5") as same:
        for file, status, words in (
            ("fewer", BAD_WEIGHTS, f"has no {name}"),
            ("shape", BAD_WEIGHTS, f"{name} is 1; lenet5 has"),
            ("momentum", BAD_WEIGHTS, f"momentum/{name} is 1; lenet5 has"),
            ("cut", BAD_FILE, "cut"),
            ("none", BAD_FILE, "none"),
        ):
            handle = c_void_p(1)
            path = str(tmp_path / file).encode()
            assert library.create(path, byref(handle)) == status
            assert not handle.value
            assert made.library.load(made.handle, path) == status
            assert words in made.library.error().decode()
        assert made.library.save(made.handle, b"/no/folder/state") == BAD_FILE
        assert made(batch) == same(batch)


def test_a_call_that_does_not_fit_is_a_status() -> None:
    batch, loss = case("lenet5").batches[0], c_float()
    with training("lenet5") as made:
        library, handle = made.library, made.handle
        assert made.step(batch, loss, rows=5) == BAD_CALL
        assert "no plan for a batch of 5; there are 3, 8" in library.error().decode()
        nothing = (c_void_p * 1)(None)
        for given in (None, nothing):
            assert library.step(handle, 8, given, nothing, byref(loss)) == BAD_CALL
        assert library.step(None, 8, nothing, nothing, None) == BAD_CALL
        assert library.rate(handle, float("nan")) == BAD_CALL
        x = case("lenet5").batches[0].inputs[0]
        inputs, output = (c_void_p * 1)(x.data_ptr()), torch.empty(9, 10)
        assert library.evaluate(handle, 9, inputs, (c_void_p * 1)(output.data_ptr())) == BAD_CALL
        assert "a batch of 9 is not 1 to 8" in library.error().decode()
        assert library.evaluate(handle, 8, inputs, nothing) == BAD_CALL
        memory = torch.empty(10)
        assert library.read(handle, b"nothing", memory.data_ptr(), 40) == BAD_CALL
        assert "changes no nothing" in library.error().decode()
        name = next(iter(case("lenet5").module.state_dict())).encode()
        assert library.read(handle, name, memory.data_ptr(), 1) == BAD_CALL
        wrong = Batch(batch.inputs, (torch.full((8,), 99),))
        made.require(made.step(wrong, loss))
        assert loss.value != loss.value


def test_what_is_not_written_is_named(tmp_path: Path) -> None:
    module = nn.Sequential(nn.Linear(6, 16), nn.Dropout(0.5), nn.Linear(16, 5)).train()
    x, y, optimizer = torch.randn(8, 6), torch.arange(8) % 5, case("lenet5").optimizer
    batches, names = (Batch((x,), (y,)),), first_names(module)
    with stepped(module, optimizer, (x, y)) as step:
        said = "cannot be written as C\\+\\+: dropout of 1 draws random numbers"
        with pytest.raises(GolowError, match=said):
            write_step(step, batches, tmp_path / "made", "d", optimizer, (), names)
    assert not (tmp_path / "made").exists()


def test_the_command_writes_a_step_with_its_optimizer(tmp_path: Path) -> None:
    options = ["--mode", "train", "--level", "onednn", "--threads", "1", "--batch", "2"]
    ended = command(
        "emit", "lenet5", *options, "--optimizer", "adamw", "--out", str(tmp_path / "made")
    )
    assert ended.status == 0, ended.error
    build(tmp_path / "made")
    clean("ctest", "--test-dir", str(tmp_path / "made" / "build"))
    readme = (tmp_path / "made" / "README.md").read_text()
    assert "by AdamW, betas 0.9 and 0.999, weight decay 0.01" in readme
    assert "@" not in readme.replace("@media", "")
    assert "square/" in "".join(load_file(tmp_path / "made" / "expected.safetensors"))
