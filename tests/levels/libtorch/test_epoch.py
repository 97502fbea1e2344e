"""Whole epochs in the C++ worker: losses, state and outputs are plain PyTorch's, bit by bit."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import Tensor

from golow.levels.libtorch.level import prepare as prepare_level
from golow.records.errors import WorkerFailure
from golow.worker.client import Worker
from golow.workload.bundle import Bundle
from support.examples import examples
from support.one_run import program_cache
from support.workers.libtorch_epochs import (
    BATCH,
    DEVICES,
    RATES,
    ROWS,
    SCALE,
    SHAPE,
    SHIFT,
    Built,
    Eager,
    Files,
    bundle_of,
    checksum_of,
    files_in,
    normalised,
)

# ---------------------------------------------------------------- one network, built once


@pytest.fixture(scope="module", params=DEVICES)
def built(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Built:
    folder = tmp_path_factory.mktemp("epoch")
    cache = program_cache(tmp_path_factory.getbasetemp())
    torch.set_num_threads(1)
    training = bundle_of(folder / "train", "train", BATCH, request.param)
    bundle_of(folder / "train", "train", ROWS % BATCH, request.param, whole=training)
    training = Bundle(training.folder)
    inference = bundle_of(folder / "infer", "infer", BATCH, request.param)
    commands = [prepare_level(bundle, "", cache).command for bundle in (training, inference)]
    return Built(training, inference, commands[0], commands[1], files_in(folder))


# ---------------------------------------------------------------- the C++ worker


def train(worker: Worker, files: Files, epoch: int, *pieces: int) -> tuple[list[float], int]:
    """One epoch, in pieces of so many batches; the losses and the last checksum."""
    losses: list[float | None] = []
    checksum = 0
    for count in pieces or (len(RATES),):
        first = len(losses)
        report = worker.epoch(
            files.data,
            files.orders[epoch],
            RATES[first : first + count],
            scale=SCALE,
            shift=SHIFT,
            first=first,
            checksum=checksum,
        )
        assert report.nanoseconds > 0
        losses += report.losses
        checksum = report.checksum
    assert None not in losses
    return [loss for loss in losses if loss is not None], checksum


def state_of(worker: Worker, folder: Path) -> dict[str, Tensor]:
    worker.save(folder / "state.safetensors")
    return loaded(folder / "state.safetensors")


def loaded(file: Path) -> dict[str, Tensor]:
    """Copies: what the library reads is mapped, and changes with the file."""
    return {name: tensor.clone() for name, tensor in load_file(file).items()}


def assert_same(found: dict[str, Tensor], expected: dict[str, Tensor], device: str) -> None:
    """Bit by bit on a CPU; a GPU adds up in another order."""
    assert sorted(found) == sorted(expected)
    tolerance = 0.0 if device == "cpu" else 2e-3
    for name, tensor in expected.items():
        assert found[name].dtype == tensor.dtype
        torch.testing.assert_close(
            found[name], tensor, rtol=tolerance, atol=tolerance, msg=lambda m, n=name: f"{n}: {m}"
        )


def assert_same_losses(found: list[float], expected: list[float], device: str) -> None:
    assert found == (expected if device == "cpu" else pytest.approx(expected, rel=2e-3))


@pytest.mark.slow
def test_epochs_are_eagers(built: Built, tmp_path: Path) -> None:
    eager, device = Eager(built.training), built.training.workload.device
    with built.worker() as worker:
        for epoch in range(4):
            losses, checksum = train(worker, built.files, epoch)
            assert_same_losses(losses, eager.train(built.files, epoch), device)
            assert checksum == checksum_of(built.files, epoch)
            assert_same(state_of(worker, tmp_path), eager.state(), device)
        worker.load(built.training.folder)
        state = state_of(worker, tmp_path)
    weights = load_file(built.training.file("weights.safetensors"))
    assert_same({name.partition("/")[2]: tensor for name, tensor in state.items()}, weights, "cpu")


@pytest.mark.slow
@pytest.mark.parametrize("pieces", [(1, 1, 1, 1), (3, 1), (2, 2)])
def test_an_epoch_in_pieces_is_the_whole_epoch(
    built: Built, tmp_path: Path, pieces: tuple[int, ...]
) -> None:
    found = []
    with built.worker() as worker:
        for count in ((), pieces):
            worker.load(built.training.folder)
            losses, checksum = train(worker, built.files, 1, *count)
            found.append((losses, checksum, state_of(worker, tmp_path)))
    device = built.training.workload.device
    assert_same_losses(found[1][0], found[0][0], device)
    assert found[1][1] == found[0][1]
    assert_same(found[1][2], found[0][2], device)


@pytest.mark.slow
def test_another_worker_goes_on_from_a_saved_state(built: Built, tmp_path: Path) -> None:
    kept, device = tmp_path / "kept.safetensors", built.training.workload.device
    with built.worker() as worker:
        train(worker, built.files, 0)
        worker.save(kept)
        losses, _ = train(worker, built.files, 1)
        expected = state_of(worker, tmp_path)
    with built.worker() as worker:
        worker.restore(kept)
        assert_same(state_of(worker, tmp_path), load_file(kept), "cpu")
        assert_same_losses(train(worker, built.files, 1)[0], losses, device)
        assert_same(state_of(worker, tmp_path), expected, device)
        without = {k: t for k, t in loaded(kept).items() if not k.startswith("momentum/")}
        save_file(without, kept)
        worker.restore(kept)
        assert_same(state_of(worker, tmp_path), without, "cpu")
        assert train(worker, built.files, 1)[0] != pytest.approx(losses, rel=2e-3)


@pytest.mark.slow
def test_momentum_that_is_missing_is_zero(built: Built, tmp_path: Path) -> None:
    kept, device = tmp_path / "kept.safetensors", built.training.workload.device
    with built.worker() as worker:
        train(worker, built.files, 0)
        worker.save(kept)
        state = loaded(kept)
        zero = state | {"momentum/fc.weight": torch.zeros_like(state["momentum/fc.weight"])}
        missing = {k: t for k, t in state.items() if k != "momentum/fc.weight"}
        found = []
        for given in (zero, missing):
            save_file(given, kept)
            worker.restore(kept)
            found.append((train(worker, built.files, 1)[0], state_of(worker, tmp_path)))
    assert_same_losses(found[1][0], found[0][0], device)
    assert_same(found[1][1], found[0][1], device)


@pytest.mark.slow
@pytest.mark.parametrize("pieces", [(4,), (1, 3)])
def test_predictions_are_eagers(built: Built, tmp_path: Path, pieces: tuple[int, ...]) -> None:
    device = built.training.workload.device
    with built.worker() as worker:
        train(worker, built.files, 0)
        worker.save(tmp_path / "state.safetensors")
    outputs = []
    with built.worker("infer") as worker:
        worker.restore(tmp_path / "state.safetensors")
        for index, count in enumerate(pieces):
            file, first = tmp_path / f"output-{index}.safetensors", sum(pieces[:index])
            report = worker.predict(
                built.files.data, file, first=first, batches=count, scale=SCALE, shift=SHIFT
            )
            assert report.nanoseconds > 0
            outputs.append(load_file(file)["output"])
    eager = Eager(built.training)
    eager.train(built.files, 0)
    eager.module.eval()
    with torch.inference_mode():
        inputs = normalised(load_file(built.files.data)["images"]).split(BATCH)
        expected = torch.cat([eager.module(part) for part in inputs])
    assert [len(output) for output in outputs] == ([29] if len(pieces) == 1 else [8, 21])
    found = torch.cat(outputs)
    if device == "cpu":
        assert torch.equal(found[:24], expected[:24])
    # Eager's last batch is smaller, and may be added up in another order.
    tolerance = 1e-5 if device == "cpu" else 2e-3
    torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


@pytest.mark.slow
def test_an_order_that_is_off_by_one_is_seen(built: Built, tmp_path: Path) -> None:
    shifted = tmp_path / "order.safetensors"
    rows = load_file(built.files.orders[0])["rows"]
    save_file({"rows": rows.roll(1)}, shifted)
    with built.worker() as worker:
        losses, checksum = train(worker, Files(built.files.data, [shifted]), 0)
    assert losses != Eager(built.training).train(built.files, 0)
    assert checksum != checksum_of(built.files, 0)


# ---------------------------------------------------------------- what is refused


def without(name: str) -> Any:
    return lambda tensors: {k: t for k, t in tensors.items() if k != name}


def changed(name: str, tensor: Tensor) -> Any:
    return lambda tensors: tensors | {name: tensor}


LONG = torch.zeros(ROWS, dtype=torch.int64)
REFUSED = [
    ("data", without("labels"), "has no tensor labels"),
    ("data", changed("labels", LONG.int()), "labels is not Long of 1 dimensions"),
    ("data", changed("labels", LONG[1:]), "29 images and 28 labels"),
    ("data", changed("images", torch.zeros(ROWS, *SHAPE)), "images is not Byte of 4"),
    ("data", changed("images", torch.zeros(ROWS, 3, 9, 9).byte()), "3x9x9, .* takes 3x16x16"),
    ("order", without("rows"), "has no tensor rows"),
    ("order", changed("rows", LONG + ROWS), "names row 29, .* has 29"),
    ("order", changed("rows", LONG - 1), "names row -1"),
    ("order", changed("rows", LONG.int()), "rows is not Long"),
    ("order", changed("rows", LONG[:20]), "29x2, but its rows need 20x2"),
    ("order", changed("flips", LONG[1:].byte()), "28, but its rows need 29"),
    ("order", lambda _: {"rows": LONG[:20]}, "4 batches .*, there are 3"),
    ("order", lambda _: {"rows": LONG[:28]}, "last batch has 4 rows"),
]


@pytest.fixture(scope="module")
def one_worker(built: Built) -> Iterator[Worker]:
    """One process for all that is refused: nothing of it may end it."""
    with built.worker() as worker:
        yield worker
        assert worker.allocated_peak() is not None


class Answers(NamedTuple):
    """Raw requests to a worker of the client, which would end it at the first refusal."""

    worker: Worker

    def refusal(self, **request: Any) -> str:
        """The message of a request that fails."""
        answer = self.worker.answer(request, 60)
        assert answer["ok"] is False
        assert answer["error"] == "failed"
        return str(answer["message"])


def epoch_request(files: Files, **fields: Any) -> dict[str, Any]:
    asked = {"data": str(files.data), "order": str(files.orders[1]), "first": 0}
    more = {"rates": RATES, "scale": SCALE, "shift": SHIFT, "checksum": 0}
    return {"do": "epoch", **asked, **more, **fields}


@pytest.mark.parametrize(("which", "change", "reason"), REFUSED, ids=[r[2] for r in REFUSED])
def test_files_that_do_not_fit_are_refused_before_the_first_step(
    built: Built, one_worker: Worker, tmp_path: Path, which: str, change: Any, reason: str
) -> None:
    before = state_of(one_worker, tmp_path)
    file = tmp_path / "changed.safetensors"
    files = {"data": built.files.data, "order": built.files.orders[1]}
    save_file(change(load_file(files[which])), file)
    message = Answers(one_worker).refusal(**epoch_request(built.files, **{which: str(file)}))
    assert re.search(reason, message), message
    assert_same(state_of(one_worker, tmp_path), before, "cpu")


def test_a_file_that_is_cut_off_is_refused(
    built: Built, one_worker: Worker, tmp_path: Path
) -> None:
    for source, which in ((built.files.data, "data"), (built.files.orders[1], "order")):
        file = tmp_path / f"{which}.safetensors"
        file.write_bytes(source.read_bytes()[:-1])
        message = Answers(one_worker).refusal(**epoch_request(built.files, **{which: str(file)}))
        assert message == f"{file}: the file is not as long as its header states"
        gone = epoch_request(built.files, **{which: str(tmp_path / "none")})
        assert Answers(one_worker).refusal(**gone) == f"{tmp_path / 'none'} cannot be opened"


@examples(150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(["data", "order"]), st.integers(0, 400), st.integers(0, 255))
def test_a_flipped_byte_of_a_header_never_ends_the_worker(
    built: Built, one_worker: Worker, tmp_path: Path, which: str, position: int, byte: int
) -> None:
    whole = (built.files.data if which == "data" else built.files.orders[1]).read_bytes()
    index = position % (8 + int.from_bytes(whole[:8], "little"))
    file = tmp_path / "flipped.safetensors"
    file.write_bytes(whole[:index] + bytes([byte]) + whole[index + 1 :])
    request = epoch_request(built.files, rates=RATES[:1], **{which: str(file)})
    answer = one_worker.answer(request, 60)
    assert answer["ok"] or answer["error"] == "failed"


@pytest.mark.parametrize(
    "fields",
    [
        {"first": -1},
        {"first": 1},
        {"first": 2**62},
        {"rates": []},
        {"rates": [0.1] * 5},
        {"rates": ["fast"]},
        {"scale": SCALE[:2]},
        {"shift": [*SHIFT, 0.0]},
        {"checksum": -1},
        {"checksum": 2**32},
        {"data": 7},
    ],
    ids=str,
)
def test_requests_that_make_no_sense_are_refused(
    built: Built, one_worker: Worker, tmp_path: Path, fields: dict[str, Any]
) -> None:
    before = state_of(one_worker, tmp_path)
    assert Answers(one_worker).refusal(**epoch_request(built.files, **fields))
    assert_same(state_of(one_worker, tmp_path), before, "cpu")


@pytest.mark.slow
def test_each_mode_has_its_own_requests(built: Built, one_worker: Worker, tmp_path: Path) -> None:
    asked = {"data": str(built.files.data), "first": 0, "batches": 1, "scale": SCALE}
    predict = {"do": "predict", **asked, "shift": SHIFT, "file": str(tmp_path / "o")}
    assert "needs infer" in Answers(one_worker).refusal(**predict)
    with built.worker("infer") as worker:
        assert "needs train" in Answers(worker).refusal(**epoch_request(built.files))
        assert "needs train" in Answers(worker).refusal(do="save", file=str(tmp_path / "s"))
        for fields in ({"batches": 0}, {"batches": 5}, {"first": 4}, {"file": "/no/such/folder/x"}):
            assert Answers(worker).refusal(**{**predict, **fields})
        assert worker.answer(predict, 60)["ok"]


def test_a_state_that_does_not_fit_changes_nothing(
    built: Built, one_worker: Worker, tmp_path: Path
) -> None:
    before = state_of(one_worker, tmp_path)
    file = tmp_path / "other.safetensors"
    moved = {name: tensor + 1 for name, tensor in before.items()}
    for change, reason in (
        (without("buffer/bn2.running_var"), "has no tensor buffer/bn2.running_var"),
        (changed("parameter/fc.bias", torch.zeros(9)), "fc.bias is not of the program's shape"),
        (changed("momentum/fc.bias", torch.zeros(10).double()), "fc.bias is not of the program's"),
    ):
        save_file(change(moved), file)
        assert reason in Answers(one_worker).refusal(do="restore", file=str(file))
        assert_same(state_of(one_worker, tmp_path), before, "cpu")


def test_a_batch_without_a_step_in_the_bundle_is_refused(built: Built, tmp_path: Path) -> None:
    folder = tmp_path / "bundle"
    shutil.copytree(built.training.folder, folder, ignore=shutil.ignore_patterns("last"))
    with built.worker() as worker:
        worker.load(folder)
        message = Answers(worker).refusal(**epoch_request(built.files))
        assert "last batch has 5 rows, but the bundle has no step" in message
        assert worker.answer(epoch_request(built.files, rates=[0.1] * 3), 60)["ok"]
        with pytest.raises(WorkerFailure, match="last batch has 5 rows"):
            train(worker, built.files, 0)
