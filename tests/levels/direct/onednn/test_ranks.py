"""`onednn` trains in several processes, which average their gradients in shared memory."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from golow.levels import ladder
from golow.levels.direct.onednn import level as onednn
from golow.records.errors import Unsupported
from golow.records.workload import Optimizer
from golow.storage.cache import open_cache
from golow.workload.prepare import Prepared
from support.direct.onednn_subjects import subject_of, written
from support.direct.rank_networks import (
    STEPS,
    assert_equal_parameters,
    assert_ranks_right,
    each_training,
    prepared,
)
from support.places import WORKERS
from support.workers.conversation import Conversation, Subject
from support.workers.rank_workers import rank_workers

pytestmark = [
    pytest.mark.skipif(not onednn.probe().available, reason="oneDNN is not installed"),
    pytest.mark.usefixtures("forked"),
]


def outputs(worker: Conversation) -> dict[str, np.ndarray]:
    rate = worker.subject.bundle.workload.optimizer.learning_rate
    found = worker.outputs(*range(STEPS), learning_rate=rate)
    return {name: array.astype(np.float32) for name, array in found.items()}


@each_training
def test_gradients_are_the_means_of_all_ranks(
    network: str, optimizer: Optimizer, tmp_path: Path
) -> None:
    workload = prepared(network, optimizer)
    bundle = written(workload, tmp_path / "bundle")
    with rank_workers(subject_of(bundle, open_cache())) as ranks:
        ranks.together(Conversation.load)
        found = ranks.together(outputs)
        assert_ranks_right(workload, found)
        for _ in range(3):
            ranks.ask(do="time", iterations=5, warmup=0)
        after = ranks.together(Conversation.result)
        named = [{f"0/{name}": array for name, array in one.items()} for one in after]
        assert_equal_parameters(named)


def faulty(fault: str, tmp_path: Path, network: str = "lenet") -> tuple[Prepared, Subject]:
    """A subject whose rank 1 makes a mistake."""
    workload = prepared(network)
    subject = subject_of(written(workload, tmp_path / "bundle"), open_cache())
    command = (sys.executable, str(WORKERS / "faulty_ranks.py"), fault, subject.command[-1])
    return workload, subject._replace(command=command)


@pytest.mark.parametrize("fault", ["skips", pytest.param("sums", marks=pytest.mark.slow)])
def test_a_rank_that_averages_wrongly_is_found(fault: str, tmp_path: Path) -> None:
    workload, subject = faulty(fault, tmp_path)
    with rank_workers(subject) as ranks:
        ranks.together(Conversation.load)
        found = ranks.together(outputs)
    with pytest.raises(AssertionError, match="from float64"):
        assert_ranks_right(workload, found)
    with pytest.raises(AssertionError, match="differs between ranks"):
        assert_equal_parameters(found)


def test_the_called_variant_trains_in_one_process(tmp_path: Path) -> None:
    """Instead of in several that know nothing of one another."""
    bundle = written(prepared("lenet"), tmp_path / "bundle")
    chosen = ladder.choose("onednn:called", "train", "cpu", 2)
    with pytest.raises(Unsupported, match="called trains in one process"):
        chosen.prepare(bundle, tmp_path / "cache")


@pytest.mark.slow
def test_a_rank_that_sees_the_samples_of_another_one_is_found(tmp_path: Path) -> None:
    workload = prepared("lenet")
    bundle = written(workload, tmp_path / "bundle")
    twice = bundle.of_rank(1).file("batches.safetensors")
    twice.unlink()
    shutil.copy(bundle.file("batches.safetensors"), twice)
    with rank_workers(subject_of(bundle, open_cache())) as ranks:
        ranks.together(Conversation.load)
        found = ranks.together(outputs)
    assert_equal_parameters(found)
    with pytest.raises(AssertionError, match="from float64"):
        assert_ranks_right(workload, found)


def test_a_rank_that_ends_stops_the_others_in_words(tmp_path: Path) -> None:
    _, subject = faulty("ends", tmp_path)
    with rank_workers(subject) as ranks:
        ranks.together(Conversation.load)
        first, other = ranks.workers
        other.process.stdin.write(b'{"do": "time", "iterations": 1, "warmup": 0}\n')  # type: ignore[union-attr]
        other.process.stdin.flush()  # type: ignore[union-attr]
        answer = first.ask(do="time", iterations=1, warmup=0)
    assert not answer["ok"]
    assert "rank 1 of 2 has ended, and rank 0 waited for it" in str(answer)
