"""The check finds what is wrong and lets pass what is right, rounded otherwise."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from golow.check.rule import Check, Reference, check, confirm
from golow.records.comparison import TensorError
from support.examples import examples

Array = npt.NDArray[np.float64]
FEW = examples(40)  # each writes and reads files

# ---------------------------------------------------------------- the rule


class Question(NamedTuple):
    """``y = x w`` with its float64 answer and those of float32; the tensors of one reference."""

    inputs: Array
    weights: Array
    reference: Reference

    @property
    def answer(self) -> Array:
        return self.inputs @ self.weights


# The group's other tensor: what should cancel to zero is judged by its size.
NEIGHBOUR = np.linspace(-1, 1, 50)


@contextmanager
def asked(seed: int, rows: int = 16, inner: int = 200, scale: float = 1.0) -> Iterator[Question]:
    """A question of that size, and its reference made of real files."""
    draw = np.random.default_rng(seed)
    # Float32 numbers, so that float64 and float32 are asked the same.
    inputs = draw.standard_normal((rows, inner)).astype(np.float32).astype(float)
    weights = (scale * draw.standard_normal((inner, 8))).astype(np.float32).astype(float)
    steps = 8 * 2.0**-23
    moved = (inputs * (1 + steps * draw.standard_normal(inputs.shape))) @ (
        weights * (1 + steps * draw.standard_normal(weights.shape))
    )
    eager = inputs.astype(np.float32) @ weights.astype(np.float32)
    with TemporaryDirectory() as folder:
        files = [
            written(Path(folder) / name, answer)
            for name, answer in (("double", inputs @ weights), ("eager", eager), ("moved", moved))
        ]
        yield Question(inputs, weights, Reference(*files[:2]).widened(files[2:]))


def written(file: Path, answer: Array, **others: Array) -> Path:
    """A file as a worker writes it, with the answer, its neighbour and a counter."""
    tensors = {
        "0/output/0": answer,
        "0/output/1": NEIGHBOUR.astype(answer.dtype),
        "0/buffer/count": np.array(7),
    }
    given = {name.replace("__", "/"): value for name, value in others.items()}
    save_file({n: np.ascontiguousarray(t) for n, t in (tensors | given).items()}, file)
    return file


def judged(question: Question, answer: Array, **others: Array) -> Check:
    """The check of a file with this answer."""
    file = written(question.reference.file.with_name("found"), answer, **others)
    return check(question.reference, file)


def error_of(found: Check, name: str = "0/output/0") -> TensorError:
    return next(tensor for tensor in found.tensors if tensor.name == name)


seeds = st.integers(0, 2**32 - 1)
rows = st.sampled_from([1, 2, 16, 200])  # 8 to 1600 elements: every factor of the rule
sizes = st.sampled_from([1e-20, 1e-3, 1.0, 1e6])


@given(seeds, rows, sizes)
@FEW
def test_eagers_own_answer_matches(seed: int, rows: int, scale: float) -> None:
    with asked(seed, rows, scale=scale) as question:
        eager = question.inputs.astype(np.float32) @ question.weights.astype(np.float32)
        found = judged(question, eager)
    assert found.verdict == "match"
    assert error_of(found).error == error_of(found).eager_error


@given(seeds, rows, sizes)
@FEW
def test_another_order_of_summation_matches(seed: int, rows: int, scale: float) -> None:
    """One term after the other, in any order: the worst that an honest level does."""
    with asked(seed, rows, scale=scale) as question:
        order = np.random.default_rng(seed).permutation(question.inputs.shape[1])
        answer = np.zeros_like(question.answer, dtype=np.float32)
        for place in order:
            left, right = question.inputs[:, place], question.weights[place]
            answer += np.outer(left, right).astype(np.float32)
        found = judged(question, answer)
    assert found.verdict == "match"


@given(seeds, rows, sizes, st.floats(0.05, 0.98) | st.floats(1.02, 20))
@FEW
def test_the_limit_divides(seed: int, rows: int, scale: float, times: float) -> None:
    """An error of so many times the limit, in whatever direction."""
    with asked(seed, rows, scale=scale) as question:
        limit = error_of(judged(question, question.answer)).limit
        noise = np.random.default_rng(seed + 1).standard_normal(question.answer.shape)
        noise *= times * limit / np.sqrt(np.mean(noise**2))
        found = judged(question, question.answer + noise)
    assert error_of(found).error == pytest.approx(times * limit, rel=1e-3)
    assert found.verdict == ("match" if times < 1 else "differs")
    assert found.verdict == "match" or "times what rounding explains" in found.reason


@given(seeds, st.sampled_from([16, 200]))
@FEW
def test_the_limit_is_small(seed: int, rows: int) -> None:
    """Far below a thousandth of the answer: no error of a person's making hides under it."""
    with asked(seed, rows) as question:
        found = error_of(judged(question, question.answer))
    assert 0 < found.limit < 1e-4 * found.scale


@given(seeds, st.floats(0.0, 1e-6), st.sampled_from([1, 100]))
@FEW
def test_what_cancels_to_zero_is_judged_by_its_neighbours(
    seed: int, rounding: float, times: int
) -> None:
    """A gradient that is zero but for rounding (a bias before batch norm) is another zero in each
    level; noise of the neighbours' roundings is right there, a hundred times it is not."""
    draw = np.random.default_rng(seed)
    zero, noise = np.zeros(50), draw.uniform(-1, 1, 50)
    with asked(seed) as question:
        for name in ("double", "eager", "moved"):
            file = question.reference.file.with_name(name)
            tensors = load_file(file) | {"0/output/2": zero if name == "double" else 1e-9 * noise}
            save_file(tensors, file)
        files = [question.reference.file.with_name(n) for n in ("double", "eager", "moved")]
        question = question._replace(reference=Reference(*files[:2]).widened(files[2:]))
        found = judged(question, question.answer, **{"0__output__2": times * 1e-6 * noise})
    assert found.verdict == ("match" if times == 1 else "differs")


@given(seeds, st.integers(-3, 3))
@FEW
def test_integers_are_exact(seed: int, off: int) -> None:
    with asked(seed) as question:
        found = judged(question, question.answer, **{"0__buffer__count": np.array(7 + off)})
    assert found.verdict == ("match" if off == 0 else "differs")
    assert off == 0 or "0/buffer/count is off by" in found.reason


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_differs(value: float) -> None:
    with asked(0) as question:
        answer = question.answer.copy()
        answer[3, 2] = value
        found = judged(question, answer)
    assert (found.verdict, found.reason) == ("differs", "0/output/0 is not finite")


def test_more_tensors_than_were_asked_for_are_no_fault() -> None:
    with asked(0) as question:
        assert judged(question, question.answer, **{"9__remark__x": NEIGHBOUR}).verdict == "match"


@pytest.mark.parametrize("data", [b"", b"no safetensors", b"\x08" + bytes(7) + b'{"a":{}}'])
def test_a_file_that_cannot_be_read_is_a_failure(data: bytes) -> None:
    with asked(0) as question:
        file = question.reference.file.with_name("found")
        file.write_bytes(data)
        found = check(question.reference, file)
        gone = check(question.reference, file.with_name("gone"))
    assert found.verdict == gone.verdict == "failed"
    assert "cannot be read" in found.reason
    assert "cannot be read" in gone.reason


@pytest.mark.parametrize("overflows", ["double", "eager", "moved"])
def test_nothing_is_proved_by_a_reference_that_is_not_finite(overflows: str) -> None:
    with asked(0) as question:
        file = question.reference.file.with_name(overflows)
        tensors = load_file(file)
        tensors["0/output/1"][4] = math.inf if overflows == "double" else math.nan
        save_file(tensors, file)
        files = [file.with_name(name) for name in ("double", "eager", "moved")]
        reference = Reference(*files[:2]).widened(files[2:])
        assert not reference.finite
        assert check(reference, files[1]).verdict == "failed"


# ---------------------------------------------------------------- the second try


def tried(**errors: float) -> Check:
    """A check with these errors, of limit 1."""
    tensors = tuple(
        TensorError(
            name=name, elements=9, scale=9, error=e, eager_error=0.5, limit=1, passed=e <= 1
        )
        for name, e in errors.items()
    )
    passed = all(tensor.passed for tensor in tensors)
    return Check(verdict="match" if passed else "differs", reason="first", tensors=tensors)


def test_an_accident_does_not_come_twice() -> None:
    found = confirm(tried(a=3, b=0.5), tried(a=0.4, b=0.2))
    assert (found.verdict, found.reason) == ("match", "")
    assert all(tensor.passed for tensor in found.tensors)


def test_an_accident_may_come_elsewhere() -> None:
    found = confirm(tried(a=3, b=0.5), tried(a=0.4, b=2))
    assert found.verdict == "match"
    assert all(tensor.passed for tensor in found.tensors)
    assert found.worst is not None
    assert found.worst.name == "b"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (tried(a=3, b=0.5), tried(a=1.1, b=0.2)),  # the same tensor twice
        (tried(a=3, b=3), tried(a=0.1, b=9)),
        (tried(a=math.nan, b=0.5), tried(a=0.4, b=0.2)),  # NaN once is once too often
        (tried(a=3, b=0.5), tried(a=0.4, b=math.nan)),
        (tried(a=math.inf, b=0.5), tried(a=0.4, b=0.2)),
        (tried(a=3), Check(verdict="failed", reason="its outputs cannot be read")),
        (tried(a=3), Check(verdict="differs", reason="a is missing")),
    ],
)
def test_what_is_no_accident_differs(first: Check, second: Check) -> None:
    assert confirm(first, second).verdict == "differs"
