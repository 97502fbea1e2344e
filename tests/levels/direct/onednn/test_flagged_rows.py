"""Gradients of tables that are written in the rows alone that a step took, and the updates of such
tables."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pytest
import torch
from torch import Tensor, nn

from golow.levels.direct.onednn.level import probe

if not probe().available:
    pytest.skip("oneDNN is not installed", allow_module_level=True)

from golow.levels.direct.onednn.kernels import WORTH_A_THREAD, copies, flagged_rows, updates
from golow.levels.direct.onednn.run.execution import Execution
from golow.records.workload import Optimizer
from support.direct.in_process import Network, assert_right
from support.direct.onednn_in_process import Running, compute, lower
from support.direct.onednn_kernels import run
from support.models import optimizers

if TYPE_CHECKING:
    from golow.levels.direct.onednn.steps.built_plan import Tensor as Planned

Patch = pytest.MonkeyPatch

ROWS, WIDTH, SKIPPED = 1000, 24, 4
assert WORTH_A_THREAD < ROWS * WIDTH  # threads share the rows
INDICES = {
    "some twice": [5, 0, 5, ROWS - 1, SKIPPED, 170, ROWS - 1, 5],
    "the ends": [0, ROWS - 1],
    "out of bounds": [-3, ROWS + 9],
    "all": list(range(ROWS)),
    "the skipped one": [SKIPPED, SKIPPED],
}


def drawn(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def unwritten(fill: float = np.nan) -> np.ndarray:
    return np.full((ROWS, WIDTH), fill, np.float32)


def assert_summed(case: str, index: type[np.integer] = np.int64) -> None:
    """Against the kernel that writes all rows."""
    indices = np.array(INDICES[case], index)
    name, count = indices.dtype.name, len(indices)
    x, found, dense, flags = drawn(count, WIDTH), unwritten(), unwritten(), np.ones(ROWS, bool)
    run(flagged_rows.rows_summed(name, ROWS, count, WIDTH, SKIPPED), x, indices, found, flags)
    run(copies.rows_summed("float32", name, 1, ROWS, count, WIDTH, SKIPPED), x, indices, dense)
    wanted = np.setdiff1d(np.clip(indices, 0, ROWS - 1), [SKIPPED])
    assert np.array_equal(np.flatnonzero(flags), wanted)
    assert np.array_equal(found[flags], dense[flags])
    assert not dense[~flags].any()
    assert np.isnan(found[~flags]).all()


@pytest.mark.parametrize("index", [np.int64, np.int32])
@pytest.mark.parametrize("case", INDICES)
def test_flagged_rows_have_their_sums(case: str, index: type[np.integer]) -> None:
    assert_summed(case, index)


@pytest.mark.parametrize(
    ("line", "instead"),
    [
        ("flags[row] = true;", ""),
        ("__builtin_memset(flags + top, 0, bottom - top);", ""),
        ("to[k] += from[k]", "to[k] = from[k]"),
    ],
)
def test_a_fault_is_found(line: str, instead: str, monkeypatch: Patch) -> None:
    assert flagged_rows.SUMS.count(line) == 1
    monkeypatch.setattr(flagged_rows, "SUMS", flagged_rows.SUMS.replace(line, instead))
    with pytest.raises(AssertionError):
        assert_summed("some twice")


SGD, ADAM, RMSPROP = (optimizers.UPDATES[k] for k in (0, 2, 5))


@pytest.mark.parametrize(
    ("settings", "decays"), [(SGD, True), (SGD, False), (ADAM, False), (RMSPROP, False)]
)
def test_updates_take_other_rows_for_zeros(settings: updates.Update, decays: bool) -> None:
    """Rows that do not change are left out where the results are in their place."""
    step = updates.step(settings if decays else msgspec.structs.replace(settings, weight_decay=0.0))
    flags = np.random.default_rng(0).random(ROWS) < 0.3
    fresh = np.arange(ROWS) < ROWS // 2  # rows of which nothing is kept
    rows = {name: np.abs(drawn(ROWS, WIDTH, seed=k)) for k, name in enumerate(step.rows)}
    for name in rows.keys() - {"gradient", "parameter"}:
        rows[name][fresh] = 0
    numbers = [np.array([0.5], np.float32) for _ in step.numbers]
    dense, whole, in_place = ([unwritten(7) for _ in step.writes] for _ in range(3))
    rows["gradient"][~flags] = 0
    run(updates.update(step, ROWS * WIDTH), *rows.values(), *numbers, *dense)
    rows["gradient"][~flags] = np.nan
    for found, only in ((whole, False), (in_place, True)):
        kernel = flagged_rows.update(step, ROWS, WIDTH, only)
        run(kernel, *rows.values(), *numbers, flags, *found)
    resting = fresh & ~flags & (not decays)
    for wanted, one, other in zip(dense, whole, in_place, strict=True):
        np.testing.assert_allclose(one, wanted, rtol=1e-5, atol=1e-7)
        np.testing.assert_array_equal(other[~resting], one[~resting])
        assert (other[resting] == 7).all()
    np.testing.assert_array_equal(dense[-1][resting], rows["parameter"][resting])


# ---------------------------------------------------------------- plans


class Words(nn.Module):
    """Tables with a padding index, of means of rows, with fewer rows than are taken, with narrow
    rows, and one that a linear layer reads, too."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(90, 16, padding_idx=3)
        self.bags = nn.EmbeddingBag(80, 16, mode="mean")
        self.small, self.narrow = nn.Embedding(9, 16), nn.Embedding(90, 4)
        self.tied, self.last = nn.Embedding(70, 16), nn.Linear(20, 5)

    def forward(self, x: Tensor) -> Tensor:
        mixed = self.words(x) + self.small(x % 9) + self.tied(x)
        mixed = nn.functional.linear(mixed, self.tied.weight).tanh()[..., :16].mean(1)
        return self.last(torch.cat([mixed + self.bags(x), self.narrow(x).mean(1)], 1))


FLAGGED = {"words", "bags"}


@cache
def words(optimizer: Optimizer) -> Network:
    torch.manual_seed(0)
    places = torch.randint(0, 70, (2, 6))
    places[0, 1:4], places[1, 0] = 3, 69
    return lower(Words(), places, "train", optimizer)


PLAIN = Optimizer(learning_rate=0.05, momentum=0.0)


ADAMS = pytest.param(Optimizer(name="adam", learning_rate=0.01), marks=pytest.mark.slow)


@pytest.mark.parametrize("optimizer", [PLAIN, ADAMS], ids=str)
def test_tables_learn_in_the_rows_that_were_taken(optimizer: Optimizer) -> None:
    network = words(optimizer)
    steps = [s for s in Running(network).built.plan.steps if s.operation == "take_backward"]
    assert {s.modules[0] for s in steps if len(s.writes) == 2} == FLAGGED
    assert_right(network, compute(network))


def test_who_reads_a_gradient_sees_zeros(monkeypatch: Patch) -> None:
    """Where memory has something else."""
    running = Running(words(PLAIN))

    def gradient() -> np.ndarray:
        running.execution.region("arena").bytes[...] = 127
        running.fill_state()
        running.point_at(0)
        return running.step()["gradient/words.weight"]

    taken = running.network.prepared.batches[0].inputs[0]
    others = np.setdiff1d(np.arange(90), taken.numpy())
    assert not gradient()[[3, *others]].any()

    def in_memory(execution: Execution, table: Planned, flags: Planned) -> np.ndarray:
        return execution.array(table).copy()

    monkeypatch.setattr(Execution, "_flagged_rows", in_memory)
    assert gradient()[others].any()
