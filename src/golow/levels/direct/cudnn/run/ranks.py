"""Ranks as a plan uses them: the mean of arrays on the device."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from golow.levels.direct.ranks.meeting import Meeting

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.bindings.device import Gpu


class Piece(NamedTuple):
    """An array on the device. dtype: by golow's name."""

    address: int
    elements: int
    dtype: str


class Ranks(Protocol):
    """All ranks, as one of them sees them. stream: for means alongside the main stream's work.
    meeting: where they agree on what they exchange."""

    stream: int
    meeting: Meeting

    def mean(self, pieces: Sequence[Piece], stream: int) -> None:
        """Enqueue on a stream that each array is replaced by its mean over all ranks."""

    def wait(self, gpu: Gpu) -> None:
        """Wait for the main stream of this rank's GPU. Raises `RankLost` if another rank does not
        take part."""

    def close(self) -> None:
        """End the exchange, together with the other ranks, when no graph has a mean any more."""
