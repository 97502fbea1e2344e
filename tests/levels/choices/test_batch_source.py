"""Where an iteration gets its batch: whatever the way, the numbers and the marks that arrive are
the same. Copies to a GPU are in test_choices_gpu.py; here the device is the host itself."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from golow.levels.choices.batch_source import CHOICES, FromHost, FromLoader
from golow.levels.choices.choice import Alternative
from golow.levels.ladder import choose
from golow.levels.starter import Starter
from golow.levels.torch.batch_sources import Batch, Parcel, source
from golow.levels.torch.loading import Loaded
from golow.records.errors import Unsupported
from golow.records.workload import Mode
from golow.worker.client import Worker
from golow.worker.marking import values_of
from golow.worker.protocol import Challenge, Marks
from golow.workload.bundle import Bundle
from support.workers.bundles import network_bundle

pytestmark = pytest.mark.usefixtures("forked")

CPU = torch.device("cpu")
MARKS = Marks(input=0, start=5, length=7, low=-2.0, high=2.7, whole=False, seed=7)
SENT = [FromHost(images=images) for images in ("float32", "float64", "uint8")]
FLOATS = st.floats(-(2.0**40), 2.0**40, width=32, allow_subnormal=False)
LOADERS = "data_loader data_loader_2 data_loader_4 data_loader_2_prefetch_8"
KINDS = [None, *SENT, FromLoader(), FromLoader(workers=2), FromLoader(workers=2, prefetch=3)]


def batches(count: int = 3) -> list[Batch]:
    generator = torch.Generator().manual_seed(1)
    return [
        Batch(
            (torch.randn(4, 3, 5, 5, generator=generator), torch.full((4, 2), index)),
            (torch.randint(10, (4,), generator=generator),),
        )
        for index in range(count)
    ]


def same(one: Batch, other: Batch) -> bool:
    pairs = zip((*one.inputs, *one.targets), (*other.inputs, *other.targets), strict=True)
    return all(a.dtype == b.dtype and torch.equal(a, b) for a, b in pairs)


def marked_by_hand(batch: Batch, start: int) -> Batch:
    first = batch.inputs[0].clone()
    values = torch.from_numpy(values_of(MARKS, len(first))[start : start + 7 * len(first)])
    first.view(len(first), -1)[:, MARKS.start : MARKS.start + MARKS.length] = values.view(-1, 7)
    return Batch((first, *batch.inputs[1:]), batch.targets)


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_the_same_batches_arrive_in_any_order(kind: FromHost | FromLoader | None) -> None:
    expected, tested = batches(), source(kind, batches(), CPU)
    for index in (0, 1, 2, 0, 1, 1, 0, 2, 2):
        assert same(tested.take(index), expected[index]), index
    tested.seek(1)
    assert same(tested.take(1), expected[1])


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_marks_arrive_with_the_batch_they_are_written_into(
    kind: FromHost | FromLoader | None,
) -> None:
    expected, tested = batches(), source(kind, batches(), CPU)
    tested.seek(1)
    with tested.marked(MARKS) as write:
        for index, start in ((1, 0), (2, 65535), (0, 300), (1, 1)):
            write(index, start)
            assert same(tested.take(index), marked_by_hand(expected[index], start))
    for index in (0, 1, 2):
        assert same(tested.take(index), expected[index]), "the batches are as before"


def test_a_mark_is_in_what_is_sent() -> None:
    """A level that did not copy its batch would compute with other numbers: the marks are not
    beside the way of the batch."""
    for kind in SENT:
        tested = source(kind, batches(), CPU)
        parcel: Parcel = tested._inputs[0][0]  # type: ignore[attr-defined]
        before = parcel.packed.clone()
        with tested.marked(MARKS) as write:
            write(0, 25)
            changed = (parcel.packed != before).view(4, -1)
            assert changed[:, 5:12].any() and not changed[:, 12:].any()
        assert torch.equal(parcel.packed, before)


@given(
    st.lists(FLOATS, min_size=1, max_size=40),
    FLOATS,
)
@settings(deadline=None)
def test_bytes_lose_nothing(numbers: list[float], mark: float) -> None:
    """Pictures travel as uint8, but every number arrives exactly, marked or not."""
    picture = torch.tensor(numbers).view(1, 1, 1, -1)
    tested = source(FromHost(images="uint8"), [Batch((picture.clone(),), ())], CPU)
    parcel: Parcel = tested._inputs[0][0]  # type: ignore[attr-defined]
    assert parcel.packed.dtype == torch.uint8
    assert torch.equal(tested.take(0).inputs[0], picture)
    marks = Marks(input=0, start=0, length=1, low=mark, high=mark, whole=False, seed=0)
    with tested.marked(marks) as write:
        write(0, 0)
        assert tested.take(0).inputs[0].flatten()[0] == torch.tensor(mark)
    assert torch.equal(tested.take(0).inputs[0], picture)


def test_small_classes_travel_in_a_small_type() -> None:
    def sent(classes: Tensor, kind: FromHost) -> torch.dtype:
        tested = source(kind, [Batch((torch.zeros(2, 1, 2, 2) + 0.5,), (classes,))], CPU)
        assert torch.equal(tested.take(0).targets[0], classes)
        parcel: Parcel = tested._targets[0][0]  # type: ignore[attr-defined]
        return parcel.packed.dtype

    small = FromHost(images="uint8")
    assert sent(torch.tensor([0, 255]), small) == torch.uint8
    assert sent(torch.tensor([0, 256]), small) == torch.int32
    assert sent(torch.tensor([-100, 3]), small) == torch.int32
    assert sent(torch.tensor([0, 2**40]), small) == torch.int64
    assert sent(torch.tensor([0, 1]), FromHost()) == torch.int64


def test_what_is_no_picture_is_not_sent_as_one() -> None:
    words = [Batch((torch.zeros(2, 5, dtype=torch.int64),), ())]
    for images in ("uint8", "float64"):
        with pytest.raises(Unsupported, match=f"no input is an image .* {images}"):
            source(FromHost(images=images), words, CPU)  # type: ignore[arg-type]
    assert str(source(FromHost(), words, CPU)) == "the host's memory, pageable, the host waits"


def test_a_loader_starts_no_process_twice() -> None:
    """Jumping to another batch throws away what was prepared, and keeps the workers."""
    tested = Loaded(batches(), CPU, FromLoader(workers=2))
    before = [worker.pid for worker in tested._stream._workers]  # type: ignore[attr-defined]
    for index in (2, 0, 2, 1):
        tested.take(index)
    assert [worker.pid for worker in tested._stream._workers] == before  # type: ignore[attr-defined]


# ---------------------------------------------------------------- in a worker


@contextmanager
def worker_of(name: str, bundle: Bundle, folder: Path) -> Iterator[Worker]:
    choice = choose(name, bundle.workload.mode)
    with (
        Starter() as starter,
        starter.worker(name, choice.prepare(bundle, folder), bundle) as worker,
    ):
        worker.load(bundle.folder)
        yield worker


def timed(worker: Worker) -> list[float]:
    """Results of marked iterations, after jumps."""
    found: list[float] = []
    for first in (0, 6, 3):
        marks = Marks(input=0, start=3, length=40, low=-0.4, high=0.9, whole=False, seed=first)
        challenge = Challenge(first=first, reset=True, learning_rate=0.05, marks=marks)
        found += worker.time(4, 1, challenge=challenge).results
    return found


def named(names: str, mode: Mode) -> list[Alternative]:
    """Those alternatives, of all that there are on a CPU."""
    [choice] = CHOICES
    offered = {one.name: one for one in choice.offered("eager", mode, "cpu")}
    assert " ".join(offered) == LOADERS
    return [offered[name] for name in names.split()]


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "names"), [("infer", LOADERS), ("train", "data_loader_2")])
def test_loaders_in_a_worker_give_eagers_results(mode: Mode, names: str, tmp_path: Path) -> None:
    bundle = network_bundle(tmp_path / "bundle", mode)
    with worker_of("eager", bundle, tmp_path) as worker:
        assert worker.choices(["batch_source"]) == {"batch_source": "where it is used"}
        expected = timed(worker)
    for alternative in named(names, mode):
        with worker_of(f"eager+{alternative.name}", bundle, tmp_path) as worker:
            assert worker.choices(["batch_source"]) == {"batch_source": alternative.value}
            assert timed(worker) == expected
