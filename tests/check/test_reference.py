"""What levels are compared with: no more of it is made than a verdict needs, and at a rate at which
rounding decides nothing."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from golow.check.gentle_rate import gentle_rate
from golow.check.moved_bundle import write_moved_bundle
from golow.check.reference import BATCHES, OTHER_BATCHES, Standard
from golow.check.rounding import FLOAT32
from golow.check.rule import Reference, check, confirm, may_be_rounding, recheck
from golow.check.trust import trusted
from golow.levels import ladder
from golow.records.errors import WorkerFailure
from golow.worker.client import Worker
from golow.workload.bundle import write_bundle
from golow.workload.prepare import prepare
from golow.workload.request import Request
from support.examples import examples
from support.workers.bundles import network_bundle

pytestmark = pytest.mark.usefixtures("forked")

Array = npt.NDArray[np.float64]
FEW = examples(40)  # each writes and reads files


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


seeds = st.integers(0, 2**32 - 1)
factors = st.sampled_from([0.0, 0.5, 2.0, 5.0, 20.0])


@pytest.mark.slow
@given(seeds, factors, factors)
@examples(100)
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

    def _summed(self, double: Any, batches: tuple[int, ...]) -> Iterator[Path]:
        return iter(())

    def level(self, batches: list[int], learning_rate: float, file: Path) -> None:
        """Write what the level makes of the batches."""
        shutil.copy(self._tries[tuple(batches)].level, file)


@pytest.mark.slow
@given(seeds, factors, factors, factors)
@examples(60)
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
    assert notes[0].startswith("also judged by 3 perturbed references: float32 roundings move 0/")


def test_a_draw_that_is_not_finite_proves_nothing(tmp_path: Path) -> None:
    for place in range(3):
        with tensor_files(0, 1.0, 20.0) as files:
            tensors = load_file(files.draws[place])
            tensors["0/output/1"][0] = math.nan
            save_file(tensors, files.draws[place])
            bench = Bench(tmp_path, {BATCHES: files})
            assert bench.judge(bench.level).check.verdict == "failed"


def test_of_a_wrong_eager_no_limit_remains(tmp_path: Path) -> None:
    """Eager is off by far more than every draw: the limits are those of the draws alone."""
    with tensor_files(0, 1.0, 0.0) as files:
        wrong = {name: 2 * tensor for name, tensor in load_file(files.reference.file).items()}
        save_file(wrong, tmp_path / "eager")
        reference = Reference(files.reference.file, tmp_path / "eager")
        found = trusted(reference, lambda *, rounded: iter(files.draws))
        assert not found.reference.trusts_eager
        assert found.wider is not None
        for name, item in found.reference.expected.items():
            assert item.eager_error == pytest.approx(item.scale)
            assert found.reference.limit(name) < 0.1 * reference.limit(name)
            assert found.wider.limit(name) >= found.reference.limit(name)
        assert check(found.reference, tmp_path / "eager").verdict == "differs"
        assert check(reference, tmp_path / "eager").verdict == "match"


@pytest.mark.slow
@given(seeds, st.sampled_from([0.1, 1.0, 3.0, 30.0]))
@examples(60)
def test_a_believed_eager_keeps_its_limits(seed: int, spread: float) -> None:
    """Whatever the draws do; and no more of them are made than it takes to believe it."""
    made = []

    with tensor_files(seed, spread, 0.0) as files:

        def draws(*, rounded: bool) -> Iterator[Path]:
            for draw in files.draws:
                made.append(rounded)
                yield draw

        found = trusted(files.reference, draws).reference
        alone = files.reference.alone()
        assert found is files.reference or made == [True] * 3 + [False] * 3
        for number, draw in enumerate(files.draws):
            if alone.explains_eager:
                assert found is files.reference
                assert made == [True] * number
                break
            wider = alone.rounded(draw)
            assert all(wider.limit(name) >= alone.limit(name) for name in alone.expected)
            alone = wider


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_roundings_that_overflow_accuse_nobody(value: float, tmp_path: Path) -> None:
    with tensor_files(0, 1.0, 0.0) as files:
        tensors = load_file(files.reference.file)
        save_file({name: 2 * tensor for name, tensor in tensors.items()}, tmp_path / "eager")
        tensors["0/output/1"][0] = value
        save_file(tensors, tmp_path / "draw")
        reference = Reference(files.reference.file, tmp_path / "eager")
        found = trusted(reference, lambda *, rounded: iter([tmp_path / "draw"]))
    assert found.reference is reference


def test_moved_gradients_widen_each_tensor_by_its_own(tmp_path: Path) -> None:
    """A gradient that cancels does not widen the limits of its neighbours, as draws do."""
    with tensor_files(0, 1.0, 1.0) as files:
        name = "0/gradient/1"
        exact = load_file(files.reference.file)
        off = 0.5 * np.abs(exact[name]).max()
        save_file(exact | {name: exact[name] + off}, tmp_path / "summed")
        draws, wider = (
            files.reference.widened(files.draws),
            files.reference.widened(files.draws, [tmp_path / "summed"]),
        )
    for other in draws.expected.keys() - {name}:
        assert wider.limit(other) == draws.limit(other)
    assert wider.expected[name].rounding == pytest.approx(off)


def test_a_moved_bundle_leaves_its_own_as_it_was(tmp_path: Path) -> None:
    bundle = network_bundle(tmp_path / "bundle", "train")
    before = {file.name: file.read_bytes() for file in bundle.folder.iterdir()}
    moved = write_moved_bundle(bundle, tmp_path / "moved", 0, FLOAT32)
    after = {file.name: file.read_bytes() for file in moved.folder.iterdir()}
    assert before == {file.name: file.read_bytes() for file in bundle.folder.iterdir()}
    assert {name for name in before if before[name] != after[name]} == {
        "weights.safetensors",
        "batches.safetensors",
    }
    for name in ("weights.safetensors", "batches.safetensors"):
        assert load_file(moved.file(name)).keys() == load_file(bundle.file(name)).keys()


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


# ---------------------------------------------------------------- memory


class Hungry(torch.nn.Module):
    """Runs out of memory once for each time that the file is put there."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.file = file

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.file.exists():
            self.file.unlink()
            raise torch.OutOfMemoryError("CUDA out of memory, planted")
        return 2 * x


@pytest.mark.slow
def test_the_reference_tries_once_more_without_memory_and_eager_does_not(tmp_path: Path) -> None:
    """Eager is timed, and so runs with PyTorch's own settings alone."""
    hungry, file = tmp_path / "hungry", tmp_path / "outputs"
    bundle, _ = write_bundle(
        prepare(Request(Hungry(hungry), torch.randn(4, 8))), tmp_path / "bundle"
    )
    for name in ("eager:float64", "eager"):
        chosen = ladder.choose(name, "infer", "cpu")
        launch = chosen.prepare(bundle, tmp_path)
        with Worker(name, launch.command, threads=1, environment=launch.environment) as worker:
            worker.load(bundle.folder)
            hungry.touch()
            if chosen.variant:
                worker.outputs([0], 0.1, file)
                given = load_file(bundle.file("batches.safetensors"))["0/input/0"]
                np.testing.assert_array_equal(load_file(file)["0/output/0"], 2.0 * given)
            else:
                with pytest.raises(WorkerFailure, match="planted") as failure:
                    worker.outputs([0], 0.1, file)
                assert failure.value.kind == "out of memory"
        assert not hungry.exists()
