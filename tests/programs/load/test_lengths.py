"""Samples of different lengths: padding, cut answers, and modules that padding would change."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import torch
from torch import Tensor, nn

from golow.compiled.callable_levels import SESSIONS
from golow.observer import Silent
from golow.programs.load.contexts import LevelContext, Sizes, contexts_of
from golow.programs.load.lengths import Lengths
from golow.programs.load.proof import Proof
from golow.programs.load.samples import drawn_lengths, samples_of
from golow.records.errors import GolowError
from golow.storage.scratch import scratch_folder
from golow.workload.bundle import Bundle, write_bundle
from golow.workload.prepare import prepare
from golow.workload.request import Request

pytestmark = pytest.mark.usefixtures("forked")

LONGEST = 12
LIMITS, SIZES = (3, LONGEST), (4, 8, LONGEST)
BATCHES = (1, 2, 4)


class Tagger(nn.Module):
    """A number for each token, a sum over the text, and the pairs of its tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.linear = nn.Embedding(20, 8), nn.Linear(8, 3)

    def forward(self, ids: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        hidden = self.linear(self.embedding(ids)) * mask[..., None]
        return hidden, hidden.sum(1), hidden @ hidden.transpose(1, 2)


class Mean(nn.Module):
    """Mixes padding into its answer."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, 8)

    def forward(self, ids: Tensor) -> Tensor:
        return self.embedding(ids).mean(1)


def bundle_of(module: nn.Module, example: object, folder: Path) -> Bundle:
    prepared = prepare(Request(module.eval(), example, threads=1))  # type: ignore[arg-type]
    return write_bundle(prepared, folder / "bundle")[0]


@pytest.fixture(scope="module")
def tagger(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    torch.manual_seed(0)
    example = {
        "ids": torch.randint(0, 20, (4, LONGEST)),
        "mask": torch.ones(4, LONGEST, dtype=torch.long),
    }
    return bundle_of(Tagger(), example, tmp_path_factory.mktemp("tagger"))


@pytest.fixture(scope="module")
def lengths(tagger: Bundle) -> Lengths:
    return drawn_lengths(tagger, LIMITS, SIZES, 0)


@pytest.fixture(scope="module")
def proof(tagger: Bundle, lengths: Lengths) -> Iterator[Proof]:
    with scratch_folder() as folder:
        yield Proof(tagger, folder, lengths)


def test_lengths_are_drawn_from_the_seed(tagger: Bundle, lengths: Lengths) -> None:
    assert len(lengths.samples) == 16
    assert all(LIMITS[0] <= one <= LIMITS[1] for one in lengths.samples)
    assert len(set(lengths.samples)) > 3
    assert drawn_lengths(tagger, LIMITS, SIZES, 0) == lengths
    assert drawn_lengths(tagger, LIMITS, SIZES, 1).samples != lengths.samples
    assert lengths.inputs == (True, True)
    assert lengths.outputs == ((1,), (), (1, 2))


def test_a_batch_is_padded_in_both_directions(tagger: Bundle, lengths: Lengths) -> None:
    samples = samples_of(tagger, lengths)
    calls = {(b, n): lambda *x: x for b in BATCHES for n in SIZES}
    types = [item.dtype for item in samples.tensors]
    context = LevelContext(calls, samples, "cpu", types)
    three = [index for index, own in enumerate(lengths.samples) if 4 < own <= 8][:3]
    ids, mask = context.assemble(three)
    assert ids.shape == mask.shape == (4, 8)
    own = [lengths.samples[index] for index in three]
    assert mask[:3].sum(1).tolist() == own
    assert torch.equal(ids[3], ids[2])
    assert context.bucket(three) == (4, 8, sum(own))
    assert {context.group(index) for index in three} == {8}


@pytest.mark.slow
@pytest.mark.parametrize("level", ["eager", "torchscript", "direct", "onnxruntime", "openvino"])
def test_answers_of_every_length_are_right(
    level: str, tagger: Bundle, lengths: Lengths, proof: Proof
) -> None:
    if level in SESSIONS:  # one size, as each takes seconds to export
        pytest.importorskip(level)
        lengths = msgspec.structs.replace(lengths, sizes=(LONGEST,))
    samples = samples_of(tagger, lengths)
    contexts = contexts_of(level, tagger, samples, Sizes((2,), 2), None, Silent())
    by_group: dict[int, list[int]] = {}
    for index in range(samples.count):
        by_group.setdefault(samples.size(index), []).append(index)
    answers = []
    for turn, indices in enumerate(by_group.values()):
        for start in range(0, len(indices), 2):
            context, taken = contexts[turn % 2], indices[start : start + 2]
            found = context.answers(context.run(context.assemble(taken)), taken)
            answers += list(zip(taken, found, strict=True))
    assert proof.judge(answers).verdict == "match"
    called = {
        id(call.called) for context in contexts for call in context.calls if level in SESSIONS
    }
    assert len(called) <= 1, "contexts share the session"


def test_an_answer_that_is_not_cut_is_found(tagger: Bundle, lengths: Lengths, proof: Proof) -> None:
    samples = samples_of(tagger, lengths)
    (context,) = contexts_of("eager", tagger, samples, Sizes((1,), 1), None, Silent())
    index = next(place for place, own in enumerate(lengths.samples) if own not in SIZES)
    outputs = context.run(context.assemble([index]))
    assert proof.judge_some([(index, context.answers(outputs, [index])[0])]).verdict == "match"
    whole = b"".join(leaf[0].numpy().tobytes() for leaf in outputs)
    found = proof.judge_some([(index, whole)])
    assert found.verdict == "differs"
    assert "bytes" in found.reason


def test_a_module_that_padding_changes_is_refused(tmp_path: Path) -> None:
    torch.manual_seed(0)
    bundle = bundle_of(Mean(), torch.randint(0, 20, (4, LONGEST)), tmp_path)
    with pytest.raises(GolowError, match="depends on padding"):
        drawn_lengths(bundle, LIMITS, SIZES, 0)


def test_an_example_of_another_length_is_refused(tagger: Bundle) -> None:
    with pytest.raises(GolowError, match="samples have 12 tokens, not 16"):
        drawn_lengths(tagger, (3, 16), (4, 8, 16), 0)
