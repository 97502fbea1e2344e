"""`golow.compile_step` in a program of torch.distributed: two processes that torchrun starts, as a
user does. On the host for `onednn`, and for `cudnn` with a device that stands there."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
from torch import nn

import golow
from golow.records.errors import GolowError
from golow.records.workload import Optimizer
from support.direct.training_steps import LOSS, batches, network, perceptron
from support.one_run import own_folder
from support.places import ROOT, TESTS, WORKERS

pytestmark = pytest.mark.slow

RANKS = 2


CASES = {"onednn": ("torchrun", "group", "alone"), "cudnn": ("torchrun", "group")}
Trained = dict[str, list[dict[str, Any]]]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Trained]:
    """What each rank wrote at a level, by case: one program makes all trainings of a level."""

    @cache
    def by_torchrun(level: str) -> Trained:
        folder = tmp_path_factory.mktemp(level)
        paths = (str(ROOT / "src"), str(TESTS), os.environ.get("PYTHONPATH", ""))
        program = (str(WORKERS / "torchrun_step.py"), str(folder), level, str(own_folder()))
        done = subprocess.run(
            (sys.executable, "-m", "torch.distributed.run", "--standalone",
             "--local-addr=127.0.0.1", f"--nproc-per-node={RANKS}", *program, *CASES[level]),
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"},
            capture_output=True, text=True, timeout=200, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr[-4000:]
        return {
            case: [torch.load(folder / f"{case}-{rank}.pt") for rank in range(RANKS)]
            for case in CASES[level]
        }

    return by_torchrun


def in_one_process(module: nn.Module, shape: tuple[int, ...], every: int) -> list[dict[str, Any]]:
    """The same training in PyTorch and float64: from rank 0's weights, by the mean of gradients."""
    state = module.state_dict()
    modules = [type_of_module(module).double() for _ in range(RANKS)]
    for one in modules:
        one.load_state_dict(state)
    optimizers = [torch.optim.SGD(m.parameters(), lr=0.05, momentum=0.9) for m in modules]
    data = [batches(8, shape, last=3)[rank::RANKS] for rank in range(RANKS)]
    losses: list[list[float]] = [[] for _ in modules]
    for number, own in enumerate(zip(*data, strict=True), 1):
        for rank, (x, y) in enumerate(own):
            loss = LOSS(modules[rank](x.double()), y)
            (loss / every).backward()
            losses[rank].append(float(loss.detach()))
        if number % every:
            continue
        for same in zip(*(m.parameters() for m in modules), strict=True):
            mean = torch.stack([p.grad for p in same if p.grad is not None]).mean(0)
            for parameter in same:
                parameter.grad = mean.clone()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    return [{"losses": of, "state": m.state_dict()} for of, m in zip(losses, modules, strict=True)]


def type_of_module(module: nn.Module) -> nn.Module:
    """Another one of the same layers."""
    return network() if any(isinstance(m, nn.Conv2d) for m in module.modules()) else perceptron()


@pytest.mark.parametrize("group", ["group", "torchrun"])
@pytest.mark.parametrize("level", ["onednn", "cudnn"])
def test_ranks_train_together(level: str, group: str, trained: Callable[[str], Trained]) -> None:
    """With a process group of the program's and without; one rank has batches of another size."""
    found = trained(level)[group]
    on_gpu = level == "cudnn"
    module, shape = (perceptron(), (6,)) if on_gpu else (network(), (3, 12, 12))
    wanted = in_one_process(module, shape, every=2 if group == "group" else 1)
    for own, right in zip(found, wanted, strict=True):
        assert own["losses"] == pytest.approx(right["losses"], rel=1e-3)
        for name, tensor in right["state"].items():
            assert torch.allclose(own["state"][name].double(), tensor.double(), 1e-3, 1e-4), name
    for name, _ in module.named_parameters():
        first, other = (own["state"][name] for own in found)
        assert torch.equal(first, other), name


def test_one_rank_trains_alone_if_it_is_told_to(trained: Callable[[str], Trained]) -> None:
    first, other = trained("onednn")["alone"]
    assert not torch.equal(first["state"]["0.weight"], other["state"]["0.weight"])


def test_a_program_without_a_store_is_told_what_to_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(GolowError, match="init_process_group"):
        step()
    assert step(ranks=1) is not None


def test_another_number_of_ranks_than_the_programs_is_refused() -> None:
    with pytest.raises(GolowError, match=r"ranks=3, but torch\.distributed has 1"):
        step(ranks=3)


def step(**options: int) -> object:
    return golow.compile_step(
        perceptron(), LOSS, optimizer=Optimizer(), example=batches(1, (6,))[0], quiet=True,
        threads=1, **options,
    )  # type: ignore[arg-type]  # fmt: skip
