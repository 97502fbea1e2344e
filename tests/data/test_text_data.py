"""The embedded text: its samples, its prepared file, and training on it."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file
from torch import nn

import golow
from golow.data import text
from golow.data.prepare import prepare_dataset
from golow.data.token_file import open_prepared, open_tokens
from golow.data.verify import verify_prepared
from golow.levels.torch import device_feed as torch_feed
from golow.models.llama import Llama, LlamaSizes
from golow.programs.training.evaluation import evaluate
from golow.records.errors import GolowError
from golow.records.workload import Optimizer
from golow.worker.feed import Feed, augmented, normalised, padded
from support.examples import examples

pytestmark = pytest.mark.usefixtures("forked")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ...]:
    return prepare_dataset("text", None, None, tmp_path_factory.mktemp("cache"), sequence=32)


# ---------------------------------------------------------------- samples


@given(st.binary(min_size=2, max_size=300), st.integers(1, 40))
@examples(100)
def test_each_target_is_the_byte_after_its_token(given: bytes, sequence: int) -> None:
    if len(given) <= sequence:
        with pytest.raises(GolowError, match=f"no sequences of {sequence}"):
            text.windows(given, sequence)
        return
    tokens, targets = text.windows(given, sequence)
    assert tokens.shape == targets.shape == ((len(given) - 1) // sequence, sequence)
    flat = tokens.ravel()
    assert bytes(flat.tolist()) == given[: flat.size]
    assert bytes(targets.ravel().tolist()) == given[1 : flat.size + 1]


def test_parts_do_not_overlap_and_are_the_text() -> None:
    whole = text.load()
    parts = [bytes(text.samples(part, 100)[0].ravel().tolist()) for part in ("train", "test")]
    assert whole.startswith(parts[0])
    assert whole[text.TRAINING :].startswith(parts[1])
    assert [len(text.samples(p, 100)[0]) for p in ("train", "test")] == [
        text.count(p, 100) for p in ("train", "test")
    ]
    assert b"First Citizen:" in parts[0]


def test_a_changed_text_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changed = tmp_path / "shakespeare.txt"
    changed.write_bytes(text.load().replace(b"Citizen", b"Netizen", 1))
    monkeypatch.setattr(text, "FILE", changed)
    with pytest.raises(GolowError, match="is damaged: its sha256 is"):
        text.load()
    changed.unlink()
    with pytest.raises(GolowError, match="is damaged: No such file"):
        text.load()


# ---------------------------------------------------------------- the prepared file


def test_the_prepared_file(files: tuple[Path, ...]) -> None:
    train = open_tokens(files[0], verify=True)
    tokens, targets = text.samples("train", 32)
    assert np.array_equal(train.tokens, tokens)
    assert np.array_equal(train.labels, targets)
    assert (len(train.facts.classes), train.facts.classes[10]) == (256, "\\n")
    assert "public domain" in train.facts.source
    assert open_prepared(files[1]).facts.part == "test"
    before = files[0].stat().st_mtime_ns
    cache = files[0].parents[1]
    assert prepare_dataset("text", None, None, cache, sequence=32) == files
    assert files[0].stat().st_mtime_ns == before
    assert all(not finding.wrong for finding in verify_prepared(cache))


@pytest.mark.parametrize("name", ["tokens", "labels"])
def test_a_damaged_file_is_refused(files: tuple[Path, ...], tmp_path: Path, name: str) -> None:
    with pytest.raises(GolowError, match="not a prepared data set"):
        open_tokens(tmp_path / "none.safetensors")
    tensors = load_file(files[0])
    tensors[name] = tensors[name] + 250
    save_file(tensors, tmp_path / "changed.safetensors", {"classes": '["a"]'})
    with pytest.raises(GolowError, match="not a prepared data set"):
        open_tokens(tmp_path / "changed.safetensors")
    data = bytearray(files[0].read_bytes())
    data[-8] ^= 1  # the last token becomes another one of the vocabulary
    (tmp_path / "flipped.safetensors").write_bytes(data)
    with pytest.raises(GolowError, match="its checksum is"):
        open_prepared(tmp_path / "flipped.safetensors", verify=True)


def test_tokens_go_through_the_feed_as_they_are(files: tuple[Path, ...]) -> None:
    tokens, targets = text.samples("test", 32)
    feed = Feed(files[1], batch=100, batches=8, scale=(), shift=())
    assert feed.sizes == (100,) * 7 + (len(tokens) - 700,)
    found = list(feed)
    whole = np.concatenate([normalised(augmented(fed), feed.scale, feed.shift) for fed in found])
    assert whole.dtype == np.int64
    assert np.array_equal(whole, tokens)
    assert np.array_equal(np.concatenate([fed.labels for fed in found]), targets)
    last = padded(found[-1].pixels, 100)
    assert len(last) == 100
    assert (last[len(tokens) - 700 :] == tokens[-1]).all()
    given = torch_feed.batches(
        Feed(files[1], batch=100, batches=8, scale=(), shift=()), torch.device("cpu"), least=100
    )
    assert [tuple(inputs.shape) for inputs, _ in given] == [(100, 32)] * 8
    with pytest.raises(GolowError, match="scale and shift need one number per channel"):
        Feed(files[1], batch=4, batches=1, scale=(1.0,), shift=(0.0,))


@pytest.mark.parametrize(
    ("model", "dataset", "options", "message"),
    [
        ("lenet5", "text", {}, "lenet5 takes square images; text has one run of tokens"),
        ("bert_base", "text", {}, "bert_base takes tokens .*, mask"),
        ("llama_tiny", "digits", {}, "llama_tiny takes no images, and digits has images"),
        ("llama_tiny", "text", {"sequence": 2000}, "takes at most 1024 tokens, not 2000"),
        ("llama_tiny", "text", {"resolution": 32}, "text is a text and has no resolution"),
        ("lenet5", "digits", {"sequence": 32}, "digits has images, not sequences"),
        ("lstm", "text", {"sequence": 10**6}, "no sequences of 1000000"),
        (
            "llama_tiny",
            "text",
            {"augmentation": golow.Augmentation(flip=True)},
            "text is a text",
        ),
    ],
)
def test_what_does_not_fit_is_refused(
    model: str, dataset: str, options: dict[str, object], message: str, tmp_path: Path
) -> None:
    with pytest.raises(GolowError, match=message) as raised:
        golow.train(
            model, dataset=dataset, levels=["eager"], out=tmp_path, cache=tmp_path, **options
        )
    assert raised.value.hint


# ---------------------------------------------------------------- training


def test_accuracy_is_that_of_tokens() -> None:
    labels = np.array([[0, 1, 2], [2, 2, 0]])
    outputs = np.eye(3, dtype=np.float32)[labels] * 9
    outputs[1, 1] = (9, 0, 0)
    found = evaluate(outputs, labels, 3)
    assert found.accuracy == 5 / 6
    assert found.confusion == ((2, 0, 0), (0, 1, 0), (1, 0, 2))
    with pytest.raises(ValueError, match="for 2 sequences of 3 tokens of 4 classes"):
        evaluate(outputs, labels, 4)
    with pytest.raises(ValueError, match="one score per class and token"):
        evaluate(outputs[:, 0], labels, 3)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> golow.TrainingResult:
    torch.manual_seed(0)
    module: nn.Module = Llama(LlamaSizes(256, 64, 16, 32, 1, 4, 2))
    return golow.train(
        module,
        dataset="text",
        levels=["eager", "torchscript", "libtorch"],
        epochs=2,
        sequence=64,
        batch=500,
        threads=1,
        optimizer=Optimizer(learning_rate=0.5),
        out=tmp_path_factory.mktemp("runs"),
    )


@pytest.mark.whole_network
def test_the_loss_falls_alike_at_every_level(trained: golow.TrainingResult) -> None:
    assert trained.good
    runs = trained.training.runs
    assert [run.level for run in runs] == ["eager", "torchscript", "libtorch"]
    for run in runs:
        losses = [loss for epoch in run.epochs for loss in epoch.losses]
        assert len(losses) == 2 * 7
        assert losses[-1] < losses[0] - 1
        assert run.epochs[-1].eval_accuracy > 0.1  # of 256 bytes; the most frequent has 15%
    words = {verdict.level: verdict.word for verdict in trained.training.verdicts}
    assert words == {"torchscript": "same", "libtorch": "same"}
    checksums = [{epoch.checksum for epoch in run.epochs} for run in runs]
    assert all(one == other for one, other in pairwise(checksums))


@pytest.mark.whole_network
def test_the_table_speaks_of_sequences(
    trained: golow.TrainingResult, capsys: pytest.CaptureFixture[str]
) -> None:
    trained.table()
    assert "3,374 training and 374 test sequences of 64 tokens" in capsys.readouterr().out
