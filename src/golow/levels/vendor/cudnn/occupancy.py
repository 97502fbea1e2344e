"""How many blocks of a kernel can run on one multiprocessor at once.

Counted as by NVIDIA's occupancy calculator: registers are given to warps in units, and every block
takes some more shared memory.
https://docs.nvidia.com/cuda/cuda-c-programming-guide/#occupancy-calculator
"""

from __future__ import annotations

from math import ceil
from typing import NamedTuple

WARP = 32  # threads
REGISTER_UNIT = 256  # registers that a warp gets at once, since compute capability 3.0
SHARED_UNIT = 128  # bytes, since compute capability 7.0


class Multiprocessor(NamedTuple):
    """What one multiprocessor has; memory in bytes. reserved: shared memory that every block takes
    for the system. of_device: how many the device has."""

    of_device: int
    threads: int
    blocks: int
    registers: int
    shared: int
    reserved: int


def resident_blocks(device: Multiprocessor, threads: int, registers: int, shared: int) -> int:
    """Blocks with so many threads, registers a thread and bytes of shared memory."""
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
    device: Multiprocessor, blocks: int, threads: int, registers: int, shared: int
) -> float:
    """The estimated share of the threads that could be resident that are, for a kernel of so many
    blocks: those that a multiprocessor gets, at most those that fit."""
    fitting = resident_blocks(device, threads, registers, shared)
    return min(1.0, min(blocks / device.of_device, fitting) * threads / device.threads)
