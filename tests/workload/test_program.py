"""Exported programs, ``.pt2`` files, as models."""

from __future__ import annotations

import copy
import warnings
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from golow.programs.comparison.repeat_command import again
from golow.records.errors import GolowError
from golow.workload.inputs import require_batches
from golow.workload.prepare import prepare
from golow.workload.request import PROGRAMS_INPUTS, Request
from support.models.model_files import assert_computes, refusal

pytestmark = pytest.mark.usefixtures("forked", "own_imports")


def test_an_exported_program(tmp_path: Path) -> None:
    module = nn.Sequential(nn.Linear(16, 4), nn.Dropout(0.5), nn.ReLU()).eval()
    program = torch.export.export(module, (torch.randn(4, 16),))
    torch.export.save(program, tmp_path / "mine.pt2")
    prepared = prepare(Request(str(tmp_path / "mine.pt2"), batch=4, input_shape=(16,)))
    workload = prepared.workload
    assert (workload.model, workload.source.kind) == ("mine", "program")
    assert workload.initialisation == "as given"
    torch.testing.assert_close(
        prepared.module(prepared.batches[0].inputs[0]), module(prepared.batches[0].inputs[0])
    )
    assert_computes(prepared, tmp_path)
    refused = refusal(str(tmp_path / "mine.pt2"), batch=4, input_shape=(16,), mode="train")
    assert "is an exported program, which cannot be trained" in refused.message


def exported(file: Path, module: nn.Module, *inputs: Tensor, free: bool = False) -> str:
    shapes = tuple({0: torch.export.Dim("rows", min=1, max=64)} for _ in inputs) if free else None
    torch.export.save(torch.export.export(module, inputs, dynamic_shapes=shapes), file)
    return str(file)


def test_an_exported_program_states_its_own_inputs(tmp_path: Path) -> None:
    module = nn.Sequential(nn.Linear(16, 4), nn.ReLU()).eval()
    name = exported(tmp_path / "fixed.pt2", module, torch.randn(3, 16))
    assert prepare(Request(name)).workload.inputs[0].shape == (3, 16)
    assert "was exported for a batch of 3" in refusal(name, batch=4).message
    name = exported(tmp_path / "free.pt2", module, torch.randn(3, 16), free=True)
    assert prepare(Request(name)).workload.inputs[0].shape == (8, 16)
    assert prepare(Request(name, batch=5)).workload.inputs[0].shape == (5, 16)


def test_a_program_is_copied_without_a_warning_of_torchs_own(tmp_path: Path) -> None:
    name = exported(tmp_path / "mine.pt2", nn.Linear(16, 4).eval(), torch.randn(3, 16))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        copy.deepcopy(prepare(Request(name)).module)
    assert [str(one.message) for one in caught] == []


class Added(nn.Module):
    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return x + y.unsqueeze(-1)


def test_several_inputs_of_a_program_are_drawn(tmp_path: Path) -> None:
    name = exported(tmp_path / "two.pt2", Added(), torch.randn(2, 3, 5), torch.randn(2, 3))
    prepared = prepare(Request(name))
    assert [item.shape for item in prepared.workload.inputs] == [(2, 3, 5), (2, 3)]
    assert not torch.equal(*(batch.inputs[1] for batch in prepared.batches[:2]))


class Scaled(nn.Module):
    """Embeddings of ids [N, L], times a scalar."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(5, 3)

    def forward(self, ids: Tensor, scale: Tensor) -> Tensor:
        return self.table(ids) * scale


def test_a_program_that_takes_integers_gets_those_of_its_export(tmp_path: Path) -> None:
    ids = torch.tensor([[0, 4, 1], [3, 3, 2]])
    name = exported(tmp_path / "ids.pt2", Scaled(), ids, torch.tensor(2.0))
    prepared = prepare(Request(name))
    assert prepared.workload.data == PROGRAMS_INPUTS
    assert prepared.batches[0].inputs[0].equal(ids)
    assert prepared.batches[1].inputs[0].equal(ids.flip(0))
    assert prepared.batches[1].inputs[1] < prepared.batches[0].inputs[1] == 2
    repeated = again("compare", prepared.workload)
    assert repeated.startswith(f"golow compare {name} --batch 2") and "--input" not in repeated
    assert_computes(prepared, tmp_path)
    name = exported(tmp_path / "free.pt2", nn.Embedding(5, 3), ids, free=True)
    assert prepare(Request(name, batch=5)).batches[0].inputs[0].equal(ids[[0, 1, 0, 1, 0]])


def test_integers_by_name_are_refused(tmp_path: Path) -> None:
    ids = {"input": torch.zeros(2, 7, dtype=torch.int64)}
    torch.export.save(torch.export.export(nn.Embedding(5, 3), (), ids), tmp_path / "named.pt2")
    assert "named.pt2, which takes 2x7 int64" in refusal(str(tmp_path / "named.pt2")).message


def test_several_batches_of_a_program_with_its_own_are_refused(tmp_path: Path) -> None:
    fixed = exported(tmp_path / "fixed.pt2", nn.Linear(4, 2), torch.randn(3, 4))
    with pytest.raises(GolowError, match="exported for a batch of 3"):
        require_batches(fixed, [1, 3])
    free = exported(tmp_path / "free.pt2", nn.Linear(4, 2), torch.randn(3, 4), free=True)
    require_batches(free, [1, 3])
