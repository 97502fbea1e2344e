"""The check finds what is wrong and lets pass what is right, rounded otherwise."""

from __future__ import annotations

import math
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from bundles import network_bundle
from golow.bundle import Bundle
from golow.check import FLOAT32, Check, Reference, check, confirm, may_be_rounding, recheck
from golow.entrant import Entrant, Silent
from golow.levels import Choice, Launch, Level, Probe
from golow.record import Mode, TensorError
from golow.standard import BATCHES, OTHER_BATCHES, Standard, gentle_rate, moved_bundle
from golow.starter import Starter
from planted import INFERENCE, TRAINING

Array = npt.NDArray[np.float64]
FEW = settings(max_examples=40, deadline=None)  # each writes and reads files

# ---------------------------------------------------------------- planted errors, real workers


class Court(NamedTuple):
    """A workload with its standard, and the worker that is held against it."""

    standard: Standard
    entrant: Entrant

    def verdict(self, plant: str) -> Check:
        """Of the worker with this error planted; the same process, loaded anew."""
        assert self.entrant.worker is not None
        bundle = self.entrant.bundle.folder
        planted = bundle.with_name(f"{bundle.name}-planted")
        shutil.copytree(bundle, planted)
        (planted / "plant").write_text(plant)
        try:
            self.entrant.worker.load(planted)
            return self.standard.judge(self.entrant.worker.outputs).check
        finally:
            shutil.rmtree(planted)


@pytest.fixture(scope="module")
def courts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Mode], Court]]:
    """The court of each mode, called together when it is first wanted."""
    with ExitStack() as stack:

        @cache
        def court(mode: Mode) -> Court:
            folder = tmp_path_factory.mktemp(mode)
            bundle = network_bundle(folder / "bundle", mode, threads=1)
            standard = Standard(bundle, folder, Starter())
            entrant = stack.enter_context(
                Entrant(planted_level(), bundle, folder, folder, Starter())
            )
            assert entrant.start(standard, False, Silent(), "1 of 1"), entrant.check.reason
            return Court(standard, entrant)

        yield court


def planted_level() -> Choice:
    command = (sys.executable, str(Path(__file__).with_name("planted.py")))

    def prepare(bundle: Bundle, variant: str, cache: Path) -> Launch:
        return Launch(command)

    return Choice(Level("planted", "", "", lambda: Probe(True), prepare), "")


@pytest.mark.parametrize("mode", ["infer", "train"])
def test_what_is_right_matches(courts: Callable[[Mode], Court], mode: Mode) -> None:
    check = courts(mode).verdict("nothing")
    assert (check.verdict, check.reason) == ("match", "")
    assert all(tensor.passed for tensor in check.tensors)
    kinds = {tensor.name.split("/")[1] for tensor in check.tensors}
    training = {"output", "loss", "gradient", "parameter", "momentum", "buffer"}
    assert kinds == (training if mode == "train" else {"output"})


@pytest.mark.parametrize("plant", INFERENCE)
def test_an_error_planted_in_inference_is_found(
    courts: Callable[[Mode], Court], plant: str
) -> None:
    check = courts("infer").verdict(plant)
    print(f"{plant}: {check.reason}")
    assert check.verdict == "differs"
    assert INFERENCE[plant][1] in check.reason


@pytest.mark.parametrize("plant", TRAINING)
def test_an_error_planted_in_training_is_found(courts: Callable[[Mode], Court], plant: str) -> None:
    check = courts("train").verdict(plant)
    print(f"{plant}: {check.reason}")
    assert check.verdict == "differs"
    assert TRAINING[plant][1] in check.reason


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


# ---------------------------------------------------------------- on demand


class Files(NamedTuple):
    """A level, the reference, eager and three draws: the same few tensors, apart by rounding."""

    reference: Reference
    draws: list[Path]
    level: Path


@contextmanager
def tensor_files(seed: int, spread: float, off: float) -> Iterator[Files]:
    """Eager is off by a few roundings of each tensor, the draws by `spread` times that, the level
    by `off` times; each by a factor of its own for each tensor, up to ten."""
    draw = np.random.default_rng(seed)
    names = [f"0/{kind}/{place}" for kind in ("output", "gradient") for place in range(4)]
    exact = {name: draw.standard_normal(draw.integers(1, 1200)) for name in names}

    def apart(times: float) -> dict[str, Array]:
        return {
            name: tensor
            + times * 1e-5 * draw.uniform(0, 1) ** 3 * draw.standard_normal(tensor.shape)
            for name, tensor in exact.items()
        }

    with TemporaryDirectory() as folder:
        times = {"eager": 1.0, "0": spread, "1": spread, "2": spread, "level": off}
        save_file(exact, Path(folder) / "double")
        for name, factor in times.items():
            save_file(apart(factor), Path(folder) / name)
        double, eager, *draws, level = (Path(folder) / name for name in ("double", *times))
        yield Files(Reference(double, eager), draws, level)


factors = st.sampled_from([0.0, 0.5, 2.0, 5.0, 20.0])


@given(seeds, factors, factors)
@settings(max_examples=100, deadline=None)
def test_draws_on_demand_change_no_verdict(seed: int, spread: float, off: float) -> None:
    """A level judged by eager's error, and again with the draws where that does not do, gets the
    verdict that the draws give it at once; so none of its limits may have become smaller."""
    with tensor_files(seed, spread, off) as (reference, draws, level):
        wider = reference.widened(draws)
        at_once = check(wider, level)
        first = check(reference, level)
        assert all(wider.limit(name) >= reference.limit(name) for name in reference.expected)
        found = recheck(wider, first) if may_be_rounding(first) else first
    assert found.verdict == at_once.verdict
    assert first.verdict == "match" or found == at_once


class Bench(Standard):
    """The standard of files, with nothing to run; it counts what it had to make."""

    def __init__(self, folder: Path, tries: Mapping[tuple[int, ...], Files]) -> None:
        self._folder, self._tries = folder, tries
        self._working, self.learning_rate = FLOAT32, 0.1
        self._references = {BATCHES: tries[BATCHES].reference}
        self._widened: dict[tuple[int, ...], Reference] = {}
        self._eager = lambda *_: None
        self.made: list[tuple[str, tuple[int, ...]]] = []

    def _workers(self, *names: str) -> Any:
        return nullcontext([None for _ in names])

    def _establish(self, double: Any, eager: Any, batches: tuple[int, ...]) -> Reference:
        self.made.append(("reference", batches))
        return self._tries[batches].reference

    def _moved(self, double: Any, batches: tuple[int, ...]) -> Iterator[Path]:
        self.made.append(("draws", batches))
        yield from self._tries[batches].draws

    def level(self, batches: list[int], learning_rate: float, file: Path) -> None:
        """Write what the level makes of the batches."""
        shutil.copy(self._tries[tuple(batches)].level, file)


@given(seeds, factors, factors, factors)
@settings(max_examples=60, deadline=None)
def test_the_ladder_ends_where_all_at_once_would(
    seed: int, spread: float, off: float, off_again: float
) -> None:
    with (
        TemporaryDirectory() as folder,
        tensor_files(seed, spread, off) as first,
        tensor_files(seed + 1, spread, off_again) as other,
    ):
        bench = Bench(Path(folder), {BATCHES: first, OTHER_BATCHES: other})
        tried = [
            check(files.reference.widened(files.draws), files.level) for files in (first, other)
        ]
        matches = tried[0].verdict == "match"
        assert (
            bench.judge(bench.level).check.verdict
            == (tried[0] if matches else confirm(*tried)).verdict
        )
        alone = check(first.reference, first.level).verdict == "match"
        wanted = [] if alone else [("draws", BATCHES)]
        if not matches:
            wanted.append(("reference", OTHER_BATCHES))
        assert bench.made[:2] == wanted
        made = list(bench.made)
        bench.judge(bench.level)
        assert bench.made == made  # nothing is made twice
        assert not list(Path(folder).iterdir())


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_nothing_is_made_for_what_no_rounding_explains(value: float, tmp_path: Path) -> None:
    with tensor_files(0, 1.0, 0.0) as files:
        tensors = load_file(files.level)
        bench = Bench(tmp_path, {BATCHES: files})
        for wrong in (value + tensors["0/output/1"], tensors["0/output/1"][None]):
            save_file(tensors | {"0/output/1": wrong}, files.level)
            assert bench.judge(bench.level).check.verdict == "differs"
    assert bench.made == []


def test_who_was_held_against_the_draws_is_told_what_they_hide(tmp_path: Path) -> None:
    with tensor_files(1, 2000.0, 200.0) as files:
        bench = Bench(tmp_path, {BATCHES: files})
        found, notes = bench.judge(bench.level)
    print(notes)
    assert found.verdict == "match"
    assert len(notes) == 1
    assert notes[0].startswith("held against 3 moved references too: float32 roundings move 0/")


def test_a_draw_that_is_not_finite_proves_nothing(tmp_path: Path) -> None:
    for place in range(3):
        with tensor_files(0, 1.0, 20.0) as files:
            tensors = load_file(files.draws[place])
            tensors["0/output/1"][0] = math.nan
            save_file(tensors, files.draws[place])
            bench = Bench(tmp_path, {BATCHES: files})
            assert bench.judge(bench.level).check.verdict == "failed"


def test_a_moved_bundle_leaves_its_own_as_it_was(tmp_path: Path) -> None:
    bundle = network_bundle(tmp_path / "bundle", "train")
    before = {file.name: file.read_bytes() for file in bundle.folder.iterdir()}
    moved = moved_bundle(bundle, tmp_path / "moved", 0, FLOAT32)
    after = {file.name: file.read_bytes() for file in moved.folder.iterdir()}
    assert before == {file.name: file.read_bytes() for file in bundle.folder.iterdir()}
    assert {name for name in before if before[name] != after[name]} == {
        "weights.safetensors",
        "batches.safetensors",
    }
    for name in ("weights.safetensors", "batches.safetensors"):
        assert load_file(moved.file(name)).keys() == load_file(bundle.file(name)).keys()


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


# ---------------------------------------------------------------- the learning rate of the check


@contextmanager
def trained(weight: float, gradient: float, error: float, bias: float = 0.0) -> Iterator[Reference]:
    """The reference of a step whose gradients have so large an error; the bias is near zero."""
    ones = np.ones(100)

    def step(off: float) -> dict[str, Array]:
        return {
            "0/gradient/w": ones * (gradient + off),
            "0/gradient/b": ones * (gradient + off),
            "1/parameter/w": ones * weight,
            "1/parameter/b": ones * bias,
        }

    with TemporaryDirectory() as folder:
        files = [Path(folder) / name for name in ("double", "eager", "moved")]
        for file, off in zip(files, (0.0, error, 0.0), strict=True):
            save_file(step(off), file)
        yield Reference(*files[:2]).widened(files[2:])


rates = st.floats(1e-6, 10.0)
norms = st.floats(1e-3, 1e3)


@given(rates, norms, norms, st.floats(0.0, 1e-2))
@FEW
def test_the_rate_is_gentle_and_no_gentler_than_it_must_be(
    rate: float, weight: float, gradient: float, share: float
) -> None:
    """At the rate found, rounding in the gradients moves no weight by more than the check allows
    anyway; and the workload's own rate stays wherever that holds for it."""
    allowed = FLOAT32.move / 2
    with trained(weight, gradient, share * gradient) as reference:
        found = gentle_rate(rate, reference)
        error = reference.expected["0/gradient/w"].eager_error
        size = reference.expected["1/parameter/w"].scale
    assert 0 < found <= rate
    assert found * error <= allowed * size * (1 + 1e-9)
    if rate * error <= allowed * size * 0.7:  # the bias is judged by both, which are smaller
        assert found == rate


@given(rates, norms, norms)
@FEW
def test_without_rounding_the_rate_stays(rate: float, weight: float, gradient: float) -> None:
    with trained(weight, gradient, 0.0) as reference:
        assert gentle_rate(rate, reference) == rate


@given(rates, norms, norms, st.floats(1e-6, 1e-2), st.floats(1.0, 10.0))
@FEW
def test_more_rounding_asks_for_no_higher_rate(
    rate: float, weight: float, gradient: float, share: float, times: float
) -> None:
    with trained(weight, gradient, share * gradient) as reference:
        once = gentle_rate(rate, reference)
    with trained(weight, gradient, times * share * gradient) as reference:
        assert gentle_rate(rate, reference) <= once * (1 + 1e-9)


def test_a_network_of_zeros_keeps_its_rate() -> None:
    with trained(0.0, 0.0, 0.0) as reference:
        assert gentle_rate(0.1, reference) == 0.1
