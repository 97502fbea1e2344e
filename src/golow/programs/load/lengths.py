"""Lengths of the samples of a load test."""

from __future__ import annotations

from golow.records.record import Record


class Lengths(Record, frozen=True, kw_only=True):
    """Lengths of text samples, in tokens.

    sizes: that levels are compiled for, ascending. samples: of each sample. inputs: whether each
    input of the module has the length as its second axis. outputs: the axes of each output that
    have it.
    """

    sizes: tuple[int, ...]
    samples: tuple[int, ...]
    inputs: tuple[bool, ...]
    outputs: tuple[tuple[int, ...], ...]
