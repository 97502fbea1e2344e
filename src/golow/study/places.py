"""Where cells are measured on this machine: a card each, or a share of the cores."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from typing import NamedTuple

import msgspec
import psutil

from golow.measure.cards import visible_cards
from golow.measure.environment import environment
from golow.record import Device, Environment, GolowError
from golow.study_record import Machine
from golow.worker.process import thread_settings


class Place(NamedTuple):
    """One device, or some cores, for one cell at a time.

    lock: the name of its lock. environment: of what is measured there, without the settings that
    each cell makes for itself; its affinity is the cores of the place. variables: added to those of
    the cell's process. memory_bytes: of the device, None where nobody tells.
    """

    lock: str
    machine: Machine
    environment: Environment
    variables: Mapping[str, str]
    memory_bytes: int | None


def places(device: Device, jobs: int = 1) -> list[Place]:
    """So many places of this machine, on different cards or disjoint cores.

    Raises `GolowError` where there are not so many.
    """
    if jobs < 1:
        raise GolowError(f"--jobs {jobs} measures nothing", "use --jobs 1 or more.")
    found = environment()
    own = {k: v for k, v in found.thread_settings.items() if k not in thread_settings(1)}
    found = msgspec.structs.replace(found, thread_settings=own)
    return _cards(found, jobs) if device == "cuda" else _shares(found, jobs)


def _cards(found: Environment, jobs: int) -> list[Place]:
    host, cards = platform.node(), visible_cards()
    if not cards and jobs == 1:
        # Nobody tells the cards apart: what is there is one place, and where nothing is there the
        # first cell says so.
        return [Place(f"cuda-{host}", Machine(host=host, device="GPU"), found, {}, None)]
    if jobs > len(cards):
        raise GolowError(
            f"--jobs {jobs} needs {jobs} GPUs, {len(cards)} can be seen here",
            "use fewer; `golow doctor` says what is missing where cards are not seen.",
        )
    return [
        Place(
            lock=card.uuid,
            machine=Machine(host=host, device=card.name, uuid=card.uuid),
            environment=found,
            variables={"CUDA_VISIBLE_DEVICES": card.uuid},
            memory_bytes=card.memory_bytes,
        )
        for card in cards[:jobs]
    ]


def _shares(found: Environment, jobs: int) -> list[Place]:
    """All share one lock: two studies on disjoint cores still share the memory's bandwidth."""
    cores = found.affinity
    each = len(cores) // jobs
    if not each:
        raise GolowError(f"--jobs {jobs} needs {jobs} cores, there are {len(cores)}", "use fewer.")
    host = platform.node()
    machine = Machine(host=host, device=found.cpu_model)
    memory = _memory_bytes(found) // jobs
    return [
        Place(
            lock=f"cpu-{host}",
            machine=machine,
            environment=msgspec.structs.replace(found, affinity=cores[n * each : (n + 1) * each]),
            variables={},
            memory_bytes=memory,
        )
        for n in range(jobs)
    ]


def _memory_bytes(found: Environment) -> int:
    """Of the machine, or of the container if that has less."""
    allowed = found.container_limits.get("memory.max")
    total = psutil.virtual_memory().total
    return min(total, int(allowed)) if allowed else int(total)
