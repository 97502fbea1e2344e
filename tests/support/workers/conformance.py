"""The protocol's conformance suite: what every worker must do, whatever it is written in.

It takes a command and a bundle that the worker can run, and knows the worker by its answers alone;
`docs/extend/protocol.md` is the law. ``CHECKS`` runs on a worker that has loaded the bundle,
``ENDINGS`` each on one of its own.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pytest
from safetensors.numpy import load_file

from golow.programs.profiling.summary import execution_summary
from golow.programs.profiling.trace import read_trace
from golow.worker.protocol import ArenaReport, LayersReport, LoadReport
from support.processes import all_gone
from support.workers.conformance_timing import (
    begins_where_it_is_told,
    commits_to_the_result_of_every_iteration,
    follows_the_chain,
    hands_over_the_whole_result,
    is_moved_by_marks,
    marks_every_element_by_its_own_value,
    refuses_marks_that_do_not_fit,
    rotates_the_batches,
    speaks_this_version,
    times_what_it_was_asked_for,
    times_within_the_time_that_passed,
    uses_no_more_threads_than_it_was_given,
)
from support.workers.conversation import LIMIT, QUIET, Conversation, Subject, close, lives_on

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
    for text in (b"this is not JSON", b'{"do": ', b"[1, 2]", b'"quit"', b"{}", b"", b"\xff\xfe{"):
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
    """True if the worker says that it cannot, which a level may."""
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
    marks_every_element_by_its_own_value,
    follows_the_chain,
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
