"""How well a kernel fills the multiprocessors of a GPU, estimated from its launch.

Counted as by NVIDIA's occupancy calculator: registers are given to warps in units, and every block
takes some more shared memory. torch.profiler's own estimate is 0% for kernels with more shared
memory than a block has by default, and whole percents for all.
https://docs.nvidia.com/cuda/cuda-c-programming-guide/#features-and-technical-specifications
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import Any, NamedTuple

WARP = 32  # threads
REGISTER_UNIT = 256  # registers that a warp gets at once
SHARED_UNIT = 128  # bytes
RESERVED = 1024  # bytes of shared memory that a block takes for the system, since 8.0
BLOCKS = {(7, 5): 16, (8, 6): 16, (8, 7): 16, (8, 9): 24, (12, 0): 24, (12, 1): 24}
"""Most blocks of a multiprocessor by compute capability; 32 of all others since 5.0."""


class Multiprocessors(NamedTuple):
    """The multiprocessors of a device, and what each one has; memory in bytes."""

    number: int
    threads: int
    blocks: int
    registers: int
    shared: int
    reserved: int


def multiprocessors(properties: Mapping[str, Any]) -> Multiprocessors | None:
    """A device's limits, from its properties in a trace; None if the trace lacks them."""
    try:
        capability = int(properties["computeMajor"]), int(properties["computeMinor"])
        return Multiprocessors(
            number=int(properties["numSms"]),
            threads=int(properties["maxThreadsPerMultiprocessor"]),
            blocks=BLOCKS.get(capability, 32),
            registers=int(properties["regsPerMultiprocessor"]),
            shared=int(properties["sharedMemPerMultiprocessor"]),
            reserved=RESERVED if capability >= (8, 0) else 0,
        )
    except (KeyError, TypeError, ValueError):
        return None


def resident_blocks(device: Multiprocessors, threads: int, registers: int, shared: int) -> int:
    """Blocks of one multiprocessor at once, for this many threads, registers per thread and bytes
    of shared memory of a block."""
    warps = ceil(threads / WARP)
    limits = [device.blocks, device.threads // (warps * WARP)]
    if registers:
        of_warp = ceil(registers * WARP / REGISTER_UNIT) * REGISTER_UNIT
        limits.append(device.registers // of_warp // warps)
    of_block = ceil((shared + device.reserved) / SHARED_UNIT) * SHARED_UNIT
    if of_block:
        limits.append(device.shared // of_block)
    return max(0, min(limits))


def occupancy(
    device: Multiprocessors, blocks: int, threads: int, registers: int, shared: int
) -> float:
    """The share of the threads that could be resident that are, for a kernel of this many blocks:
    those that a multiprocessor gets, at most those that fit."""
    fitting = max(1, resident_blocks(device, threads, registers, shared))  # it did run
    return min(1.0, min(blocks / device.number, fitting) * threads / device.threads)
