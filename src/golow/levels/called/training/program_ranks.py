"""The ranks of a torch.distributed program, which exchange messages through its key-value store."""

from __future__ import annotations

import hashlib
import io
import itertools
import os
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.rendezvous import rendezvous

from golow.levels.called.training.optimizer_settings import Settings
from golow.levels.direct.ranks.meeting import PATIENCE, Meeting
from golow.records.errors import GolowError

PART_BYTES = 4 << 20
"""Size of one message. TCPStore takes up to 8 MiB."""

_steps = itertools.count(1)  # compiled in this process; all ranks compile the same ones


class StoreMeeting(Meeting):
    """Ranks that meet in a store of torch.distributed. name: of this meeting, used once."""

    def __init__(
        self, store: Any, rank: int, ranks: int, name: str, patience: float = PATIENCE
    ) -> None:
        super().__init__(rank, ranks, patience)
        self._store = dist.distributed_c10d.PrefixStore(name, store)

    def say(self, name: str, data: bytes) -> None:
        self._store.set(f"{name}.{self.rank}", b"." + data)  # type: ignore[arg-type]

    def hear(self, name: str, rank: int) -> bytes:
        key = f"{name}.{rank}"
        try:
            self._store.wait([key], timedelta(seconds=self.patience))
            return bytes(self._store.get(key)[1:])
        except RuntimeError as error:  # DistStoreError, and a store that has gone
            raise self.lost(rank) from error

    def forget(self, name: str) -> None:
        """Release a message's memory once all ranks have read it."""
        self._store.delete_key(f"{name}.{self.rank}")


def meeting_of_program(ranks: int | None) -> StoreMeeting | None:
    """Return the meeting of this program's ranks; None for a single process, and with ranks=1.
    Raises `GolowError` if the number differs from the program's."""
    if ranks == 1 or not dist.is_available():
        return None
    if dist.is_initialized():
        store: Any = dist.distributed_c10d._get_default_store()
        rank, number = dist.get_rank(), dist.get_world_size()
    elif os.environ.get("WORLD_SIZE", "1") != "1":
        store, rank, number = _of_torchrun()
    else:
        number = 1
    if ranks is not None and ranks != number:
        raise GolowError(
            f"ranks={ranks}, but torch.distributed has {number}",
            "leave ranks= out for all of them; ranks=1 trains in this process alone.",
        )
    return None if number == 1 else StoreMeeting(store, rank, number, f"golow-{next(_steps)}")


def of_first_rank(meeting: StoreMeeting, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return rank 0's tensors, on the devices of this rank's tensors."""
    written = io.BytesIO()
    if meeting.rank == 0:
        torch.save({name: item.detach().cpu() for name, item in state.items()}, written)
    data = written.getvalue()
    size = int(meeting.from_first("weights", lambda: str(len(data)).encode()))
    names = [f"weights-{start}" for start in range(0, size, PART_BYTES)]
    parts = [
        meeting.from_first(name, lambda k=k: data[k * PART_BYTES : (k + 1) * PART_BYTES])  # type: ignore[misc]
        for k, name in enumerate(names)
    ]
    meeting.everyone("weights-taken", b"")
    for name in names if meeting.rank == 0 else ():
        meeting.forget(name)
    found = torch.load(io.BytesIO(b"".join(parts)), weights_only=True)
    if found.keys() != state.keys():
        raise GolowError("the names of the module's weights differ between rank 0 and this rank")
    return {name: found[name].to(item.device) for name, item in state.items()}


def require_same_settings(meeting: Meeting, settings: Settings, every: int) -> None:
    """Raise `GolowError` unless the optimizer and the number of batches per update are equal on all
    ranks: their parameters would differ after one update, or a rank would wait for another one
    forever."""
    decays = sorted(settings.decays.items())
    told = hashlib.sha256(repr((settings.optimizer, settings.rates, decays, every)).encode())
    entries = (settings.state or {"state": {}})["state"]
    for index, entry in sorted(entries.items()):
        for name, item in sorted(entry.items()):
            content = item.detach().cpu().numpy() if isinstance(item, Tensor) else item
            told.update(f"{index} {name} ".encode())
            told.update(np.ascontiguousarray(content).tobytes())
    what = "the optimizer, with its settings, its state and every=,"
    meeting.require_same("settings", told.hexdigest().encode(), what)


def _of_torchrun() -> tuple[Any, int, int]:
    """The store of torchrun's agent, with rank and number of ranks."""
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        raise GolowError(
            f"WORLD_SIZE is {os.environ['WORLD_SIZE']}, and torch.distributed is not initialised",
            "call torch.distributed.init_process_group() first, or start the program by torchrun; "
            "ranks=1 trains in this process alone.",
        )
    found: tuple[Any, int, int] = next(rendezvous("env://"))
    return found
