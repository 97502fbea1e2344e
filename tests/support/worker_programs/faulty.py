"""A worker with one fault of one's choice: ``python tests/support/worker_programs/faulty.py FAULT
[AFTER [MS]]``.

It serves what `golow.worker.plant` serves, with one product an iteration, until the fault comes:
at the iteration AFTER (0 unless given), or in the answers themselves. An iteration waits for MS
milliseconds, so that a test can know how many of them there are in a block of a race.
"""

from __future__ import annotations

import io
import json
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from golow.worker.plant import Plant
from golow.worker.protocol import LoadReport
from golow.worker.serve import end_with_parent, serve

HEADROOM = 64 * 2**20  # bytes that a worker short of memory may still take


def killed() -> None:
    """As by a system that wants its memory back."""
    os.kill(os.getpid(), signal.SIGKILL)


def crashed() -> None:
    """As by a wild pointer."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.kill(os.getpid(), signal.SIGSEGV)


def ended() -> None:
    """As a library that takes a failure for the end of the program."""
    print("the runtime gives up", file=sys.stderr, flush=True)
    os._exit(3)


def hung() -> None:
    """As one that waits for what never comes."""
    time.sleep(3600)


def slowed() -> None:
    """As on cores that others keep busy: fifty times the ten milliseconds of an iteration."""
    time.sleep(0.5)


def raised() -> None:
    """As a kernel that refuses."""
    raise RuntimeError("the kernel refuses this stride")


def out_of_memory() -> None:
    """NumPy asks the system for more than it may have."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + HEADROOM, used + HEADROOM))
    np.ones(4 * HEADROOM, dtype=np.uint8)


def torch_out_of_memory() -> None:
    """The same by PyTorch, which has words of its own for it."""
    import torch

    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + HEADROOM, used + HEADROOM))
    torch.ones(4 * HEADROOM, dtype=torch.uint8)


def cuda_out_of_memory() -> None:
    """As PyTorch says it on a GPU, at length."""
    raise RuntimeError(
        "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 139.80 GiB "
        "of which 249.94 MiB is free. Process 2524 has 2.67 GiB memory in use. Including "
        "non-PyTorch memory, this process has 12.60 GiB memory in use. Of the allocated memory "
        "11.09 GiB is allocated by PyTorch, and 927.93 MiB is reserved by PyTorch but unallocated."
    )


IN_AN_ITERATION: dict[str, Callable[[], None]] = {
    fault.__name__: fault
    for fault in (
        killed,
        crashed,
        ended,
        hung,
        slowed,
        raised,
        out_of_memory,
        torch_out_of_memory,
        cuda_out_of_memory,
    )
}


def garbage(answer: bytes) -> bytes:
    """What a library prints on standard output."""
    return b"WARNING: falling back to the reference kernel\n" + answer


def half_a_line(answer: bytes) -> bytes:
    """And nothing after it."""
    return answer[: len(answer) // 2]


def twice(answer: bytes) -> bytes:
    """The same answer once more."""
    return answer + answer


def a_list(answer: bytes) -> bytes:
    """JSON, but no object."""
    return b"[1, 2, 3]\n"


def one_short(answer: bytes) -> bytes:
    """One sample fewer than was asked for."""
    content = json.loads(answer)
    content["host_ns"] = content["host_ns"][1:]
    return json.dumps(content).encode() + b"\n"


def takes_no_time(answer: bytes) -> bytes:
    """Samples of a clock that stands."""
    content = json.loads(answer)
    content["host_ns"] = [0 for _ in content["host_ns"]]
    return json.dumps(content).encode() + b"\n"


def in_words(answer: bytes) -> bytes:
    """Samples that are no numbers."""
    content = json.loads(answer)
    content["host_ns"] = ["soon" for _ in content["host_ns"]]
    return json.dumps(content).encode() + b"\n"


IN_AN_ANSWER: dict[str, Callable[[bytes], bytes]] = {
    fault.__name__: fault
    for fault in (garbage, half_a_line, twice, a_list, one_short, takes_no_time, in_words)
}


class Answers(io.RawIOBase):
    """Standard output, on which the answers to ``time`` come out wrong."""

    def __init__(self, fault: Callable[[bytes], bytes]) -> None:
        self.fault = fault

    def write(self, answer: bytes) -> int:  # type: ignore[override]
        """Write it, or what the fault makes of it."""
        os.write(1, self.fault(answer) if b"host_ns" in answer else answer)
        return len(answer)


class Faulty(Plant):
    """A plant that does as planted until its time has come."""

    def __init__(self, fault: str, after: int, milliseconds: int) -> None:
        super().__init__(products=1)
        self.fault, self.after, self.pause = fault, after, milliseconds / 1e3

    def load(self, bundle: Path) -> LoadReport:
        """Faults of the load come here."""
        if self.fault == "silent at load":
            hung()
        if self.fault == "closed":
            os.close(1)
            hung()
        return super().load(bundle)

    def outputs(self, batches: list[int], learning_rate: float, file: Path) -> None:
        """Says that it wrote, and did not; or writes what is no safetensors file."""
        if self.fault == "wrote nothing":
            return
        if self.fault == "wrote garbage":
            file.write_bytes(b"these are my outputs")
            return
        super().outputs(batches, learning_rate, file)

    def iterate(self) -> None:
        """The fault, when its time has come."""
        self.after -= 1
        if self.after < 0 and self.fault in IN_AN_ITERATION:
            IN_AN_ITERATION[self.fault]()
        time.sleep(self.pause)
        super().iterate()


def main(fault: str, after: int = 0, milliseconds: int = 0) -> None:
    """Serve with this fault."""
    end_with_parent()
    if fault == "child":
        child()
    answers = Answers(IN_AN_ANSWER.get(fault, lambda answer: answer))
    serve(Faulty(fault, after, milliseconds), sys.stdin.buffer, answers)  # type: ignore[arg-type]
    if fault == "deaf":
        hung()


def child() -> None:
    """A process of the worker's own, such as a compiler, that would outlive it."""
    if os.fork() == 0:
        while True:
            time.sleep(60)


if __name__ == "__main__":
    main(sys.argv[1], *map(int, sys.argv[2:]))
