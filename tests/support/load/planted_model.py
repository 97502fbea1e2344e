"""A level of golow's with a planted fault, as ``python planted_model.py FAULT``: wrong answers from
the start (``wrong``), or only under load (``later``)."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from golow.programs.load.served_level import LoadRequest, built, main

LATER = 60  # answers: more than those of accuracy mode


class Faulty:
    """A context whose answers to one sample are those to another one."""

    def __init__(self, inside: object, after: int) -> None:
        self._inside, self._after, self._count = inside, after, 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._inside, name)

    def assemble(self, indices: Sequence[int]) -> object:
        self._count += len(indices)
        wrong = self._count > self._after
        return self._inside.assemble([0 if wrong and one == 1 else one for one in indices])  # type: ignore[attr-defined]


def contexts(asked: LoadRequest) -> list[Faulty]:
    after = LATER if sys.argv[1] == "later" else 0
    return [Faulty(one, after) for one in built(asked)]


if __name__ == "__main__":
    main(contexts)  # type: ignore[arg-type]
