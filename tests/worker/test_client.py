"""Every way in which a worker fails is a `WorkerFailure` with its reason, and nobody is left over.

The workers are real processes: ``workers/faulty.py`` serves as golow's own do until its fault.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from golow.records.errors import Unsupported, WorkerFailure
from golow.worker import conversation, process
from golow.worker.client import Worker
from golow.worker.dead_worker import LOG_LINES
from golow.worker.time_limits import Limits
from golow.workload.bundle import Bundle
from support.places import WORKERS
from support.processes import all_gone, family, is_gone, soon
from support.workers.bundles import product_bundle

FAULTY = WORKERS / "faulty.py"
PATIENT = Limits(quit=0.5)
HASTY = {  # for the faults that would be waited for
    "silent at load": Limits(load=1),
    "hung": Limits(iteration=1),
    "half_a_line": Limits(iteration=1),
}


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Bundle:
    return product_bundle(tmp_path_factory.mktemp("client") / "bundle")


@contextmanager
def faulty(fault: str, *after: int, limits: Limits = PATIENT) -> Iterator[Worker]:
    command = [sys.executable, str(FAULTY), fault, *map(str, after)]
    with Worker(fault, command, threads=1, limits=limits) as worker:
        yield worker


@contextmanager
def shell(script: str, limits: Limits = PATIENT) -> Iterator[Worker]:
    """A worker that is a shell script: it reads nothing, and answers what it likes."""
    with Worker("shell", ["/bin/sh", "-c", script], threads=1, limits=limits) as worker:
        yield worker


def failure_of(worker: Worker, bundle: Bundle) -> WorkerFailure:
    """What comes of a load and two blocks; the worker is gone afterwards."""
    with pytest.raises(WorkerFailure) as raised:
        put_to_work(worker, bundle)
    assert all_gone(worker.pid)
    return raised.value


def put_to_work(worker: Worker, bundle: Bundle) -> None:
    worker.load(bundle.folder)
    worker.time(3, 1)
    worker.time(3, 1)


# ---------------------------------------------------------------- as it should be


def test_a_worker_is_asked_and_answers(bundle: Bundle, tmp_path: Path) -> None:
    with faulty("none") as worker:
        assert worker.load(bundle.folder).phases.keys() == {"load"}
        worker.outputs([0, 1], 0.1, tmp_path / "outputs")
        sample = worker.time(5, 1)
        assert len(sample.host_ns) == 5
        assert sample.wait_share is None or sample.wait_share >= 0
        assert worker.allocated_peak() is None
        resident = worker.resident_bytes()
        assert 0 < resident["resident"] <= resident["resident_peak"]
        assert not is_gone(worker.pid)
    assert is_gone(worker.pid)
    assert worker.log() == ""


def test_the_environment_is_the_same_for_all(
    bundle: Bundle, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The threads are golow's, whatever the user's shell has set; the wait policy is the user's,
    the same for every level; the cores are those that golow has itself."""
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.setenv("OMP_WAIT_POLICY", "ACTIVE")
    with Worker("faulty", [sys.executable, str(FAULTY), "none"], threads=3) as worker:
        worker.load(bundle.folder)
        found = (Path("/proc") / str(worker.pid) / "environ").read_bytes().decode().split("\0")
        environment = dict(row.split("=", 1) for row in found if row)
        cores = os.sched_getaffinity(worker.pid)
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        assert environment[name] == "3"
    assert environment["OMP_WAIT_POLICY"] == "ACTIVE"
    assert environment["OMP_DYNAMIC"] == "FALSE"
    assert cores == os.sched_getaffinity(0)


def test_a_worker_may_be_kept_to_some_cores() -> None:
    core = min(os.sched_getaffinity(0))
    with Worker("one", [sys.executable, str(FAULTY), "none"], threads=1, affinity=[core]) as worker:
        assert os.sched_getaffinity(worker.pid) == {core}


@pytest.mark.skipif(not Path("/proc/self/oom_score_adj").exists(), reason="the kernel has no such")
def test_memory_that_runs_out_ends_a_worker_before_its_parent() -> None:
    def score(process: int | str) -> int:
        return int(Path(f"/proc/{process}/oom_score_adj").read_text())

    with shell("sleep 60") as worker:
        assert score(worker.pid) == min(score("self") + process.KILLED_FIRST, 1000)


def test_another_python_keeps_its_own_import_path() -> None:
    """This one's standard library on PYTHONPATH would break it."""
    given = os.environ.get("PYTHONPATH")
    assert process.worker_environment("/usr/bin/python", 1, {}).get("PYTHONPATH") == given
    assert process.worker_environment("./mine", 1, {"PYTHONPATH": "/own"})["PYTHONPATH"] == "/own"
    assert sys.path[-1] in process.worker_environment(sys.executable, 1, {})["PYTHONPATH"]


# ---------------------------------------------------------------- faults


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "kind", "reason"),
    [
        ("killed", "died", "ended by SIGKILL"),
        ("crashed", "died", "ended by SIGSEGV"),
        ("ended", "died", "ended with status 3"),
        ("hung", "hung", "no answer to `time` within 1 s"),
        ("raised", "failed", "RuntimeError: the kernel refuses this stride"),
        ("out_of_memory", "out of memory", "could not allocate memory"),
        ("torch_out_of_memory", "out of memory", "can't allocate memory"),
        ("cuda_out_of_memory", "out of memory", "Tried to allocate 2.00 GiB."),
        ("silent at load", "hung", "no answer to `load` within 1 s"),
        ("closed", "protocol", "closed its standard output but is still running"),
        ("garbage", "protocol", "not a JSON object: b'WARNING: falling back"),
        ("half_a_line", "hung", "no answer to `time` within 1 s"),
        ("twice", "protocol", "it wrote without a request"),
        ("a_list", "protocol", "not a JSON object: b'[1, 2, 3]'"),
        ("one_short", "protocol", "the request was for 3 iterations; it timed 2"),
        ("takes_no_time", "protocol", "a time that is not positive"),
        ("in_words", "protocol", "its answer is malformed: Expected `int`, got `str`"),
    ],
)
def test_a_fault_has_its_reason(
    bundle: Bundle, monkeypatch: pytest.MonkeyPatch, fault: str, kind: str, reason: str
) -> None:
    monkeypatch.setattr(conversation, "SECONDS_TO_END", 0.5)
    with faulty(fault, limits=HASTY.get(fault, PATIENT)) as worker:
        failure = failure_of(worker, bundle)
    assert failure.kind == kind
    # The verdict that stands in front of it says `failed` already.
    assert failure.message.startswith(f"{kind}: ") == (kind != "failed")
    assert reason in failure.message


def test_what_a_library_says_at_length_of_its_memory_is_cut(bundle: Bundle) -> None:
    with faulty("cuda_out_of_memory") as worker:
        failure = failure_of(worker, bundle)
    assert failure.message.endswith(" of which 249.94 MiB is free.")
    assert "reserved by PyTorch but unallocated." in failure.log


def test_the_log_shows_what_the_worker_said_last(bundle: Bundle) -> None:
    with faulty("ended") as worker:
        assert "the runtime gives up" in failure_of(worker, bundle).log
    with faulty("raised") as worker:
        log = failure_of(worker, bundle).log
    assert "raise RuntimeError" in log
    assert len(log.splitlines()) <= LOG_LINES


def test_a_long_log_is_cut_and_not_disturbed_by_reading() -> None:
    """The worker writes on while the parent reads."""
    script = (
        "i=0; while [ $i -lt 3000 ]; do i=$((i+1)); echo line $i >&2; done; read x; echo last >&2"
    )
    with shell(script) as worker:
        assert soon(lambda: worker.log().endswith("line 3000"))
        assert worker.log().splitlines()[0] == f"line {3001 - LOG_LINES}"
        with pytest.raises(WorkerFailure) as raised:
            worker.allocated_peak()
    assert raised.value.log.splitlines()[-2:] == ["line 3000", "last"]


def test_outputs_that_were_not_written(bundle: Bundle, tmp_path: Path) -> None:
    with faulty("wrote nothing") as worker:
        worker.load(bundle.folder)
        with pytest.raises(WorkerFailure, match="there is no such file"):
            worker.outputs([0], 0.1, tmp_path / "outputs")
    assert all_gone(worker.pid)


@pytest.mark.slow
def test_unsupported_is_no_failure(tmp_path: Path) -> None:
    """The one refusal that means: this level does not do this workload."""
    refusal = (
        '{"ok": false, "error": "unsupported", "message": "no roll here",'
        ' "node": "roll_1", "module": "layer1.0"}'
    )
    with shell(f"read line; echo '{refusal}'; sleep 600") as worker:
        with pytest.raises(Unsupported) as raised:
            worker.load(tmp_path)
        assert all_gone(worker.pid)
    error = raised.value
    assert (error.reason, error.node, error.module) == ("no roll here", "roll_1", "layer1.0")


def test_a_refusal_without_a_reason_is_a_failure_too(tmp_path: Path) -> None:
    with (
        shell("read line; echo '{\"ok\": false}'; sleep 600") as worker,
        pytest.raises(WorkerFailure, match="it gave no reason"),
    ):
        worker.load(tmp_path)


@pytest.mark.parametrize("command", [["./there/is/no/such/program"], ["/etc/passwd"], ["/tmp"]])
def test_a_command_that_cannot_be_started(command: Sequence[str]) -> None:
    with pytest.raises(WorkerFailure) as raised:
        Worker("none", command, threads=1)
    assert raised.value.kind == "not started"
    assert command[0] in raised.value.message


def test_a_worker_that_ended_between_two_requests(bundle: Bundle) -> None:
    with faulty("none") as worker:
        worker.load(bundle.folder)
        os.kill(worker.pid, signal.SIGKILL)
        assert soon(lambda: is_gone(worker.pid))
        with pytest.raises(WorkerFailure, match="ended by SIGKILL"):
            worker.time(1, 0)


# ---------------------------------------------------------------- who is left


def test_the_workers_own_processes_end_with_it(bundle: Bundle) -> None:
    """A compiler that a worker has started would otherwise run on beside the next level."""
    with faulty("child") as worker:
        worker.load(bundle.folder)
        processes = family(worker.pid)
        assert len(processes) == 2
    assert all_gone(*processes)


@pytest.mark.slow
def test_a_worker_that_does_not_hear_quit_is_ended(bundle: Bundle) -> None:
    with faulty("deaf") as worker:
        worker.load(bundle.folder)
    assert all_gone(worker.pid)


def test_a_start_and_an_end_take_time(bundle: Bundle) -> None:
    """The end is seen when it comes, not at the next look."""
    with faulty("none", limits=Limits(quit=60)) as worker:
        imported = worker.import_all("infer")
        assert imported > 0
        worker.load(bundle.folder)
        assert 0 < worker.end() < 60
        assert is_gone(worker.pid)


@pytest.mark.slow
def test_a_worker_that_does_not_end_has_no_time_of_its_end(bundle: Bundle) -> None:
    with faulty("deaf") as worker:
        worker.load(bundle.folder)
        with pytest.raises(WorkerFailure, match=r"hung: it did not exit within 0 s of `quit`"):
            worker.end()
    assert all_gone(worker.pid)


def test_a_worker_that_does_not_know_wake_is_awake_all_the_same(tmp_path: Path) -> None:
    answer = '{"ok": false, "error": "unknown_request", "message": "wake?"}'
    with shell(f"read request; echo '{answer}'; read request") as worker:
        assert worker.import_all("train") > 0


@pytest.mark.slow
def test_a_worker_that_owes_an_answer_is_not_waited_for(bundle: Bundle) -> None:
    """Ctrl-C in the middle of a block."""
    with faulty("hung", limits=Limits(iteration=600, quit=600)) as worker:
        worker.load(bundle.folder)
        interrupt_soon()
        with pytest.raises(KeyboardInterrupt):
            worker.time(1, 0)
    assert all_gone(worker.pid)


@pytest.mark.slow
def test_a_second_interrupt_leaves_nobody_either(bundle: Bundle) -> None:
    """It comes while the parent waits for a worker to quit."""
    with faulty("deaf", limits=Limits(quit=600)) as worker:
        worker.load(bundle.folder)
        interrupt_soon()
        with pytest.raises(KeyboardInterrupt):
            worker.close()
    assert all_gone(worker.pid)


def interrupt_soon() -> None:
    """Ctrl-C in half a second."""
    pid = os.getpid()
    threading.Timer(0.5, lambda: os.kill(pid, signal.SIGINT)).start()


def test_closing_twice_is_closing_once(bundle: Bundle) -> None:
    with faulty("none") as worker:
        worker.load(bundle.folder)
        worker.close()
        worker.close()
    with faulty("killed") as worker:
        failure_of(worker, bundle)
        worker.close()


@pytest.mark.slow
def test_the_parent_sleeps_while_it_waits(bundle: Bundle) -> None:
    """A parent that polls takes the core that the worker is timed on."""
    with shell("read a; sleep 1.5; echo '{\"ok\": true}'; read b") as worker:
        began, used = time.monotonic(), time.process_time()
        worker.allocated_peak()
        used, passed = time.process_time() - used, time.monotonic() - began
    print(f"the parent used {used * 1000:.1f} ms of {passed:.1f} s")
    assert passed >= 1.5
    assert used < 0.05


@pytest.mark.skipif(shutil.which("sh") is None, reason="there is no shell")
def test_a_shell_script_can_be_a_worker(tmp_path: Path) -> None:
    """Any program in any language: twelve lines of shell answer everything but outputs."""
    script = tmp_path / "worker.sh"
    script.write_text(
        """#!/bin/sh
        while read -r line; do
          case "$line" in
            *'"load"'*) echo '{"ok": true, "protocol": 3, "phases": {"load": 0.0}}' ;;
            *'"time"'*) echo '{"ok": true, "host_ns": [1000, 2000], "last": 1.5}' ;;
            *'"memory"'*) echo '{"ok": true, "allocated_peak": 64}' ;;
            *'"quit"'*) echo '{"ok": true}'; exit 0 ;;
            *) echo '{"ok": false, "error": "unknown_request", "message": "what?"}' ;;
          esac
        done
        """
    )
    script.chmod(0o755)
    with Worker("script", [str(script)], threads=1) as worker:
        assert worker.load(tmp_path).phases == {"load": 0.0}
        assert worker.time(2, 0).host_ns == (1000, 2000)
        assert worker.allocated_peak() == 64
    assert subprocess.run([script], input=b"", check=False).returncode == 0


@pytest.mark.slow
def test_a_worker_whose_threads_would_spin_is_paused_between_requests(bundle: Bundle) -> None:
    """With OMP_WAIT_POLICY=active its threads would take cores from those that are timed."""
    environment = {"OMP_WAIT_POLICY": "active"}
    command = [sys.executable, str(FAULTY), "none"]
    with Worker("spinning", command, threads=1, environment=environment) as worker:
        worker.load(bundle.folder)
        assert soon(lambda: process.is_stopped(worker.pid))
        assert worker.time(2, 0).host_ns
        assert soon(lambda: process.is_stopped(worker.pid))
        worker.dismiss()
        assert process.wait_until_gone(worker.pid, 30)
    with Worker("calm", command, threads=1) as worker:
        worker.load(bundle.folder)
        assert not process.is_stopped(worker.pid)
