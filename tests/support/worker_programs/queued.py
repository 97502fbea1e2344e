"""A worker with a device of known cost.

``python tests/support/worker_programs/queued.py HOST_US DEVICE_US [TOLD]``

An iteration takes the host HOST_US microseconds to enqueue and the device DEVICE_US to do, half as
much again when it is cold. The device is a queue: it works while the host goes on, and what it
answers as its own time is what a pair of events around the iteration would show, or the share TOLD
of it. Otherwise it is `golow.worker.plant`.
"""

from __future__ import annotations

import json
import sys
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import msgspec

from golow.worker.marking import window
from golow.worker.plant import Plant
from golow.worker.protocol import VERSION, TimeRequest
from golow.worker.serve import end_with_parent

COLDER = 1.5
ROOM = 6  # iterations that fit the queue; the host waits for room before it enqueues the next


class Queue:
    """Enqueues iterations and times them by both clocks, in nanoseconds."""

    def __init__(self, host_ns: int, device_ns: int, told: float) -> None:
        self.host_ns, self.device_ns, self.told = host_ns, device_ns, told
        self.free_at = 0

    def iterate(self, cold: bool) -> tuple[int, int]:
        """One iteration: the host's time and the device's."""
        began = time.perf_counter_ns()
        self.wait_until(self.free_at - ROOM * self.device_ns)
        busy_until = time.perf_counter_ns() + self.host_ns
        while time.perf_counter_ns() < busy_until:
            pass
        enqueued = time.perf_counter_ns()
        started = max(self.free_at, began)
        work = round(self.device_ns * (COLDER if cold else 1))
        self.free_at = max(started + work, enqueued)
        return enqueued - began, self.free_at - started

    def wait_until(self, moment: int) -> None:
        """Sleep until the clock says so, if it does not yet."""
        while (left := moment - time.perf_counter_ns()) > 0:
            time.sleep(left / 1e9)


def answer(request: dict[str, Any], plant: Plant, queue: Queue) -> dict[str, Any]:
    """What is answered to the request, but for ``ok``."""
    match request["do"]:
        case "load":
            phases = plant.load(Path(request["bundle"])).phases
            return {"protocol": VERSION, "phases": phases}
        case "outputs":
            plant.outputs(request["batches"], request["learning_rate"], Path(request["file"]))
            return {}
        case "result":
            plant.write_result(Path(request["file"]))
            return {}
        case "time":
            found = results(msgspec.convert(request, TimeRequest), plant)
            for _ in range(request["warmup"]):
                queue.iterate(cold=False)
            cold = request.get("cold", False)
            times = [queue.iterate(cold) for _ in range(request["iterations"])]
            queue.wait_until(queue.free_at)
            host, shown = zip(*times, strict=True)
            device = [round(queue.told * ns) for ns in shown]
            return {"host_ns": host, "device_ns": device, "last": 0.0, "results": found}
        case "memory":
            return {"allocated_peak": 1000}
        case "quit":
            return {}
        case other:
            return {"ok": False, "error": "unknown_request", "message": f"what is {other}?"}


def results(request: TimeRequest, plant: Plant) -> list[float]:
    """The results of all iterations, which the plant computes before the queue is timed."""
    challenge = request.challenge
    if challenge is None:
        return []
    marks, found = challenge.marks, list[float]()
    plant.seek(challenge.first)
    with nullcontext() if marks is None else plant.marked(marks) as write:
        for number in range(request.warmup + request.iterations):
            if marks is not None and write is not None:
                before = found[-1] if found else marks.previous
                write(window(marks, challenge.first + number, before))
            plant.iterate()
            plant.keep()
            found += plant.kept()
    return found


def main(host_us: str, device_us: str, told: str = "1") -> None:
    """Serve until the input ends."""
    end_with_parent()
    plant, queue = Plant(products=1), Queue(int(host_us) * 1000, int(device_us) * 1000, float(told))
    for line in sys.stdin:
        request = json.loads(line)
        print(json.dumps({"ok": True} | answer(request, plant, queue)), flush=True)
        if request["do"] == "quit":
            return


if __name__ == "__main__":
    main(*sys.argv[1:])
