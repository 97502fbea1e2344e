"""What every worker that trains epochs must do: ``epoch``, ``save``, ``restore`` and ``predict``.

``CHECKS`` hold a level, by its answers and files alone, against the plain loop of `courses`.
`students` starts the level's real workers; `InProcess` stands in for one with a program of the
test's own process, so that a fault can be planted.
"""

from __future__ import annotations

import binascii
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import msgspec
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from golow.levels import ladder
from golow.records.errors import WorkerFailure
from golow.worker.client import Worker
from golow.worker.protocol import EpochReport, PredictReport
from golow.worker.serve import serve
from golow.worker.served_program import Program
from golow.workload.bundle import Bundle
from support.workers.courses import (
    BATCH,
    BATCHES,
    RATES,
    SCALE,
    SHIFT,
    Course,
    State,
    Taught,
    batches,
    evaluated,
    taught,
)
from support.workers.courses import make_course as make_course


class Student(Protocol):
    """What the checks ask of a worker; `golow.worker.client.Worker` has it."""

    load: Any
    epoch: Any
    save: Any
    restore: Any
    predict: Any


class InProcess:
    """A program of this process, asked by the protocol's own lines."""

    def __init__(self, program: Program) -> None:
        self.program = program

    def ask(self, **request: Any) -> dict[str, Any]:
        """The answer to a request, if it is not refused."""
        answers = io.BytesIO()
        serve(self.program, io.BytesIO(msgspec.json.encode(request) + b"\n"), answers)
        answer: dict[str, Any] = msgspec.json.decode(answers.getvalue())
        if not answer["ok"]:
            raise WorkerFailure(answer["error"], answer["message"])
        return answer

    def load(self, bundle: Path) -> None:
        self.ask(do="load", bundle=str(bundle))

    def epoch(self, data: Path, order: Path, rates: Sequence[float], **rest: Any) -> EpochReport:
        answer = self.ask(do="epoch", data=str(data), order=str(order), rates=rates, **rest)
        return msgspec.convert(answer, EpochReport)

    def save(self, file: Path) -> None:
        self.ask(do="save", file=str(file))

    def restore(self, file: Path) -> None:
        self.ask(do="restore", file=str(file))

    def predict(self, data: Path, file: Path, **rest: Any) -> PredictReport:
        answer = self.ask(do="predict", data=str(data), file=str(file), **rest)
        return msgspec.convert(answer, PredictReport)


class Students:
    """Those who take one course, each started when it is first wanted.

    tolerance: how far they may be from the plain loop in float64, relative to a tensor's size; 0
    for not a bit, from the loop in float32. drift: the same after two epochs, where roundings have
    grown; the tolerance unless given.
    """

    def __init__(
        self,
        course: Course,
        make: Callable[[Bundle], Student],
        tolerance: float,
        drift: float | None = None,
    ) -> None:
        self.course, self.tolerance, self._make = course, tolerance, make
        self.drift = tolerance if drift is None else drift
        self.dtype = torch.float64 if tolerance else torch.float32
        self._started: dict[str, Student] = {}

    def training(self, name: str = "one") -> Student:
        """The worker of that name, at the start of its training."""
        student = self._student(name, self.course.training)
        student.restore(self._start)
        return student

    def inference(self) -> Student:
        """The worker for inference."""
        return self._student("inference", self.course.inference)

    def end(self, name: str) -> None:
        """That worker has failed, which golow's client answers by ending it."""
        del self._started[name]

    def taught(self, *orders: Path, start: State | None = None, count: int = BATCHES) -> Taught:
        """What the plain loop comes to."""
        return taught(self.course, orders, self.dtype, start, count)

    def file(self, name: str) -> Path:
        """A place for a file of the test's."""
        return self.course.folder / f"{name}.safetensors"

    def saved(self, student: Student, name: str = "saved") -> State:
        """The student's state, by way of a file."""
        student.save(self.file(name))
        return load_file(self.file(name))

    @cached_property
    def _start(self) -> Path:
        save_file(self.course.start(), self.file("start"))
        return self.file("start")

    def _student(self, name: str, bundle: Bundle) -> Student:
        if name not in self._started:
            self._started[name] = self._make(bundle)
            self._started[name].load(bundle.folder)
        return self._started[name]


@contextmanager
def students(name: str, course: Course, cache: Path, tolerance: float = 1e-4) -> Iterator[Students]:
    """Real workers of the level of that name."""
    with ExitStack() as stack:

        def started(bundle: Bundle) -> Student:
            workload = bundle.workload
            chosen = ladder.choose(name, workload.mode, workload.device)
            launch = chosen.prepare(bundle, cache)
            return stack.enter_context(
                Worker(name, launch.command, threads=1, environment=launch.environment)
            )

        yield Students(course, started, tolerance)


# ---------------------------------------------------------------- training


def trains_as_a_plain_loop_does(students: Students) -> None:
    """Each batch in its place, moved, turned and normalised, at its own rate; the smaller last
    one too. Losses, and in the end parameters, running statistics and momentum."""
    student, (order, _) = students.training(), students.course.orders
    report = epoch(students, student, order)
    wanted = students.taught(order)
    assert_equal(students, {"losses": report.losses}, {"losses": wanted.losses})
    assert_equal(students, students.saved(student), wanted.state)
    assert report.nanoseconds > 0


def consumes_what_the_order_names(students: Students) -> None:
    """By the checksum, which goes on from one epoch to the next."""
    student, wanted = students.training(), 7
    for order in students.course.orders:
        report = epoch(students, student, order, checksum=wanted)
        for pixels, _, labels in batches(students.course, order):
            for tensor in (pixels, labels):
                wanted = binascii.crc32(tensor.numpy().tobytes(), wanted)
        assert report.checksum == wanted


def goes_on_from_piece_to_piece(students: Students) -> None:
    """An epoch in pieces is the epoch."""
    (order, _), student = students.course.orders, students.training()
    whole, wanted = epoch(students, student, order), students.saved(student)
    student = students.training()
    checksum, losses = 0, []
    for first, count in ((0, 1), (1, 2), (3, 1)):
        report = epoch(students, student, order, first=first, count=count, checksum=checksum)
        checksum, losses = report.checksum, [*losses, *report.losses]
    assert checksum == whole.checksum
    assert_equal(students, {"losses": losses}, {"losses": whole.losses})
    assert_equal(students, students.saved(student), wanted)


def goes_on_from_a_saved_state(students: Students) -> None:
    """Another process does what this one would have done."""
    first, second = students.course.orders
    student = students.training()
    epoch(students, student, first)
    students.saved(student)
    epoch(students, student, second)
    wanted = students.saved(student, "whole")
    successor = students.training("two")
    successor.restore(students.file("saved"))
    epoch(students, successor, second)
    assert_equal(students, students.saved(successor), wanted)
    assert_equal(students, wanted, students.taught(first, second).state, students.drift)


def saves_what_pytorch_loads(students: Students) -> None:
    """Under the state dict's names and in its shapes, nothing else; no momentum at the start."""
    student = students.training()
    before = students.saved(student, "before")
    assert not any(tensor.any() for name, tensor in before.items() if name.startswith("momentum/"))
    epoch(students, student, students.course.orders[0], count=1)
    state = students.saved(student)
    names: dict[str, set[str]] = {}
    for kind, _, name in (name.partition("/") for name in state):
        names.setdefault(kind, set()).add(name)
    module = students.course.module(state)  # strictly
    assert names.keys() - {"scaler"} == {"parameter", "buffer", "momentum"}
    assert names["parameter"] == names["momentum"] == {n for n, _ in module.named_parameters()}
    assert state["buffer/bn1.num_batches_tracked"] == 1


def forgets_momentum_that_a_state_lacks(students: Students) -> None:
    """What was there before is not left over."""
    student, (order, _) = students.training(), students.course.orders
    epoch(students, student, order)
    state = students.saved(student)
    save_file({n: t for n, t in state.items() if "momentum" not in n}, students.file("without"))
    student.restore(students.file("without"))
    epoch(students, student, order, count=2)
    wanted = students.taught(order, start=state, count=2)
    assert_equal(students, students.saved(student), wanted.state)


def begins_each_run_anew(students: Students) -> None:
    """From the same start it does the same, whatever it trained before; on a CPU to the bit."""
    first, second = students.course.orders
    runs: list[dict[str, Any]] = []
    for _ in range(2):
        student = students.training()
        losses = epoch(students, student, first).losses
        runs.append({"losses": losses, **students.saved(student)})
        epoch(students, student, second)
    before, after = runs
    assert before.keys() == after.keys()
    assert_equal(students, after, before)
    if students.course.training.workload.device == "cpu":
        for name, value in before.items():
            assert torch.equal(torch.as_tensor(after[name]), torch.as_tensor(value)), name


def goes_back_by_load(students: Students) -> None:
    """To the bundle's weights, and to no momentum."""
    student, (order, _) = students.training(), students.course.orders
    epoch(students, student, order)
    student.load(students.course.training.folder)
    epoch(students, student, order, count=2)
    assert_equal(students, students.saved(student), students.taught(order, count=2).state)


def refuses_batches_that_the_order_lacks(students: Students) -> None:
    """It fails, and does not train on others instead."""
    student, (order, _) = students.training("two"), students.course.orders
    with pytest.raises(WorkerFailure) as raised:
        student.epoch(
            students.course.data, order, [0.1, 0.1], first=BATCHES - 1, scale=SCALE, shift=SHIFT
        )
    assert raised.value.kind == "failed"
    students.end("two")


def epoch(
    students: Students,
    student: Student,
    order: Path,
    first: int = 0,
    count: int = BATCHES,
    checksum: int = 0,
) -> EpochReport:
    """Train on so many batches of the order."""
    report: EpochReport = student.epoch(
        students.course.data,
        order,
        RATES[first : first + count],
        first=first,
        scale=SCALE,
        shift=SHIFT,
        checksum=checksum,
    )
    assert len(report.losses) == count
    return report


# ---------------------------------------------------------------- inference


def predicts_with_the_weights_that_it_is_given(students: Students) -> None:
    """Those of the bundle at first, then those of a state; every row of the file in the file's
    order, without augmentation, by the running statistics."""
    student, course = students.inference(), students.course
    student.load(course.inference.folder)
    state = taught(course, course.orders, torch.float32).state
    save_file(state, students.file("given"))
    for given in (course.start(course.inference), state):
        if given is state:
            student.restore(students.file("given"))
        found = predicted(students, student, 0, BATCHES)
        assert found.dtype == torch.float32
        wanted = evaluated(course, given, students.dtype)
        assert_equal(students, {"output": found}, {"output": wanted})


def predicts_in_pieces(students: Students) -> None:
    """Batches in the middle, and the smaller last one by itself."""
    student = students.inference()
    whole = predicted(students, student, 0, BATCHES)
    for first, count in ((1, 2), (3, 1)):
        piece = predicted(students, student, first, count)
        wanted = whole[first * BATCH : (first + count) * BATCH]
        assert_equal(students, {"output": piece}, {"output": wanted})


def predicted(students: Students, student: Student, first: int, count: int) -> Tensor:
    """The outputs of so many batches of the data set."""
    file = students.file("output")
    report = student.predict(
        students.course.data, file, first=first, batches=count, scale=SCALE, shift=SHIFT
    )
    assert report.nanoseconds > 0
    return load_file(file)["output"]


# ---------------------------------------------------------------- the judgement


def assert_equal(
    students: Students,
    found: Mapping[str, Any],
    wanted: Mapping[str, Any],
    tolerance: float | None = None,
) -> None:
    """To the bit, or within the tolerance of a tensor's size. More may be found than is wanted."""
    allowed = students.tolerance if tolerance is None else tolerance
    assert wanted.keys() <= found.keys(), sorted(wanted.keys() - found.keys())
    wrong = []
    for name in wanted:
        right, given = (torch.as_tensor(t).double() for t in (wanted[name], found[name]))
        assert given.shape == right.shape, name
        size, error = (float(t.square().mean().sqrt()) for t in (right, given - right))
        if not error <= allowed * (size + 0.01):  # also where it is NaN
            wrong.append(f"{name}: {error:.3g} from {size:.3g}")
    assert not wrong, "\n".join(wrong)


TRAINING: tuple[Callable[[Students], None], ...] = (
    trains_as_a_plain_loop_does,
    consumes_what_the_order_names,
    goes_on_from_piece_to_piece,
    goes_on_from_a_saved_state,
    saves_what_pytorch_loads,
    forgets_momentum_that_a_state_lacks,
    begins_each_run_anew,
    goes_back_by_load,
    refuses_batches_that_the_order_lacks,
)
INFERENCE: tuple[Callable[[Students], None], ...] = (
    predicts_with_the_weights_that_it_is_given,
    predicts_in_pieces,
)
CHECKS = TRAINING + INFERENCE
