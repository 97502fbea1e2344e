"""A level's process with a planted behaviour, as ``python planted_level.py KIND``: it answers a
sample with the bytes of its index, after a short sleep."""

from __future__ import annotations

import os
import struct
import sys
import time
from collections.abc import Sequence

from golow.programs.load.batcher import Bucket
from golow.programs.load.served_level import LoadRequest, main

USUAL, SLOW = 0.001, 0.06  # seconds
EVERY = 50
ENDS_AFTER = 20  # requests
TRICKLES = 0.3  # seconds for an answer after those: too slow for any rate, but not silent


class Planted:
    """A context that sleeps."""

    def __init__(self, kind: str) -> None:
        self.kind, self.count = kind, 0

    def warm_up(self) -> None:
        """Nothing is cold."""

    def group(self, index: int) -> int:
        return 0

    def bucket(self, indices: Sequence[int]) -> Bucket:
        return Bucket(len(indices), 1, len(indices))

    def assemble(self, indices: Sequence[int]) -> list[int]:
        return list(indices)

    def run(self, batch: list[int]) -> list[int]:
        before, self.count = self.count, self.count + len(batch)
        slow = self.kind == "slow" and before // EVERY != self.count // EVERY
        time.sleep(SLOW if slow else USUAL)
        if self.kind == "trickling" and self.count > ENDS_AFTER:
            time.sleep(TRICKLES)
        if self.count > ENDS_AFTER:
            if self.kind == "dying":
                os.kill(os.getpid(), 9)
            if self.kind == "silent":
                time.sleep(3600)
            if self.kind == "raising":
                raise ValueError("planted")
        return batch

    def answers(self, outputs: list[int], indices: Sequence[int]) -> list[bytes]:
        wrong = self.kind == "wrong" and self.count > ENDS_AFTER
        return [struct.pack("<I", index + wrong) for index in outputs]


def contexts(asked: LoadRequest) -> list[Planted]:
    return [Planted(sys.argv[1]) for _ in range(asked.contexts)]


if __name__ == "__main__":
    main(contexts)
