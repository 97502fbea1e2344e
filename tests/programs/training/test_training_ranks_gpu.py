"""Whole trainings on two GPUs: batches of two sizes, each a CUDA graph with reductions in it, are
held against one process on one GPU."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import golow
from golow.records.workload import Optimizer
from support.records.training_subjects import NORMED

if not torch.cuda.is_available() or torch.cuda.device_count() < 2:
    pytest.skip("there are no two GPUs", allow_module_level=True)

pytestmark = pytest.mark.gpu


def test_two_gpus_train_the_network_of_one_process(tmp_path: Path) -> None:
    result = golow.train(
        NORMED,
        dataset="digits",
        device="cuda",
        precision="ieee",
        ranks=2,
        batch=100,
        epochs=2,
        levels=["ddp", "fsdp", "cudnn"],
        optimizer=Optimizer(learning_rate=0.05, momentum=0.9),
        out=tmp_path,
        cache=tmp_path / "cache",
        quiet=True,
    )
    for run in result.training.runs:
        assert run.check.verdict == "match", f"{run.level}: {run.check.words}\n{run.log}"
        assert run.failure == ""
    assert {verdict.level: verdict.word for verdict in result.training.verdicts} == dict.fromkeys(
        ("ddp", "fsdp", "cudnn"), "same"
    )
