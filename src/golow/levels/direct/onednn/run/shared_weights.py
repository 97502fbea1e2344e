"""One memory for the weights of several plans of one network, such as those of several batch
sizes."""

from __future__ import annotations

import hashlib
import mmap
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from golow.levels.direct.constant_keys import ConstantKey, constant_keys
from golow.lower.plan.arena_offsets import CACHE_LINE
from golow.lower.plan.plan import Plan


class Region:
    """Anonymous memory of the process, on pages of 2 MiB if the system grants them; size in bytes.

    Every iteration reads the weights once from end to end. With small pages, address translation
    costs up to a fifth of that time.
    """

    def __init__(self, size: int) -> None:
        self.map: Any = mmap.mmap(
            -1, max(size, mmap.PAGESIZE), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        )
        with suppress(OSError, AttributeError):
            self.map.madvise(mmap.MADV_HUGEPAGE)
        self.bytes = np.frombuffer(self.map, dtype=np.uint8)
        self.address = int(self.bytes.ctypes.data)


class Place(NamedTuple):
    """Where a buffer begins: its region, and bytes from there."""

    region: Region
    offset: int

    @property
    def address(self) -> int:
        """The address as one number."""
        return self.region.address + self.offset


_Identity = tuple[ConstantKey, bytes]  # with a digest of the content


class SharedWeights:
    """The memory. bytes: of all that it holds."""

    def __init__(self) -> None:
        self.bytes = 0
        self._known: dict[_Identity, Place] = {}

    def take(
        self, plan: Plan, constants: Region, elsewhere: Collection[int]
    ) -> Mapping[int, Place]:
        """Copy the constants of a plan, but for what another plan has brought already; return where
        each of its buffers is now. elsewhere: buffers that stay where they are."""
        found = _identities(plan, constants)
        identities = {index: key for index, key in found if index not in elsewhere}
        new = [index for index, identity in identities.items() if identity not in self._known]
        region = Region(sum(_rounded(plan.buffers[index].bytes) for index in new))
        offset = 0
        for index in new:
            buffer = plan.buffers[index]
            content = constants.bytes[buffer.offset : buffer.offset + buffer.bytes]
            region.bytes[offset : offset + buffer.bytes] = content
            self._known[identities[index]] = Place(region, offset)
            offset += _rounded(buffer.bytes)
        self.bytes += offset
        return {index: self._known[identity] for index, identity in identities.items()}

    def close(self) -> None:
        """Release the memory. No plan may read it any more."""
        self.bytes = 0
        self._known.clear()


def _identities(plan: Plan, constants: Region) -> Iterator[tuple[int, _Identity]]:
    for index, key in constant_keys(plan).items():
        start = plan.buffers[index].offset
        content = constants.bytes[start : start + key.size]
        yield index, (key, hashlib.blake2b(content.data, digest_size=20).digest())


def _rounded(size: int) -> int:
    return -(-size // CACHE_LINE) * CACHE_LINE
