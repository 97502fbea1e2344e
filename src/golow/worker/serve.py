"""A Python worker: ``python -m golow.worker.serve MODULE[:VARIANT]`` speaks the protocol.

Only the level's own module is imported, so a level without a framework stays without one.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import numpy as np
from safetensors.numpy import save_file

from golow.records.errors import GolowError, Unsupported
from golow.records.workload import Mode
from golow.worker import text_requests
from golow.worker.clock import (
    NOTHING_AROUND,
    Around,
    nothing,
    time_iterations,
    time_on_device,
)
from golow.worker.counting import count
from golow.worker.feed import Feed
from golow.worker.marking import window
from golow.worker.protocol import (
    VERSION,
    Challenge,
    LayersReport,
    TimeRequest,
    line,
)
from golow.worker.ranks import Place
from golow.worker.refusals import UnknownRequest, refusal, refused
from golow.worker.served_program import (
    ChoosingProgram,
    CountedProgram,
    DeviceProgram,
    DividedProgram,
    FedProgram,
    PlannedProgram,
    PredictingProgram,
    ProfiledProgram,
    Program,
    RankedProgram,
    ReplicatedProgram,
    StepwiseProgram,
    TrainableProgram,
    VerifiableProgram,
    WakingProgram,
)

PR_SET_PDEATHSIG = 1


def serve(program: Program, requests: BinaryIO, answers: BinaryIO) -> None:
    """Answer each request line with one answer line until `quit` or the end of the input."""
    for request_line in requests:
        try:
            request = msgspec.json.decode(request_line, type=dict[str, Any])
        except msgspec.DecodeError as error:
            answer = refusal("failed", f"the request is not a JSON object: {error}")
            request = {}
        else:
            answer = _answer(program, request)
        answers.write(line(answer))
        answers.flush()
        if request.get("do") == "quit":
            return


def _answer(program: Program, request: dict[str, Any]) -> dict[str, Any]:
    handler = _HANDLERS.get(str(request.get("do")))
    if handler is None:
        return refusal("unknown_request", f"this worker does not know {request.get('do')!r}")
    try:
        return {"ok": True, **handler(program, request)}
    except Exception as error:
        return refused(error)


def _wake(program: Program, request: dict[str, Any]) -> dict[str, Any]:
    if isinstance(program, WakingProgram):
        program.wake(request["mode"])
    return {}


def _load(program: Program, request: dict[str, Any]) -> dict[str, Any]:
    names = request.get("choices") or []
    if isinstance(program, ChoosingProgram):
        program.choose(names)
    elif names:
        raise Unsupported("", f"this worker does not know the choice {names[0]!r}")
    report: dict[str, Any] = msgspec.to_builtins(program.load(Path(request["bundle"])))
    return {**report, "protocol": VERSION}


def _outputs(program: Program, request: dict[str, Any]) -> dict[str, Any]:
    batches = [int(index) for index in request["batches"]]
    program.outputs(batches, float(request["learning_rate"]), Path(request["file"]))
    _give_back_memory()
    return {}


def _give_back_memory() -> None:
    """Return free memory to the system: the check's copies of every tensor are not the level's
    memory, but glibc would keep them."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _time(program: Program, request: dict[str, Any]) -> dict[str, Any]:
    wanted = msgspec.convert(request, TimeRequest)
    if wanted.challenge is None:
        return _timed(program, wanted, NOTHING_AROUND)
    challenge = wanted.challenge
    program = _verifiable(program)
    if challenge.reset:
        program.reset(challenge.learning_rate)
    program.seek(challenge.first)
    results: list[float] = []
    with nullcontext() if challenge.marks is None else program.marked(challenge.marks) as write:
        around = _challenged(program, challenge, write, results)
        answer = _timed(program, wanted, around)
    return {**answer, "results": results + program.kept()}


def _challenged(
    program: VerifiableProgram,
    challenge: Challenge,
    write: Callable[[int], None] | None,
    results: list[float],
) -> Around:
    """Mark before and keep after every iteration. results: gets those that a chain needs at once;
    the others stay where they are until the block is over, so that no device is waited for."""
    marks, first = challenge.marks, challenge.first

    def keep(iteration: int) -> None:
        program.keep()

    if marks is None or write is None:
        return Around(nothing, keep)

    def mark(iteration: int) -> None:
        write(window(marks, first + iteration, results[-1] if results else marks.previous))

    def keep_and_read(iteration: int) -> None:
        program.keep()
        results.extend(program.kept())

    return Around(mark, keep if marks.chain is None else keep_and_read)


def _timed(program: Program, wanted: TimeRequest, around: Around) -> dict[str, Any]:
    count, warmup = wanted.iterations, wanted.warmup
    if isinstance(program, RankedProgram):
        program.meet()
    stopwatch = program.stopwatch(count) if isinstance(program, DeviceProgram) else None
    if stopwatch is None:
        if wanted.cold:
            raise GolowError("this worker does not run on a device whose cache it could empty")
        samples = time_iterations(program.iterate, count, warmup, around)
        return {"host_ns": samples, "device_ns": None, "last": program.last()}
    host_ns, device_ns = time_on_device(
        program.iterate, count, warmup, stopwatch, wanted.cold, around
    )
    return {"host_ns": host_ns, "device_ns": device_ns, "last": program.last()}


def _result(program: Program, request: dict[str, Any]) -> dict[str, Any]:
    _verifiable(program).write_result(Path(request["file"]))
    _give_back_memory()
    return {}


def _memory(program: Program, request: dict[str, Any]) -> dict[str, Any]:
    return {"allocated_peak": program.allocated_peak()}


def _layers(program: Program, request: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(program, DividedProgram):
        raise UnknownRequest("this worker does not time its layers")
    report = LayersReport(layers=program.layers(int(request["iterations"])))
    answer: dict[str, Any] = msgspec.to_builtins(report)
    return answer


def _profile(program: Program, request: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(program, ProfiledProgram):
        raise UnknownRequest("this worker does not profile its iterations")
    program.profile(int(request["iterations"]), Path(request["file"]))
    return {}


def _arena(program: Program, request: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(program, PlannedProgram):
        raise UnknownRequest("this worker has no plan of its memory")
    answer: dict[str, Any] = msgspec.to_builtins(program.arena())
    return answer


def _values(program: Program, request: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(program, StepwiseProgram):
        raise UnknownRequest("this worker does not hand over the values of its steps")
    report = program.values(
        int(request["batch"]),
        float(request["learning_rate"]),
        int(request["first"]),
        int(request["most"]),
        Path(request["file"]),
        bool(request.get("hard")),
    )
    _give_back_memory()
    answer: dict[str, Any] = msgspec.to_builtins(report)
    return answer


def _count(program: Program, request: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(program, CountedProgram):
        raise UnknownRequest("this worker does not count its instructions")
    with program.bare_call() as call:
        answer: dict[str, Any] = msgspec.to_builtins(count(call, Path(request["library"])))
    return answer


def _digest(program: Program, request: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(program, ReplicatedProgram):
        raise UnknownRequest("this worker does not hash its parameters")
    return {"digest": program.digest()}


def _copies(program: Program, request: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(program, FedProgram):
        raise UnknownRequest("this worker is not fed from the host")
    answer: dict[str, Any] = msgspec.to_builtins(program.copies(int(request["iterations"])))
    return answer


def _choices(program: Program, request: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(program, ChoosingProgram):
        raise UnknownRequest("this worker does not report choices")
    return {"choices": program.choices(request["names"])}


def _epoch(program: Program, request: dict[str, Any]) -> dict[str, Any]:
    program = _trainable(program)
    rates = [float(rate) for rate in request["rates"]]
    feed = _feed(program, request, len(rates), Path(request["order"]))
    start = time.perf_counter_ns()
    losses = program.epoch(feed, rates)
    nanoseconds = time.perf_counter_ns() - start
    return {"losses": losses, "checksum": feed.checksum, "nanoseconds": nanoseconds}


def _save(program: Program, request: dict[str, Any]) -> dict[str, Any]:
    _trainable(program).save(Path(request["file"]))
    _give_back_memory()
    return {}


def _restore(program: Program, request: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(program, (TrainableProgram, PredictingProgram)):
        raise UnknownRequest("this worker takes its weights only from the bundle")
    program.restore(Path(request["file"]))
    _give_back_memory()
    return {}


def _predict(program: Program, request: dict[str, Any]) -> dict[str, Any]:
    if not isinstance(program, PredictingProgram):
        raise UnknownRequest("this worker does not run data sets")
    _require_mode(program, "infer")
    feed = _feed(program, request, int(request["batches"]), None)
    start = time.perf_counter_ns()
    output = program.predict(feed)
    nanoseconds = time.perf_counter_ns() - start
    save_file({"output": np.ascontiguousarray(output)}, Path(request["file"]))
    _give_back_memory()
    return {"nanoseconds": nanoseconds}


def _feed(
    program: TrainableProgram | PredictingProgram,
    request: dict[str, Any],
    batches: int,
    order: Path | None,
) -> Feed:
    """The batches of this rank, or of all ranks in turn for a process that trains for all."""
    workload, place = program.workload, Place.told()
    return Feed(
        Path(request["data"]),
        batch=workload.batch,
        batches=batches,
        scale=request["scale"],
        shift=request["shift"],
        first=int(request.get("first", 0)),
        order=order,
        checksum=request.get("checksum", 0),
        ranks=workload.ranks,
        own=range(workload.ranks) if place is None else (place.rank,),
    )


def _trainable(program: Program) -> TrainableProgram:
    if not isinstance(program, TrainableProgram):
        raise UnknownRequest("this worker does not train epochs")
    _require_mode(program, "train")
    return program


def _require_mode(program: TrainableProgram | PredictingProgram, mode: Mode) -> None:
    if program.workload.mode != mode:
        raise GolowError(f"the bundle's mode is {program.workload.mode}, this needs {mode}")


def _verifiable(program: Program) -> VerifiableProgram:
    if not isinstance(program, VerifiableProgram):
        raise UnknownRequest("the timed iterations of this worker cannot be verified")
    return program


def _quit(program: Program, request: dict[str, Any]) -> dict[str, Any]:
    return {}


_HANDLERS: dict[str, Callable[[Program, dict[str, Any]], dict[str, Any]]] = {
    "wake": _wake,
    "load": _load,
    "outputs": _outputs,
    "time": _time,
    "result": _result,
    "memory": _memory,
    "digest": _digest,
    "layers": _layers,
    "copies": _copies,
    "profile": _profile,
    "arena": _arena,
    "values": _values,
    "count": _count,
    "choices": _choices,
    "epoch": _epoch,
    "save": _save,
    "restore": _restore,
    "predict": _predict,
    "quit": _quit,
    **text_requests.HANDLERS,
}


def end_with_parent() -> None:
    """Ask Linux to kill this process when its parent dies, however that dies."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def run(make: Callable[[], Program]) -> None:
    """Be a worker: serve the program on this process's standard input and output."""
    end_with_parent()
    # Ctrl-C reaches the whole group of a terminal; the parent decides when workers end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # A model's output must not mix with the answers: file descriptor 1 becomes the log.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    serve(make(), sys.stdin.buffer, answers)


def main(level: str) -> None:
    """Serve a level by its module, ``module`` or ``module:variant``: its ``program(variant)``."""
    module, _, variant = level.partition(":")
    run(lambda: importlib.import_module(module).program(variant))


if __name__ == "__main__":
    main(sys.argv[1])
