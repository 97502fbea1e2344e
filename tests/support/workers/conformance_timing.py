"""What every worker must do when it is timed: part of the conformance suite."""

from __future__ import annotations

import math
import os
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

from golow.worker.marking import values_of, window
from golow.worker.protocol import VERSION, Marks
from golow.worker.results import weighted_sum
from support.workers.conversation import Conversation, close, lives_on

# ---------------------------------------------------------------- time


def times_what_it_was_asked_for(worker: Conversation) -> None:
    """As many positive samples, and a finite last value."""
    for iterations, warmup in ((1, 0), (7, 3), (20, 0)):
        report = worker.time(iterations, warmup)
        assert len(report.host_ns) == iterations
        assert all(sample > 0 for sample in report.host_ns)
        assert report.device_ns is None or len(report.device_ns) == iterations
        assert report.last is not None
        assert math.isfinite(report.last)


def times_within_the_time_that_passed(worker: Conversation) -> None:
    """The samples are nanoseconds: together no longer than the request took."""
    began = time.monotonic_ns()
    report = worker.time(10, 0)
    assert sum(report.host_ns) <= time.monotonic_ns() - began


def rotates_the_batches(worker: Conversation) -> None:
    """Iteration i uses batch i, on from request to request, untimed ones counted; in training each
    step goes on from the one before. ``last`` tells which batch it was."""
    count = worker.subject.bundle.workload.batches
    rate = worker.subject.bundle.workload.optimizer.learning_rate
    found = worker.outputs(*range(count), learning_rate=rate)
    kind = "loss/loss" if worker.subject.trains else "output/0"
    expected = [float(found[f"{step}/{kind}"].flat[0]) for step in range(count)]
    assert len(set(np.round(expected, 4))) == count
    # `outputs` has gone back to the bundle's weights, and so to the first batch.
    got = [worker.time(1, 0).last for _ in range(count)]
    assert np.allclose(got, expected, rtol=1e-3, atol=1e-4)
    if not worker.subject.trains:
        assert np.isclose(worker.time(1, 2).last or 0, expected[2], rtol=1e-3, atol=1e-4)
        assert np.isclose(worker.time(2, 0).last or 0, expected[4 % count], rtol=1e-3, atol=1e-4)


# ---------------------------------------------------------------- what it is challenged to


def speaks_this_version(worker: Conversation) -> None:
    """It says so when it loads."""
    assert worker.loaded["protocol"] == VERSION


def commits_to_the_result_of_every_iteration(worker: Conversation) -> None:
    """Untimed ones included, from the bundle's weights; they are those of `outputs`."""
    count = worker.subject.bundle.workload.batches
    results = worker.challenge(count, 2).results
    assert len(results) == count + 2
    assert_results(results, worker.challenge(2, count).results)
    if worker.subject.trains:
        wanted = [worker.outputs(*range(n + 1))[f"{n}/loss/loss"].item() for n in range(count)]
    else:
        outputs = worker.outputs(*range(count))
        wanted = [weighted_sum([outputs[f"{n}/output/0"]]) for n in range(count)]
    assert_results(results[:count], wanted)
    assert worker.time(1, 0).results == ()


def begins_where_it_is_told(worker: Conversation) -> None:
    """At the iteration of that number, which says the batch."""
    results = worker.challenge(4, 0, learning_rate=0.0).results
    assert_results(results[3:], worker.challenge(1, 0, learning_rate=0.0, first=3).results)
    assert not near(results[3], results[0])


def hands_over_the_whole_result(worker: Conversation) -> None:
    """Of the last iteration: what `outputs` writes of it."""
    worker.challenge(1, 1)
    found, wanted = worker.result(), worker.outputs(0, 1)
    kinds = (
        ("loss/", "parameter/", "momentum/", "buffer/") if worker.subject.trains else ("output",)
    )
    names = [
        name.removeprefix("1/") for name in wanted if name.removeprefix("1/").startswith(kinds)
    ]
    assert names
    for name in names:
        assert close(found[name], wanted[f"1/{name}"]), name


def is_moved_by_marks(worker: Conversation) -> None:
    """Each iteration by its own; afterwards the batches are the bundle's."""
    before = worker.challenge(6, 1, learning_rate=0.0).results
    marks = middle(worker)
    marked = worker.challenge(6, 1, learning_rate=0.0, marks=marks).results
    moved = [not near(one, other) for one, other in zip(before, marked, strict=True)]
    assert sum(moved) >= 5  # a mark may happen to hardly move a loss
    again = worker.challenge(1, 0, first=5, marks=marks, learning_rate=0)
    assert_results(marked[5:6], again.results)
    assert_results(before, worker.challenge(6, 1, learning_rate=0.0).results)


def marks_every_element_by_its_own_value(worker: Conversation) -> None:
    """The result is that of a bundle in which the protocol's values are already written."""
    bundle, marks = worker.subject.bundle, Marks(**middle(worker))
    found = worker.challenge(1, 0, first=2, learning_rate=0.0, marks=middle(worker)).results
    batches = load_file(bundle.file("batches.safetensors"))
    given = batches["2/input/0"].reshape(bundle.workload.batch, -1)
    start = window(marks, 2, None)
    part = given[:, marks.start : marks.start + marks.length]
    part[...] = values_of(marks, len(given))[start : start + part.size].reshape(part.shape)
    with tempfile.TemporaryDirectory() as folder:
        other = Path(folder) / "bundle"
        shutil.copytree(bundle.folder, other)
        save_file(batches, other / "batches.safetensors")
        assert worker.ask(do="load", bundle=str(other))["ok"] is True
        wanted = worker.challenge(1, 0, first=2, learning_rate=0.0).results
    assert worker.ask(do="load", bundle=str(bundle.folder))["ok"] is True
    assert_results(found, wanted)


def follows_the_chain(worker: Conversation) -> None:
    """The marks of an iteration depend on the cell of the result before it, wherever the block
    begins."""
    chained = middle(worker) | {"chain": 1e-3}
    found = worker.challenge(5, 1, learning_rate=0.0, marks=chained).results
    free = worker.challenge(5, 1, learning_rate=0.0, marks=middle(worker)).results
    assert sum(not near(one, other) for one, other in zip(found, free, strict=True)) >= 2
    for first in (1, 4):
        marks = chained | {"previous": found[first - 1]}
        again = worker.challenge(1, 0, first=first, marks=marks, learning_rate=0.0)
        assert_results(found[first : first + 1], again.results)


def middle(worker: Conversation) -> dict[str, Any]:
    """Marks in the middle third of every sample, so large that bf16 shows them, too."""
    size = sample_size(worker)
    span = {"input": 0, "start": size // 3, "length": max(1, size // 3)}
    return span | {"low": -20.0, "high": 20.0, "whole": False, "seed": 2**32 - 7}


def refuses_marks_that_do_not_fit(worker: Conversation) -> None:
    """Beyond a sample's end, or of an input that is not there."""
    size = sample_size(worker)
    for wrong in ({"start": size}, {"input": 7}, {"start": -1}):
        marks = middle(worker) | {"length": 1} | wrong
        challenge = {"first": 0, "reset": True, "learning_rate": 0.1, "marks": marks}
        answer = worker.ask(do="time", iterations=2, warmup=0, challenge=challenge)
        assert (answer["ok"], answer["error"]) == (False, "failed"), wrong
    lives_on(worker)


def sample_size(worker: Conversation) -> int:
    """Elements of one sample of the first input."""
    return math.prod(worker.subject.bundle.workload.inputs[0].shape[1:])


def assert_results(first: Sequence[float | None], second: Sequence[float | None]) -> None:
    """The same but for rounding."""
    assert len(first) == len(second)
    for one, other in zip(first, second, strict=True):
        assert near(one, other), (first, second)


def near(one: float | None, other: float | None) -> bool:
    """True if they may be the same result."""
    assert one is not None
    assert other is not None
    return math.isclose(one, other, rel_tol=1e-3, abs_tol=1e-4)


def uses_no_more_threads_than_it_was_given(worker: Conversation) -> None:
    """Threads that get a core while it computes, whatever it says of them. It may have more if the
    system lets all of them together have no more cores than that."""
    given = int(worker.subject.environment["OMP_NUM_THREADS"])
    worker.time(20, 0)
    at_work = threads_at_work(worker, iterations=30) or 1
    assert at_work <= given or len(allowed_cores(worker)) <= given


def threads_at_work(worker: Conversation, iterations: int) -> int | None:
    """Threads that run for more than a tenth of the time of so many iterations; None where the
    system does not tell."""
    before = running_ns(worker.process.pid)
    timed = sum(worker.time(iterations, 0).host_ns)
    after = running_ns(worker.process.pid)
    used = [ns - before.get(thread, 0) for thread, ns in after.items()]
    print(f"threads ran {sorted(used)[-3:]} ns of {timed}")
    return sum(ns > 0.1 * timed for ns in used) if after else None


def allowed_cores(worker: Conversation) -> set[int]:
    """The hardware threads on which any of its threads may run."""
    tasks = Path(f"/proc/{worker.process.pid}/task").iterdir()
    return set().union(*(os.sched_getaffinity(int(task.name)) for task in tasks))


def running_ns(process: int) -> dict[str, int]:
    """Nanoseconds that each thread of the process has run; empty where the system does not tell."""
    found = {}
    for thread in Path(f"/proc/{process}/task").glob("*/schedstat"):
        found[thread.parent.name] = int(thread.read_text().split()[0])
    return found
