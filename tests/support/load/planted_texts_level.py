"""A level's process that answers with texts: `planted_level`, a token at a time after short
sleeps."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from golow.programs.load.coming_texts import END, TOKEN
from golow.programs.load.served_level import LoadRequest, main
from support.load.planted_level import Planted

FIRST, LATER = 0.004, 0.001  # seconds up to the first token, and for each later one
TOKENS = 4


class PlantedTexts(Planted):
    """A context that streams texts whose tokens are the index of the sample."""

    def stream(self, batch: list[int]) -> Iterator[list[int]]:
        for sleep in (FIRST, *[LATER] * (TOKENS - 1)):
            time.sleep(sleep)
            yield batch
        yield []

    def answers(self, outputs: list[int], indices: Sequence[int]) -> list[bytes]:
        return [TOKEN.pack(index) for index in outputs] or [END] * len(indices)


def contexts(asked: LoadRequest) -> list[PlantedTexts]:
    return [PlantedTexts("texts") for _ in range(asked.contexts)]


if __name__ == "__main__":
    main(contexts)
