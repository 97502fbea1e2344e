"""The protocol's conformance suite: what every worker must do, whatever it is written in.

It takes a command and a bundle that the worker can run, and knows the worker by its answers alone;
`docs/protocol.md` is the law. ``CHECKS`` runs on a worker that has loaded the bundle, ``ENDINGS``
each on one of its own.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import os
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import msgspec
import numpy as np
import numpy.typing as npt
import pytest
from safetensors.numpy import load_file

from golow.profiling.summary import execution_summary
from golow.profiling.trace import read_trace
from golow.worker.protocol import VERSION, ArenaReport, LayersReport, LoadReport, TimeReport
from golow.worker.results import weighted_sum
from golow.workload.bundle import Bundle
from processes import all_gone

LIMIT = 300.0  # seconds for one answer; torch.compile builds meanwhile
QUIET = 0.2  # seconds in which nothing more may come


class Subject(NamedTuple):
    """A worker's command with its environment, and a bundle that it can run."""

    command: tuple[str, ...]
    environment: Mapping[str, str]
    bundle: Bundle

    @property
    def trains(self) -> bool:
        """Whether the bundle's iteration is a training step."""
        return self.bundle.workload.mode == "train"


class Conversation:
    """A worker with nothing but its pipes between it and the test."""

    def __init__(self, subject: Subject) -> None:
        self.subject = subject
        self.folder = tempfile.TemporaryDirectory(prefix="golow-conformance-")
        self.log = Path(self.folder.name) / "log"
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                subject.command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, **subject.environment},
            )
        self.loaded: dict[str, Any] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            with suppress(BrokenPipeError):
                pipe.close()
        self.folder.cleanup()

    def load(self) -> None:
        """Load the bundle; the answer is kept in ``loaded``."""
        self.loaded = self.ask(do="load", bundle=str(self.subject.bundle.folder))
        assert self.loaded["ok"] is True, self.loaded

    def ask(self, **request: Any) -> dict[str, Any]:
        """The answer to a request."""
        return self.say(json.dumps(request).encode() + b"\n")

    def say(self, text: bytes) -> dict[str, Any]:
        """The one line with which these bytes are answered."""
        assert self.hear(0) == b"", "it wrote without being asked"
        assert self.process.stdin is not None
        self.process.stdin.write(text)
        self.process.stdin.flush()
        heard = b""
        while not heard.endswith(b"\n"):
            more = self.hear(LIMIT)
            assert more, f"no answer to {text!r}: {self.log.read_text()[-2000:]}"
            heard += more
        assert heard.count(b"\n") == 1, f"more than one line: {heard!r}"
        answer = json.loads(heard)
        assert isinstance(answer, dict)
        return answer

    def hear(self, seconds: float) -> bytes:
        """What comes within that time, at its first coming; nothing also when the worker ended."""
        assert self.process.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            ready = selector.select(seconds)
        return os.read(self.process.stdout.fileno(), 1 << 20) if ready else b""

    def outputs(
        self, *batches: int, learning_rate: float = 0.1
    ) -> dict[str, npt.NDArray[np.float64]]:
        """The tensors of these batches."""
        file = Path(self.folder.name) / "outputs.safetensors"
        answer = self.ask(
            do="outputs", batches=list(batches), learning_rate=learning_rate, file=str(file)
        )
        assert answer == {"ok": True}
        tensors = {name: np.asarray(t, dtype=np.float64) for name, t in load_file(file).items()}
        file.unlink()
        return tensors

    def time(self, iterations: int, warmup: int) -> TimeReport:
        """The answer to a time request, which is of the protocol's form."""
        answer = self.ask(do="time", iterations=iterations, warmup=warmup)
        assert answer["ok"] is True, answer
        return msgspec.convert(answer, TimeReport, strict=True)

    def challenge(
        self, iterations: int, warmup: int, learning_rate: float = 0.1, **more: Any
    ) -> TimeReport:
        """The answer to a time request with a challenge."""
        challenge = {"first": 0, "reset": True, "learning_rate": learning_rate, **more}
        answer = self.ask(do="time", iterations=iterations, warmup=warmup, challenge=challenge)
        assert answer["ok"] is True, answer
        return msgspec.convert(answer, TimeReport, strict=True)

    def result(self) -> dict[str, npt.NDArray[np.float64]]:
        """The whole result of the last iteration."""
        file = Path(self.folder.name) / "result.safetensors"
        assert self.ask(do="result", file=str(file)) == {"ok": True}
        tensors = {name: np.asarray(t, dtype=np.float64) for name, t in load_file(file).items()}
        file.unlink()
        return tensors


# ---------------------------------------------------------------- the answers' form


def answers_one_line_a_request(worker: Conversation) -> None:
    """Also when the next request is already waiting."""
    assert worker.process.stdin is not None
    worker.process.stdin.write(b'{"do": "memory"}\n' * 3)
    worker.process.stdin.flush()
    heard = b""
    while heard.count(b"\n") < 3:
        more = worker.hear(LIMIT)
        assert more
        heard += more
    assert [json.loads(line)["ok"] for line in heard.splitlines()] == [True] * 3
    assert worker.hear(QUIET) == b""


def reports_its_load(worker: Conversation) -> None:
    """Seconds of each phase, and of what kind the other fields are."""
    report = msgspec.convert(worker.loaded, LoadReport, strict=True)
    assert "load" in report.phases
    assert all(math.isfinite(seconds) and seconds >= 0 for seconds in report.phases.values())
    assert report.artifact_bytes is None or report.artifact_bytes > 0


def refuses_unknown_requests(worker: Conversation) -> None:
    """Whatever a later golow asks, this worker lives on."""
    for request in ({"do": "dance"}, {"do": "rest", "seconds": 7}):
        answer = worker.ask(**request)
        assert (answer["ok"], answer["error"]) == (False, "unknown_request")
        assert isinstance(answer["message"], str)
        assert answer["message"]
    lives_on(worker)


def refuses_malformed_lines(worker: Conversation) -> None:
    """A line that is no request is answered as one that failed."""
    for text in (b"this is no JSON", b'{"do": ', b"[1, 2]", b'"quit"', b"{}", b"", b"\xff\xfe{"):
        answer = worker.say(text + b"\n")
        assert answer["ok"] is False
        assert answer["error"] in ("failed", "unknown_request")
    lives_on(worker)


def refuses_requests_without_their_fields(worker: Conversation) -> None:
    """It says so, and lives on."""
    without = ({"do": "outputs"}, {"do": "time"}, {"do": "outputs", "batches": [0]})
    for request in (*without, {"do": "layers"}):
        assert worker.ask(**request)["ok"] is False
    lives_on(worker)


def refuses_a_batch_that_is_not_there(worker: Conversation) -> None:
    """An index beyond the bundle's batches is a failure, not another batch."""
    count = worker.subject.bundle.workload.batches
    file = Path(worker.folder.name) / "none.safetensors"
    answer = worker.ask(do="outputs", batches=[count], learning_rate=0.1, file=str(file))
    assert (answer["ok"], answer["error"]) == (False, "failed")
    lives_on(worker)


def lives_on(worker: Conversation) -> None:
    """It still answers."""
    assert worker.ask(do="memory")["ok"] is True


def tells_its_memory(worker: Conversation) -> None:
    """Bytes, or null."""
    peak = worker.ask(do="memory")["allocated_peak"]
    assert peak is None or (isinstance(peak, int) and peak >= 0)


# ---------------------------------------------------------------- outputs


def names_its_tensors(worker: Conversation) -> None:
    """Every tensor that the check reads, and no other."""
    found = worker.outputs(0, 1)
    assert set(found) == expected_names(worker.subject)
    assert all(np.isfinite(tensor).all() for tensor in found.values())


def expected_names(subject: Subject) -> set[str]:
    """What `outputs` for two batches must hold, by the names of the state dict."""
    if not subject.trains:
        return {"0/output/0", "1/output/0"}
    state = load_file(subject.bundle.file("weights.safetensors"))
    buffers = {n for n in state if n.rpartition(".")[2].startswith(("running_", "num_batches"))}
    names = {f"{step}/{kind}" for step in (0, 1) for kind in ("loss/loss", "output/0")}
    names |= {f"{step}/buffer/{name}" for step in (0, 1) for name in buffers}
    for kind in ("0/gradient", "1/parameter", "1/momentum"):
        names |= {f"{kind}/{name}" for name in state.keys() - buffers}
    return names


def runs_the_batches_in_the_order_given(worker: Conversation) -> None:
    """The first step knows nothing of the second; another order is another result."""
    forth, back = worker.outputs(0, 1), worker.outputs(1, 0)
    assert_equal(forth, worker.outputs(0), kinds=("0/output", "0/loss", "0/gradient"))
    assert not close(forth["0/output/0"], back["0/output/0"])
    if not worker.subject.trains:
        assert close(forth["0/output/0"], back["1/output/0"])
        assert close(forth["1/output/0"], back["0/output/0"])


def goes_back_to_the_bundles_weights(worker: Conversation) -> None:
    """Before each `outputs`: whatever has been run, trained or timed meanwhile."""
    first = worker.outputs(0, 1)
    assert_equal(first, worker.outputs(0, 1))
    worker.time(3, 1)
    assert_equal(first, worker.outputs(0, 1))
    worker.outputs(2, 3, learning_rate=10.0)
    assert_equal(first, worker.outputs(0, 1))


def obeys_the_learning_rate(worker: Conversation) -> None:
    """That of the request, for this request."""
    if not worker.subject.trains:
        return
    still, moved = worker.outputs(0, learning_rate=0.0), worker.outputs(0)
    state = load_file(worker.subject.bundle.file("weights.safetensors"))
    for name in (name for name in still if name.startswith("0/parameter/")):
        weight = np.asarray(state[name.removeprefix("0/parameter/")], dtype=np.float64)
        assert close(still[name], weight)
        assert not close(moved[name], weight)


def assert_equal(
    first: Mapping[str, npt.NDArray[np.float64]],
    second: Mapping[str, npt.NDArray[np.float64]],
    kinds: tuple[str, ...] = ("",),
) -> None:
    """The tensors of these kinds are equal but for rounding: a level may take other kernels now."""
    names = [name for name in first if name.startswith(kinds)]
    assert names
    wrong = [name for name in names if not close(first[name], second[name])]
    assert not wrong


def close(first: npt.NDArray[np.float64], second: npt.NDArray[np.float64]) -> bool:
    """Equal but for float32 rounding in the last digits."""
    return bool(np.allclose(first, second, rtol=1e-4, atol=1e-5))


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
    size = sample_size(worker)
    span = {"input": 0, "start": size // 3, "length": max(1, size // 3)}
    values = [5.0, 10.0, -10.0, 15.0, 7.0, 20.0, 5.0]  # so large that bf16 shows them, too
    marked = worker.challenge(6, 1, learning_rate=0.0, marks={**span, "values": values}).results
    moved = [not near(one, other) for one, other in zip(before, marked, strict=True)]
    assert sum(moved) >= 5  # a mark may happen to hardly move a loss
    again = worker.challenge(1, 0, first=5, marks={**span, "values": values[5:6]}, learning_rate=0)
    assert_results(marked[5:6], again.results)
    assert_results(before, worker.challenge(6, 1, learning_rate=0.0).results)


def refuses_marks_that_do_not_fit(worker: Conversation) -> None:
    """Beyond a sample's end, for another number of iterations, or of an input that is not there."""
    size = sample_size(worker)
    span = {"input": 0, "start": 0, "length": 1, "values": [1.0, 1.0]}
    for wrong in ({"start": size}, {"values": [1.0]}, {"input": 7}, {"start": -1}):
        challenge = {"first": 0, "reset": True, "learning_rate": 0.1, "marks": span | wrong}
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
    """Whether they may be the same result."""
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


# ---------------------------------------------------------------- layers


def times_its_layers_or_says_why_not(worker: Conversation) -> None:
    """The steps of whole iterations, within the time that passed; or a refusal that it survives."""
    began = time.monotonic_ns()
    answer = worker.ask(do="layers", iterations=3)
    passed = time.monotonic_ns() - began
    if refused(answer):
        lives_on(worker)
        return
    layers = msgspec.convert(answer, LayersReport, strict=True).layers
    assert layers
    assert all(step.modules and step.operation and len(step.ns) == 3 for step in layers)
    assert all(ns >= 0 for step in layers for ns in step.ns)
    assert 0 < sum(ns for step in layers for ns in step.ns) <= passed
    phases = {step.phase for step in layers}
    assert phases == ({"forward", "backward", "update"} if worker.subject.trains else {"forward"})


def counts_the_iterations_by_layer(worker: Conversation) -> None:
    """They are iterations like any others: the batches go on, in training the state too, and what
    is timed or run afterwards is as if they had been timed whole."""
    rate = worker.subject.bundle.workload.optimizer.learning_rate
    found = worker.outputs(0, 1, 2, learning_rate=rate)
    if refused(worker.ask(do="layers", iterations=2)):
        return
    kind = "loss/loss" if worker.subject.trains else "output/0"
    third = float(found[f"2/{kind}"].flat[0])
    assert np.isclose(worker.time(1, 0).last or 0, third, rtol=1e-3, atol=1e-4)
    assert_equal(found, worker.outputs(0, 1, 2, learning_rate=rate))


def profiles_its_iterations_or_says_why_not(worker: Conversation) -> None:
    """A trace with as many steps as were asked for; they are iterations like any others."""
    rate = worker.subject.bundle.workload.optimizer.learning_rate
    found = worker.outputs(0, 1, learning_rate=rate)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "trace.json"
        if refused(worker.ask(do="profile", iterations=2, file=str(file))):
            lives_on(worker)
            return
        trace = read_trace(file)
    assert len(trace.steps) == 2
    assert sum(part.share for part in execution_summary(trace)) == pytest.approx(1)
    assert_equal(found, worker.outputs(0, 1, learning_rate=rate))


def plans_its_memory_or_says_why_not(worker: Conversation) -> None:
    """Buffers inside their places, and none over another one that is in use at the same time."""
    answer = worker.ask(do="arena")
    if refused(answer):
        lives_on(worker)
        return
    report = msgspec.convert(answer, ArenaReport, strict=True)
    assert report.steps
    assert all(0 <= b.first <= b.last <= len(report.steps) for b in report.buffers)
    assert all(0 <= b.offset <= b.offset + b.bytes <= report.sizes[b.place] for b in report.buffers)
    for one, other in itertools.combinations([b for b in report.buffers if b.place == "arena"], 2):
        at_once = one.first <= other.last and other.first <= one.last
        beside = one.offset + one.bytes <= other.offset or other.offset + other.bytes <= one.offset
        assert beside or not at_once, (one, other)


def refused(answer: dict[str, Any]) -> bool:
    """Whether the worker says that it cannot, which a level may."""
    if answer["ok"] is True:
        return False
    assert answer["error"] in ("unsupported", "unknown_request"), answer
    assert answer["message"]
    return True


# ---------------------------------------------------------------- manners


def leaves_the_bundle_alone(worker: Conversation) -> None:
    """The worker reads the folder and never changes it."""
    before = digest(worker.subject.bundle.folder)
    worker.outputs(0, 1)
    worker.time(2, 1)
    assert digest(worker.subject.bundle.folder) == before


def digest(folder: Path) -> str:
    """Of the names and the contents of all files."""
    found = hashlib.sha256()
    for file in sorted(folder.rglob("*")):
        found.update(str(file).encode() + (file.read_bytes() if file.is_file() else b""))
    return found.hexdigest()


def wakes(worker: Conversation) -> None:
    """Or says that it does not know how; it does what it did before either way."""
    answer = worker.ask(do="wake", mode=worker.subject.bundle.workload.mode)
    assert answer == {"ok": True} or answer["error"] == "unknown_request"
    assert len(worker.time(2, 0).host_ns) == 2


def ends_on_quit(worker: Conversation) -> None:
    """With an answer and status 0. The last of the checks: the worker is gone then."""
    assert worker.ask(do="quit") == {"ok": True}
    assert worker.process.wait(LIMIT) == 0
    assert worker.hear(0) == b""


CHECKS: tuple[Callable[[Conversation], None], ...] = (
    reports_its_load,
    answers_one_line_a_request,
    refuses_unknown_requests,
    refuses_malformed_lines,
    refuses_requests_without_their_fields,
    refuses_a_batch_that_is_not_there,
    wakes,
    tells_its_memory,
    names_its_tensors,
    runs_the_batches_in_the_order_given,
    goes_back_to_the_bundles_weights,
    obeys_the_learning_rate,
    times_what_it_was_asked_for,
    times_within_the_time_that_passed,
    speaks_this_version,
    commits_to_the_result_of_every_iteration,
    begins_where_it_is_told,
    hands_over_the_whole_result,
    is_moved_by_marks,
    refuses_marks_that_do_not_fit,
    rotates_the_batches,
    times_its_layers_or_says_why_not,
    counts_the_iterations_by_layer,
    profiles_its_iterations_or_says_why_not,
    plans_its_memory_or_says_why_not,
    uses_no_more_threads_than_it_was_given,
    leaves_the_bundle_alone,
    ends_on_quit,
)


# ---------------------------------------------------------------- how it ends otherwise


def ends_with_its_input(subject: Subject) -> None:
    """A closed standard input is the end, with status 0; before anything is loaded, too."""
    with Conversation(subject) as worker:
        assert worker.ask(do="time", iterations=1, warmup=0)["ok"] is False  # nothing is loaded
        assert worker.process.stdin is not None
        worker.process.stdin.close()
        assert worker.process.wait(LIMIT) == 0


# Starts a worker, talks to it, and says its process id. Given a bundle, it leaves it at work.
PARENT = """
import json, subprocess, sys, time
bundle, *command = sys.argv[1:]
worker = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
def send(**request):
    worker.stdin.write(json.dumps(request).encode() + b"\\n")
    worker.stdin.flush()
send(do="hello")
worker.stdout.readline()
if bundle:
    send(do="load", bundle=bundle)
    worker.stdout.readline()
    send(do="time", iterations=1, warmup=10**9)
    time.sleep(0.2)
print(worker.pid, flush=True)
time.sleep(600)
"""


def dies_with_its_parent(subject: Subject, at_work: bool = False) -> None:
    """However that dies. At work, the worker does not read that its input has closed."""
    bundle = str(subject.bundle.folder) if at_work else ""
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, bundle, *subject.command],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, **subject.environment},
    ) as parent:
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())
        parent.send_signal(signal.SIGKILL)
    assert all_gone(worker)


ENDINGS: tuple[Callable[[Subject], None], ...] = (ends_with_its_input, dies_with_its_parent)
