"""The words of a comparison: its inputs, the share of the limit that a level used, its notes."""

from __future__ import annotations

import io
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from golow.records.comparison import Check, Comparison, Run, StepError, StepsCheck
from golow.records.workload import ModelSource, Phase, TensorType, Workload
from golow.report.comparison.columns import verdict_text
from golow.report.comparison.inputs import draws_text, inputs_text
from golow.report.comparison.table import render
from golow.report.console import PlainConsole
from support.records.comparisons import comparison, run

CACHE = TensorType(shape=(1, 8, 1024, 64), dtype="float32")
TOKEN = TensorType(shape=(1, 1), dtype="int64")


def workload(
    *inputs: TensorType, keywords: tuple[str, ...] = (), draws: int = 0, phase: Phase = ""
) -> Workload:
    source = ModelSource(kind="huggingface", name="gpt2", keywords=keywords)
    return Workload(
        model="gpt2", source=source, mode="infer", batch=1, inputs=inputs, draws=draws, phase=phase
    )


def test_a_few_inputs_are_listed_each_with_its_type() -> None:
    image = TensorType(shape=(8, 3, 4, 4), dtype="float32")
    mask = TensorType(shape=(), dtype="bool")
    assert inputs_text(workload(image)) == "input 8x3x4x4 float32"
    assert inputs_text(workload(TOKEN, image, mask)) == (
        "inputs 1x1 int64, 8x3x4x4 float32, a number bool"
    )
    assert inputs_text(workload(image, mask, draws=1)) == "input 8x3x4x4 float32"
    assert draws_text(workload(image, mask, draws=1)).endswith(" here: input 1 (a number bool).")
    assert draws_text(workload(image, mask)) == ""
    assert inputs_text(workload(TOKEN, phase="prefill")) == "input 1x1 int64; prefill"


def test_many_inputs_are_counted_by_kind() -> None:
    names = ("input_ids", *(f"past_key_values.{i}" for i in range(32)))
    found = inputs_text(workload(TOKEN, *[CACHE] * 32, keywords=names, phase="decode"))
    assert found == (
        "32 caches of 1x8x1024x64 float32, 1 input of 1x1 int64; decode after 1,024 tokens"
    )


@given(st.lists(st.integers(1, 9), min_size=5, max_size=40))
def test_every_input_is_counted(sides: list[int]) -> None:
    types = [TensorType(shape=(side,), dtype="float32") for side in sides]
    words = inputs_text(workload(*types)).replace(",", "").split()
    counted = ("input", "inputs", "more")
    counts = [int(word) for word, after in pairwise(words) if after in counted]
    assert sum(counts) == len(sides)


def erring(error: float, limit: float) -> Run:
    """A level whose worst tensor has this error. Eager's own is a thousand times smaller."""
    level = run("onednn", error=error)
    assert level.check.worst is not None
    worst = msgspec.structs.replace(level.check.worst, limit=limit, eager_error=error / 1000)
    return msgspec.structs.replace(level, check=Check(verdict="match", worst=worst))


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (0.0, " 0%"),
        (1e-9, " <1%"),
        (1.5e-7, " 15%"),
        (5e-6, " 500%"),
        (1e300, " >1000%"),
        (float("nan"), " >1000%"),
    ],
)
def test_an_error_is_shown_as_a_share_of_its_limit(error: float, shown: str) -> None:
    assert verdict_text(erring(error, limit=1e-6)).plain.endswith(shown)
    blocks = printed(comparison(erring(error, limit=1e-6)), width=60)
    assert f"{shown} of its limit\n" in blocks


def test_nothing_is_a_share_of_no_limit() -> None:
    assert "%" not in verdict_text(erring(1e-7, limit=0.0), " of its limit").plain


def test_a_note_of_several_levels_stands_once() -> None:
    levels = [
        msgspec.structs.replace(run(name), notes=notes)
        for name, notes in (
            ("eager", ()), ("torchscript", ("the same",)), ("onednn", ("its own", "the same")),
        )
    ]  # fmt: skip
    text = printed(comparison(*levels))
    assert "note: torchscript, onednn: the same\n" in text
    assert "note: onednn: its own\n" in text
    assert text.count("the same") == 1


def printed(shown: Comparison, width: int = 100) -> str:
    text = io.StringIO()
    render(shown, PlainConsole(file=text, width=width, markup=False))
    return text.getvalue()


@pytest.mark.parametrize(("share", "words"), [(0.001, "below 1%"), (0.006, "1%"), (0.42, "42%")])
def test_the_share_of_a_limit_is_never_zero(share: float, words: str) -> None:
    worst = StepError(value="y", operation="golow.linear", layer="fc", share=share)
    said = StepsCheck(count=3, worst=worst).words
    assert said.endswith(f": the largest error is {words} of its limit")
