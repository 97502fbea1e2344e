"""Training in several ranks is compared with one process in float64: errors of ranks, and
planted faults, each of which is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch.nn import functional

from golow.check.reference import Standard
from golow.levels import ladder
from golow.levels.starter import Starter
from golow.records.workload import Optimizer
from golow.worker.client import Worker
from golow.workload.bundle import Bundle
from support.workers.ranked_bundles import (
    QUICK,
    RANKS,
    Small,
    Unused,
    checked,
    planted,
    ranked_bundle,
    standard_of_ranks,
)

pytestmark = pytest.mark.usefixtures("forked")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("ranks")


@pytest.fixture(scope="module")
def bundle(folder: Path) -> Bundle:
    return ranked_bundle(folder)


@pytest.fixture(scope="module")
def standard(
    bundle: Bundle, folder: Path, request: pytest.FixtureRequest
) -> Iterator[tuple[Standard, Starter]]:
    request.getfixturevalue("forked")
    with standard_of_ranks(bundle, folder) as found:
        yield found


@pytest.mark.parametrize("level", ["ddp", "fsdp"])
def test_levels_of_ranks_match(
    level: str, bundle: Bundle, folder: Path, standard: tuple[Standard, Starter]
) -> None:
    choice = ladder.choose(level, "train", "cpu", RANKS)
    with checked(choice, bundle, folder, *standard) as found:
        assert found.check.verdict == "match", found.check.words + found.log
        names = {tensor.name for tensor in found.check.tensors}
    assert {"0/loss/rank 1/loss", "1/buffer/rank 1/blocks.1.running_mean"} <= names
    assert {"0/gradient/head.weight", "1/momentum/head.weight"} <= names


def test_the_plants_are_right_without_their_faults(
    bundle: Bundle, folder: Path, standard: tuple[Standard, Starter]
) -> None:
    with checked(planted("none"), bundle, folder, *standard) as found:
        assert found.check.verdict == "match", found.check.words + found.log


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        ("skips", "ranks 0 and 1 do not hold the same bits of 0/gradient/"),
        ("sums", "is off by"),
        ("one-bit", "ranks 0 and 1 do not hold the same bits of 0/gradient/"),
        ("same-samples", "is off by"),
        ("skips-while-timed", "ranks 0 and 1 do not hold the same bits of momentum/"),
    ],
)
def test_a_fault_of_one_rank_is_refused(
    fault: str, said: str, bundle: Bundle, folder: Path, standard: tuple[Standard, Starter]
) -> None:
    with checked(planted(fault), bundle, folder, *standard) as found:
        assert found.check.verdict == "differs", found.check.words + found.log
        assert said in found.check.words


def test_ranks_that_drop_the_same_elements_are_refused(tmp_path: Path) -> None:
    bundle = ranked_bundle(tmp_path, Small(dropout=0.5))
    with standard_of_ranks(bundle, tmp_path) as (standard, starter):
        with checked(planted("none"), bundle, tmp_path, standard, starter) as found:
            assert found.check.verdict == "match", found.check.words + found.log
        with checked(planted("same-seed"), bundle, tmp_path, standard, starter) as found:
            assert found.check.verdict == "differs", found.check.words + found.log
            assert "rank 1 drops the same elements" in found.check.words


@pytest.mark.slow
@pytest.mark.parametrize("level", ["ddp", "fsdp"])
def test_gradients_are_clipped_once_they_are_reduced(level: str, tmp_path: Path) -> None:
    """And three ranks are not two; Adam counts its steps."""
    adamw = Optimizer("adamw", learning_rate=0.01, clip=0.1)
    bundle = ranked_bundle(tmp_path, optimizer=adamw, ranks=3)
    choice = ladder.choose(level, "train", "cpu", 3)
    with (
        standard_of_ranks(bundle, tmp_path) as (standard, starter),
        checked(choice, bundle, tmp_path, standard, starter) as found,
    ):
        assert found.check.verdict == "match", found.check.words + found.log
        assert "1/steps/steps" in {tensor.name for tensor in found.check.tensors}


def test_parameters_without_gradients_are_left_alone(tmp_path: Path) -> None:
    bundle = ranked_bundle(tmp_path, Unused())
    choice = ladder.choose("ddp", "train", "cpu", RANKS)
    with (
        standard_of_ranks(bundle, tmp_path) as (standard, starter),
        checked(choice, bundle, tmp_path, standard, starter) as found,
    ):
        assert found.check.verdict == "match", found.check.words + found.log


def test_the_reference_is_the_mean_of_the_ranks_gradients(bundle: Bundle, tmp_path: Path) -> None:
    """By autograd alone, from each rank's samples."""
    state = load_file(bundle.file("weights.safetensors"))
    gradients, losses, statistics = [], [], []
    for rank in range(RANKS):
        module = Small().double().train()
        module.load_state_dict(state)
        batches = load_file(bundle.of_rank(rank).file("batches.safetensors"))
        output = module(batches["0/input/0"].double())
        loss = functional.cross_entropy(output, batches["0/target/0"])
        loss.backward()  # type: ignore[no-untyped-call]
        gradients.append([p.grad for p in module.parameters()])
        losses.append(loss.detach())
        statistics.append(module.blocks[1].running_mean)
    file = tmp_path / "expected"
    launch = ladder.choose(ladder.REFERENCE, "train").prepare(bundle, tmp_path)
    with Worker("reference", launch.command, threads=1, limits=QUICK) as worker:
        worker.load(bundle.folder)
        worker.outputs([0], 0.05, file)
    found = load_file(file)
    for name, *each in zip(dict(Small().named_parameters()), *gradients, strict=True):
        torch.testing.assert_close(found[f"0/gradient/{name}"], sum(each) / RANKS)
    torch.testing.assert_close(found["0/loss/rank 1/loss"], losses[1])
    torch.testing.assert_close(found["0/buffer/rank 1/blocks.1.running_mean"], statistics[1])
    torch.testing.assert_close(found["0/buffer/blocks.1.running_mean"], statistics[0])
