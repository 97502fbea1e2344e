"""A level for batches of samples: buckets, padding, and answers taken apart."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from golow.observer import Silent
from golow.programs.load.contexts import LevelContext, Sizes, contexts_of
from golow.programs.load.proof import Proof
from golow.programs.load.samples import Samples, samples_of
from golow.records.errors import GolowError
from golow.storage.scratch import scratch_folder
from golow.workload.bundle import Bundle, write_bundle
from golow.workload.prepare import prepare
from golow.workload.request import Request

pytestmark = pytest.mark.usefixtures("forked")

BUCKETS = (1, 2, 4)


class Mixed(nn.Module):
    """Inputs and outputs of several types, of which one has a number for each sample."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.linear = nn.Embedding(20, 8), nn.Linear(8, 3)

    def forward(self, ids: Tensor, scale: Tensor) -> dict[str, Tensor]:
        hidden = self.linear(self.embedding(ids).mean(1))
        return {"scaled": hidden * scale, "sum": ids.sum(1)}


class Whole(nn.Module):
    """An output for the whole batch."""

    def forward(self, x: Tensor) -> Tensor:
        return x.sum(0)


def bundle_of(module: nn.Module, example: object, folder: Path) -> Bundle:
    prepared = prepare(Request(module.eval(), example, threads=1))  # type: ignore[arg-type]
    return write_bundle(prepared, folder / "bundle")[0]


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    torch.manual_seed(0)
    example = {"ids": torch.randint(0, 20, (4, 5)), "scale": torch.rand(4, 1)}
    return bundle_of(Mixed(), example, tmp_path_factory.mktemp("mixed"))


@pytest.fixture(scope="module")
def proof(mixed: Bundle) -> Iterator[Proof]:
    with scratch_folder() as folder:
        yield Proof(mixed, folder)


@pytest.mark.slow
@pytest.mark.parametrize("level", ["eager", "torchscript", "direct"])
def test_every_bucket_of_a_level_gives_right_answers(
    level: str, mixed: Bundle, proof: Proof
) -> None:
    samples = samples_of(mixed)
    first, second = contexts_of(level, mixed, samples, Sizes(BUCKETS, 2), None, Silent())
    answers, place, turn = [], 0, 0
    while place < proof.count:
        context = (first, second)[turn % 2]
        indices = range(place, min(proof.count, place + 1 + turn % BUCKETS[-1]))
        batch = context.assemble(indices)
        assert len(batch[0]) == context.bucket(indices).batch
        answers += zip(indices, context.answers(context.run(batch), indices), strict=True)
        place, turn = indices.stop, turn + 1
    assert proof.judge(answers).verdict == "match"


def test_padding_repeats_the_last_sample(mixed: Bundle) -> None:
    samples = samples_of(mixed)
    sizes = [(bucket, 0) for bucket in BUCKETS]
    types = [item.dtype for item in samples.tensors]
    context = LevelContext(dict.fromkeys(sizes, lambda *given: given), samples, "cpu", types)
    ids, scale = context.assemble([3, 0, 2])
    assert torch.equal(ids, samples.tensors[0][[3, 0, 2, 2]])
    assert torch.equal(scale, samples.tensors[1][[3, 0, 2, 2]])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool])
def test_an_answer_is_the_bytes_of_its_row(dtype: torch.dtype) -> None:
    rows = torch.arange(6).reshape(3, 2).to(dtype)
    context = LevelContext({(4, 0): lambda *given: given}, Samples([rows]), "cpu", [dtype])
    found = context.answers([rows, rows[:, 0]], [0, 1])
    for row, content in zip(rows, found, strict=False):
        read = torch.frombuffer(bytearray(content), dtype=dtype)
        assert torch.equal(read, torch.cat([row, row[:1]]))


def test_a_level_that_returns_halves_answers_in_the_modules_own_type() -> None:
    rows = torch.tensor([[1.0, 2.5], [3.0, -4.0]])
    halves = {(2, 0): torch.Tensor.bfloat16}
    context = LevelContext(halves, Samples([rows]), "cpu", [torch.float32])
    found = context.answers(context.run(context.assemble([1, 0])), [1, 0])
    assert [bytes(content) for content in found] == [
        rows[index].numpy().tobytes() for index in (1, 0)
    ]


def test_an_output_without_a_row_for_each_sample_is_refused(tmp_path: Path) -> None:
    bundle = bundle_of(Whole(), torch.rand(4, 3), tmp_path)
    with pytest.raises(GolowError, match="output 0 of Whole has no row for each sample"):
        Proof(bundle, tmp_path)
