"""A worker's plan as one rank of a training run, or as the only one."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from golow.levels.direct.ranks import exchanges
from golow.levels.direct.ranks.meeting import Meeting, meeting_of_worker
from golow.levels.direct.ranks.shared_memory import Barrier
from golow.records.workload import Workload


class OneRank:
    """meeting: of the ranks, if several train together, each in its own worker; all of them get the
    same requests."""

    workload: Workload
    execution: Any
    meeting: Meeting | None = None
    _barrier: Barrier | None = None

    def join(self) -> None:
        """Join the ranks of this worker's workload. After another load they use the same
        meeting."""
        if self.meeting is None:
            self.meeting = meeting_of_worker(self.workload.ranks)
            self._barrier = None if self.meeting is None else Barrier(self.meeting)

    def meet(self) -> None:
        """Wait for all ranks, each after its device has finished its work."""
        if self._barrier is not None:
            self._barrier()

    def digest(self) -> str:
        """SHA-256 of the parameters."""
        found = hashlib.sha256()
        for (kind, _), tensor in self.execution.built.inputs.items():
            if kind == "parameter":
                found.update(np.ascontiguousarray(self.execution.read(tensor)).tobytes())
        return found.hexdigest()

    @property
    def own_seed(self) -> int:
        """The seed of random layers, which drop different elements in each rank."""
        return self.workload.seed + (0 if self.meeting is None else self.meeting.rank)

    def require_fitting_ranks(self, execution: Any) -> None:
        """Raise `GolowError` unless the plans of all ranks fit together."""
        if self.meeting is not None:
            exchanges.require_same(self.meeting, execution.built)
