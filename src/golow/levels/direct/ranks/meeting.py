"""Meeting of the ranks of one training run: short named messages from every rank to all. Nothing
here imports a framework.
"""

from __future__ import annotations

import fcntl
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from golow.records.errors import GolowError
from golow.storage.files import write_whole, writing
from golow.worker.ranks import RANKS, Place

PATIENCE = 600.0
"""Seconds for which a rank waits for another one, which may be choosing layouts or engines."""
PAUSE, LOOK = 0.002, 0.1
"""Seconds between two polls for a message, and for whether its sender is still running."""


class RankLost(GolowError):
    """Another rank ended, or did not arrive in time."""


class Meeting(ABC):
    """One rank's end. All ranks send and receive messages in the same order, and each name is used
    once."""

    def __init__(self, rank: int, ranks: int, patience: float = PATIENCE) -> None:
        if not 0 <= rank < ranks:
            raise GolowError(f"rank {rank} is not one of {ranks} ranks, which count from 0")
        self.rank, self.ranks, self.patience = rank, ranks, patience
        self._numbers = Counter[str]()

    @abstractmethod
    def say(self, name: str, data: bytes) -> None:
        """Leave a message for all ranks."""

    @abstractmethod
    def hear(self, name: str, rank: int) -> bytes:
        """Return the message of a rank; waits until it arrives. Raises `RankLost`."""

    def is_gone(self, rank: int) -> bool:
        """True if that rank's process has ended; False if this is unknown."""
        return False

    def numbered(self, name: str) -> str:
        """Return an unused name; all ranks request their names in the same order."""
        self._numbers[name] += 1
        return f"{name}-{self._numbers[name]}"

    def everyone(self, name: str, data: bytes) -> list[bytes]:
        """Send this message, and return each rank's message of that name."""
        self.say(name, data)
        return [self.hear(name, rank) for rank in range(self.ranks)]

    def from_first(self, name: str, make: Callable[[], bytes]) -> bytes:
        """Return the value that rank 0 creates."""
        if self.rank == 0:
            self.say(name, make())
        return self.hear(name, 0)

    def require_same(self, name: str, data: bytes, what: str) -> None:
        """Raise `GolowError` unless all ranks pass the same bytes. what: their name in messages."""
        said = self.everyone(name, data)
        others = [str(rank) for rank, theirs in enumerate(said) if theirs != said[0]]
        if others:
            raise GolowError(
                f"{what} of rank 0 differs from that of rank {', '.join(others)}",
                "all ranks must run the same program, with the same model, settings and version of "
                "golow.",
            )

    def lost(self, rank: int) -> RankLost:
        """Return the error for a rank that did not arrive."""
        why = "has ended" if self.is_gone(rank) else f"did not arrive within {self.patience:g} s"
        return RankLost(f"rank {rank} of {self.ranks} {why}, and rank {self.rank} waited for it")


class FolderMeeting(Meeting):
    """Ranks of one host, which meet in a folder. Each holds a lock while its process runs."""

    def __init__(self, folder: Path, rank: int, ranks: int, patience: float = PATIENCE) -> None:
        super().__init__(rank, ranks, patience)
        self._folder = folder
        with writing(f"the meeting of the ranks, {folder}", "use a private folder."):
            self._held = self._presence(rank).open("wb")
            fcntl.flock(self._held, fcntl.LOCK_EX)
        self.say("present", b"")

    def say(self, name: str, data: bytes) -> None:
        with writing(f"the meeting of the ranks, {self._folder}", "is its disk full?"):
            write_whole(self._message(name, self.rank), data)

    def hear(self, name: str, rank: int) -> bytes:
        file, begun = self._message(name, rank), time.monotonic()
        looked = begun
        while True:
            try:
                return file.read_bytes()
            except FileNotFoundError:
                now = time.monotonic()
            if now - looked > LOOK:
                looked = now
                if now - begun > self.patience or (self.is_gone(rank) and not file.exists()):
                    raise self.lost(rank) from None
            time.sleep(PAUSE)

    def is_gone(self, rank: int) -> bool:
        """The system releases a lock when its process ends."""
        if rank == self.rank or not self._message("present", rank).exists():
            return False
        with self._presence(rank).open("rb") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
        return True

    def _message(self, name: str, rank: int) -> Path:
        return self._folder / f"{name}.{rank}"

    def _presence(self, rank: int) -> Path:
        return self._folder / f"process.{rank}"


def meeting_of_worker(ranks: int) -> Meeting | None:
    """Return the meeting named in this worker's environment; None for a training run of one rank.
    Raises `GolowError` unless it is of this many ranks."""
    if ranks == 1:
        return None
    place = Place.of_worker()
    if place.ranks != ranks:
        raise GolowError(f"{RANKS} is {place.ranks}, and the workload has {ranks} ranks")
    return FolderMeeting(place.meeting, place.rank, ranks)
