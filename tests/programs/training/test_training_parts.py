"""The parts of a training alone: plans, starts, files, progress, the table, the GPU's sampling."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import msgspec
import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional

import golow
from golow import cli
from golow.levels.level_selection import choices
from golow.models.initialise import initialise
from golow.programs.training import store as training_store
from golow.programs.training.bundle import TrainingBundles
from golow.programs.training.data import TrainingData, open_data
from golow.programs.training.plan import make_plan
from golow.programs.training.request import TrainingRequest
from golow.programs.training.training_record import TrainingPlan
from golow.records.errors import GolowError
from golow.workload.bundle import Bundle
from golow.workload.source import build_module
from support.records.drawn_trainings import epoch, run
from support.records.training_subjects import NORMED, PLAIN, digits


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> TrainingData:
    return digits(tmp_path_factory.mktemp("data"))


def planned(model: str | nn.Module, data: TrainingData, batch: int | None = 128) -> TrainingPlan:
    own = "default" if isinstance(model, str) and ":" not in model else "own"
    request = TrainingRequest(
        model=model,
        dataset="digits",
        epochs=2,
        seeds=[3, 4],
        batch=batch,
        initialisations=[own, "kaiming"],
        threads=1,
    )
    chosen = choices(["eager", "torchscript"], {}, "train", "cpu")
    return make_plan(request, data.facts, chosen)


# ---------------------------------------------------------------- where every level starts


@pytest.mark.slow
def test_bundles_are_on_the_data_sets_first_batches_and_end_with_a_smaller_one(
    data: TrainingData, tmp_path: Path
) -> None:
    bundles = TrainingBundles(planned("mlp", data), "mlp", data, tmp_path)
    assert bundles.notes == ()
    train, infer = bundles.train, bundles.infer
    assert (train.workload.mode, infer.workload.mode) == ("train", "infer")
    assert train.workload.inputs[0].shape == (128, 1, 8, 8)
    assert train.workload.source.arguments == {"in_channels": 1, "classes": 10, "resolution": 8}
    assert train.workload.data.startswith("digits: embedded")
    expected = data.batches(4, 128, 3)
    for bundle in (train, infer):
        batches = load_file(bundle.file("batches.safetensors"))
        assert torch.equal(batches["2/input/0"], expected[2].inputs[0])
        assert bundle.graph is not None
    assert train.last is not None
    assert train.last.workload.batch == 1437 % 128
    assert train.last.graph is not None
    assert infer.last is None
    weights = [Bundle(b.folder).file("weights.safetensors") for b in (train, train.last, infer)]
    assert len({file.read_bytes() for file in weights}) == 1


@pytest.mark.slow
def test_a_start_is_what_initialisation_and_seed_make_of_the_model(
    data: TrainingData, tmp_path: Path
) -> None:
    bundles = TrainingBundles(
        planned("lenet5", data=_large(data)), "lenet5", _large(data), tmp_path
    )
    digests = set()
    for name in ("default", "kaiming"):
        for seed in (3, 4):
            start = bundles.start(name, seed)
            module = build_module(bundles.workload.source)
            initialise(module, name, seed)
            state = load_file(start.state)
            assert set(state) == {f"parameter/{n}" for n in module.state_dict()}
            for parameter, tensor in module.state_dict().items():
                assert torch.equal(state[f"parameter/{parameter}"], tensor)
            assert start.workload.initialisation == f"{name}, seed {seed}"
            digests.add(start.workload.digest)
    assert len(digests) == 4
    assert bundles.start("default", 3).workload.digest in digests


def _large(data: TrainingData) -> TrainingData:
    """The digits in the size that LeNet-5 takes, without another library."""
    return open_data(
        "digits",
        "lenet5",
        root=None,
        resolution=None,
        sequence=None,
        voc_label="first",
        cache=data.train.parents[1],
        progress=lambda what, done, total: None,
    )


def test_the_moved_start_is_a_few_roundings_away(data: TrainingData, tmp_path: Path) -> None:
    bundles = TrainingBundles(planned(NORMED, data), NORMED, data, tmp_path)
    start = load_file(bundles.start("own", 3).state)
    moved = load_file(bundles.moved("own", 3))
    assert set(start) == set(moved)
    assert "buffer/1.running_var" in start
    weight = "parameter/2.weight"
    apart = (moved[weight] / start[weight] - 1).abs()
    assert 1e-7 < apart.max() < 1e-5
    assert torch.equal(load_file(bundles.start("own", 3).state)[weight], start[weight])


@pytest.mark.slow
@pytest.mark.parametrize(("batch", "hint"), [(718, "--batch 717"), (1436, "--batch 1435")])
def test_a_last_batch_of_one_is_refused_where_batch_norm_cannot_take_it(
    data: TrainingData, tmp_path: Path, batch: int, hint: str
) -> None:
    with pytest.raises(GolowError, match="batch norm cannot train on") as raised:
        TrainingBundles(planned(NORMED, data, batch), NORMED, data, tmp_path)
    assert hint in raised.value.hint
    TrainingBundles(planned(PLAIN, data, batch), PLAIN, data, tmp_path / "other")


class Draws(nn.Module):
    """The digits' classes, after dropout or with noise."""

    def __init__(self, drops: bool) -> None:
        super().__init__()
        self.drops, self.fc = drops, nn.Linear(64, 10)

    def forward(self, images: Tensor) -> Tensor:
        x = images.flatten(1)
        if self.drops:
            return self.fc(functional.dropout(x, 0.2, self.training))
        return self.fc(x + torch.randn_like(x))


def test_a_model_that_draws_is_refused_and_one_that_drops_is_not(
    data: TrainingData, tmp_path: Path
) -> None:
    with pytest.raises(GolowError, match="draws random numbers") as raised:
        TrainingBundles(planned(Draws(False), data), Draws(False), data, tmp_path)
    assert "golow compare can compare it" in raised.value.hint
    bundles = TrainingBundles(planned(Draws(True), data), Draws(True), data, tmp_path / "other")
    assert bundles.workload.random_layers == ("functional.dropout",)


def test_a_model_of_other_samples_is_told_what_the_data_set_has(
    data: TrainingData, tmp_path: Path
) -> None:
    module = nn.Sequential(nn.Conv2d(3, 2, 3), nn.Flatten())
    with pytest.raises(GolowError, match="does not accept an input of") as raised:
        TrainingBundles(planned(module, data), module, data, tmp_path)
    assert raised.value.hint.startswith("samples of ")
    assert "--input" not in raised.value.hint


def test_a_live_module_is_trained_and_not_forgotten(data: TrainingData, tmp_path: Path) -> None:
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    plan = planned(module, data)
    assert plan.live
    bundles = TrainingBundles(plan, module, data, tmp_path)
    start = load_file(bundles.start("own", 3).state)
    assert torch.equal(start["parameter/1.weight"], module[1].weight.detach())
    other = load_file(bundles.start("kaiming", 3).state)
    assert not torch.equal(other["parameter/1.weight"], module[1].weight.detach())


def test_batches_begin_again_where_there_are_too_few_samples(data: TrainingData) -> None:
    batches = data.batches(4, 1000, seed=0)
    assert [batch.inputs[0].shape[0] for batch in batches] == [1000] * 4
    first = data.batches(1, 1437, seed=0)[0]
    again = torch.cat([batch.inputs[0] for batch in batches])[1437 : 2 * 1437]
    assert torch.equal(again, first.inputs[0])
    assert abs(float(first.inputs[0].mean())) < 1e-3  # of the training set: mean 0, variance 1
    assert abs(float(first.inputs[0].std()) - 1) < 1e-3


# ---------------------------------------------------------------- plans and their mistakes


def test_the_batch_is_128_or_all(data: TrainingData) -> None:
    assert planned(NORMED, data, None).batch == 128
    few = data._replace(facts=msgspec.structs.replace(data.facts, train_samples=48))
    assert planned(NORMED, few, None).batch == 48
    with pytest.raises(GolowError, match="a batch of 49 is impossible with 48") as raised:
        planned(NORMED, few, 49)
    assert "1 to 48" in raised.value.hint


MISTAKES = [
    ([], "golow train needs a model"),
    (["lenet5"], "golow train needs a data set"),
    (["lenet5", "--dataset", "minst"], "there is no data set 'minst'"),
    (["lenet5", "--dataset", "digits", "--levels", "onnxruntime"], "for infer only"),
    (["lenet5", "--dataset", "digits", "--init", "magic"], "no initialisation 'magic'"),
    (["lenet5", "--dataset", "digits", "--epochs", "0"], "0 epochs train nothing"),
    (["unet", "--dataset", "digits"], "unet gives a class for each pixel"),
    (
        ["lenet5", "--dataset", "digits", "--seeds", "0"],
        "there is no seed to train with use --seeds 1",
    ),
    (["lenet5", "--dataset", "digits", "--seed", "-1"], "the seeds [-1] must be"),
    (["lenet5", "--dataset", "digits", "--seeds", "9" * 30], "seeds are too many"),
    (["lenet5", "--dataset", "digits", "--momentum", "nan"], "nan is not a finite number"),
    (["lenet5", "--dataset", "digits", "--warm-up", "10"], "use a --warm-up below --epochs"),
    (["lenet5", "--dataset", "digits", "--crop", "200"], "not 200 use --crop 4"),
    (["lenet5", "--dataset", "digits", "--batch", "5000"], "1 to 1437"),
    (["lenet5", "--dataset", "digits", "--device", "cuda", "--precision", "fp8"], "fp8"),
    (["lenet5", "--dataset", "digits", "--precision", "bf16"], "add --device cuda"),
    (["lenet5", "--dataset", "digits", "--out", "/dev/null/runs"], "--out"),
    (["lenet5", "--dataset", "digits", "--worker", "mine"], "NAME=COMMAND"),
    (["nowhere.py:Net", "--dataset", "digits"], "no file"),
    (["--resume", "nowhere"], "there is no training in nowhere"),
    (["lenet5", "--dataset", "digits", "--resume", "nowhere"], "leave out the model and --dataset"),
]


@pytest.mark.parametrize(("arguments", "said"), MISTAKES, ids=[" ".join(m[0]) for m in MISTAKES])
def test_a_mistake_is_explained_and_leaves_nothing_behind(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    data: TrainingData,
    tmp_path: Path,
    arguments: list[str],
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GOLOW_CACHE", str(data.train.parents[1]))
    monkeypatch.setattr(sys, "argv", ["golow", "train", *arguments])
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert end.value.code == 2
    error = capsys.readouterr().err
    assert said in " ".join(error.split())
    assert "Traceback" not in error
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_resuming_needs_the_same_data_and_the_live_module(
    data: TrainingData, tmp_path: Path
) -> None:
    plan = planned(NORMED, data)
    facts = msgspec.structs.replace(plan.dataset, train_checksum="00000000")
    _, folder = training_store.create(msgspec.structs.replace(plan, dataset=facts), tmp_path)
    with pytest.raises(GolowError, match="has changed since the training began"):
        golow.resume(folder, cache=data.train.parents[1])
    _, folder = training_store.create(planned(nn.Linear(1, 1), data), tmp_path)
    with pytest.raises(GolowError, match="module object in a running program"):
        golow.resume(folder)


# ---------------------------------------------------------------- files


def test_two_trainings_of_one_second_get_different_folders(
    data: TrainingData, tmp_path: Path
) -> None:
    plan = planned(NORMED, data)
    made = [training_store.create(plan, tmp_path) for _ in range(3)]
    assert len({folder for _, folder in made}) == 3
    for named, folder in made:
        assert named.id == folder.name
        assert training_store.read_plan(folder) == named


def test_nobody_else_trains_in_the_folder(data: TrainingData, tmp_path: Path) -> None:
    _, folder = training_store.create(planned(NORMED, data), tmp_path)
    code = (
        f"from pathlib import Path\nfrom golow.programs.training import store as s\n"
        f"with s.held(Path({str(folder)!r})): pass"
    )
    with training_store.held(folder):
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=False
        )
        assert "another golow is training in" in done.stderr
    with training_store.held(folder):  # it is free again
        pass


def test_a_newer_golows_training_and_a_damaged_one_are_refused(
    data: TrainingData, tmp_path: Path
) -> None:
    _, folder = training_store.create(planned(NORMED, data), tmp_path)
    file = folder / "plan.json"
    fields = json.loads(file.read_text())
    file.write_text(json.dumps(fields | {"format_version": 99}))
    with pytest.raises(GolowError, match="format version 99"):
        training_store.load(folder)
    for damaged in ({"epochs": "many"}, {"levels": []}, {"format_version": "one"}):
        file.write_text(json.dumps(fields | damaged))
        with pytest.raises(GolowError, match="is not a record of a training"):
            training_store.load(folder)
    file.write_text("{")
    with pytest.raises(GolowError, match="cannot be read"):
        training_store.load(folder)


def test_losses_that_are_no_numbers_come_back(tmp_path: Path) -> None:
    files = training_store.RunFolder(tmp_path, "eager:channels_last", "default", "seed-0")
    files.write(run("eager:channels_last"))
    files.add(epoch(1, (0.5, float("nan"), float("inf"))))
    assert files.path == tmp_path / "eager-channels_last" / "default" / "seed-0"
    read = files.read()
    assert read is not None
    np.testing.assert_array_equal(np.isfinite(read.epochs[0].losses), [True, False, False])
