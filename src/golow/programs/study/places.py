"""Where cells are measured on this machine: on a GPU, or on a share of the cores.

A GPU has several places. A cell spends most of its time starting, building and checking, which
keeps one core busy and hardly uses the GPU. So several cells prepare in parallel, each on its own
cores, and are timed in turn (`golow.worker.turn`).
"""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec
import psutil

from golow.measure.environment import environment
from golow.measure.gpu.cards import CardFacts, visible_cards
from golow.programs.study.study_record import Machine
from golow.records.comparison import Environment
from golow.records.errors import GolowError
from golow.records.workload import Device
from golow.storage.cache import default_cache
from golow.worker.cores import shares
from golow.worker.process import thread_settings

CORES_A_CELL = 3
"""Minimum hardware threads of a place on a GPU: an eager training step keeps two busy."""

MOST_ON_A_CARD = 6
"""Most places on a GPU: timing takes an eighth of a cell, so more would wait for their turn."""

TURNS = "GOLOW_STUDY_TURNS"
"""The environment variable with the folder through which the cells on a GPU take turns."""


class Place(NamedTuple):
    """Room for one cell at a time, on a GPU or on some cores.

    lock: the name of its device's lock. environment: of the measurements there, without the
    settings that each cell makes itself; its affinity is the cores of the place. variables: added
    to the environment of the cell's process. memory_bytes: of the device; None if the driver does
    not report it.
    """

    lock: str
    machine: Machine
    environment: Environment
    variables: Mapping[str, str]
    memory_bytes: int | None

    @property
    def shares_its_card(self) -> bool:
        """True if there are other places on the GPU, which take turns with this one."""
        return TURNS in self.variables


def require_jobs(jobs: int) -> None:
    """Raise `GolowError` for a number of places that makes no sense."""
    if jobs < 1:
        raise GolowError(f"--jobs {jobs} measures nothing", "use --jobs 1 or more.")


def places(device: Device, jobs: int = 1, most_on_a_card: int = MOST_ON_A_CARD) -> list[Place]:
    """The places on this machine. jobs: how many GPUs, or disjoint shares of the cores.

    Raises `GolowError` if there are fewer than that.
    """
    require_jobs(jobs)
    found = environment()
    own = {k: v for k, v in found.thread_settings.items() if k not in thread_settings(1)}
    found = msgspec.structs.replace(found, thread_settings=own)
    if device == "cpu":
        return _shares(found, jobs)
    return _cards(found, jobs, most_on_a_card)


def _cards(found: Environment, jobs: int, most_on_a_card: int) -> list[Place]:
    host, cards = platform.node(), visible_cards()
    if not cards and jobs == 1:
        # GPUs cannot be told apart: whatever is there is one place, and if nothing is there, the
        # first cell reports it.
        return [Place(f"cuda-{host}", Machine(host=host, device="GPU"), found, {}, None)]
    if jobs > len(cards):
        raise GolowError(
            f"--jobs {jobs} needs {jobs} GPUs, {len(cards)} can be seen here",
            "use fewer; if a GPU is not seen, `golow doctor` shows what is missing.",
        )
    return [
        place
        for card, cores in zip(cards, shares(found.affinity, jobs), strict=False)
        for place in _on_card(card, found, cores, most_on_a_card)
    ]


def _on_card(
    card: CardFacts, found: Environment, cores: Sequence[int], most: int
) -> Iterator[Place]:
    """The places on one GPU, which gets these cores of the machine."""
    host = platform.node()
    fitting = (
        cut for count in range(most, 1, -1) if len((cut := shares(cores, count))[0]) >= CORES_A_CELL
    )
    parts = next(fitting, [found.affinity])  # a cell alone on its GPU is not bound to cores
    variables = {"CUDA_VISIBLE_DEVICES": card.uuid}
    if len(parts) > 1:
        variables[TURNS] = str(default_cache() / "locks" / f"{card.uuid}.turns")
    for own in parts:
        yield Place(
            lock=card.uuid,
            machine=Machine(host=host, device=card.name, uuid=card.uuid),
            environment=msgspec.structs.replace(found, affinity=own),
            variables=variables,
            memory_bytes=card.memory_bytes,
        )


def _shares(found: Environment, jobs: int) -> list[Place]:
    """Places with one lock: two studies on disjoint cores still share the memory's bandwidth."""
    cores = len(found.affinity)
    if cores < jobs:
        raise GolowError(f"--jobs {jobs} needs {jobs} cores, there are {cores}", "use fewer.")
    host = platform.node()
    machine = Machine(host=host, device=found.cpu_model)
    memory = _memory_bytes(found) // jobs
    return [
        Place(
            lock=f"cpu-{host}",
            machine=machine,
            environment=msgspec.structs.replace(found, affinity=own),
            variables={},
            memory_bytes=memory,
        )
        for own in shares(found.affinity, jobs)
    ]


def _memory_bytes(found: Environment) -> int:
    """The memory of the machine, or of the container if that has less."""
    allowed = found.container_limits.get("memory.max")
    total = psutil.virtual_memory().total
    return min(total, int(allowed)) if allowed else int(total)
