"""Compare the parent's clock with a worker's: whether its times fill its blocks, and on a GPU
whether there was work at all.

A worker times itself. A worker that reports less time than passed can be found out by the parent,
which knows how long the whole request took. What the worker does outside its iterations' clock, and
what the request itself costs, is allowed for.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median

from golow.measure.block import Attempt, Worker, warmup_iterations
from golow.records.comparison import Block

REQUEST_SECONDS = 0.03
"""Allowed for a request without its iterations: two messages, Python's garbage collection, a reset,
and saving the inputs that are marked. Four times as much in a contended block."""

WRITTEN_PER_SECOND = 2e8
"""Bytes of weights that a worker writes at the least when it begins again; they are read from a
file and, at some levels, put into another layout."""

MOST_WRITTEN = 1e8
"""A block that writes more bytes of weights is not judged: it passes mostly in reading files, which
other programs slow down. The level is judged by its other blocks; most write nothing."""

AROUND_SECONDS, AROUND_ON_DEVICE_SECONDS = 20e-6, 100e-6
"""Allowed for what is done around an iteration: a mark, and its result kept. On a device these are
some kernels, which are launched one by one, and two events."""

LEAST_SHARE = 0.75
"""Least share of the time that passed and is not allowed for that the times of a level must
cover."""

SHORT_SECONDS, LEAST_SHORT_SHARE = 1e-3, 0.25
"""Limits for iterations shorter than this, on a device and if no block is clean: what is done
around them takes a share of the time, and a worker waits for a core there, too. On a device a block
without marks tells more (`refute_short`)."""

PLAIN_SECONDS, MOST_PLAIN, LEAST_PLAIN_SHARE = 0.5, 20_000, 0.6
"""A block without marks: its seconds, its most iterations (each has two events), and the least
share of it that the times must fill."""

BUSY_BASELINE = 0.02
"""Share of the time from which on a baseline tells an idle GPU from one that rounds down to 0%."""

LEAST_BUSY_SHARE = 0.85
"""Least share of processor time not allowed for that the times of all threads must cover. It is
closer to one than `LEAST_SHARE`, since nothing that other programs do adds to it."""

LEAST_FEW_SHARE = 0.6
"""Least share in a single contended block, and for several threads in fewer than `LEAST_BLOCKS`:
while one thread waits for a core between two iterations, the others busy-wait. If an iteration of a
single block uses less than `SHORT_SECONDS` of the processor, `LEAST_SHORT_SHARE`: with cold caches
the work around it takes several times as long. What is quoted of one thread must still reach
`LEAST_FEW_SHARE` there, with what the baseline needs around its iterations twice."""

BUSY_FACTOR, SPIN_SECONDS = 2, 0.25
"""Factor of the processor time allowed around iterations, and its bound, since it takes longer on
busy cores; and so many seconds for each further thread, which may wait actively for a while."""

MOST_AROUND_SECONDS = 10 * AROUND_SECONDS
"""So many around an iteration at most, however many the baseline takes."""

WORST_SHARE = 1 / 4
"""Share of a level's blocks, those with the most unexplained time, that are left out, rounded down:
on a busy machine a single untimed iteration may stand for as long as all blocks take together. The
median, which is quoted, owes them nothing; who cheats in a quarter of the blocks gains nothing."""

LEAST_BLOCKS = 4
"""Number of blocks from which on the worst one is left out: a race that goes on judges no fewer."""

LEAST_SECONDS = 0.2
"""Seconds of blocks beyond what is allowed for, from which on a level is judged."""


def filled_share(blocks: Sequence[Block]) -> float | None:
    """The share of the blocks' time that the reported times fill; may exceed 1, since more may be
    allowed for than was used. `WORST_SHARE` of the blocks are left out. None if there is too little
    to tell."""
    found = [(_seconds_not_allowed_for(block), _reported_seconds(block)) for block in blocks]
    return _share(_without_worst(found))


def refute(blocks: Sequence[Block], baseline: Sequence[Block] = ()) -> str:
    """Why the reported times cannot be true; empty if they can.

    baseline: the blocks of a level that is not in doubt, from the same rounds. Where its times do
    not fill them either, something else took the time, such as other users of the GPU.
    """
    known = [block for block in blocks if block.wall_ns and block.wrote <= MOST_WRITTEN]
    clean = [block for block in known if not block.contended]
    share, judged = filled_share([block for block in clean if not block.wrote]), clean
    if share is None:  # too few that write no weights, for which most is allowed
        share = filled_share(clean)
    if share is None:
        share, judged = filled_share(known), known
    on_device = any(block.device_ns for block in known)
    short = (on_device or judged is known) and _iteration_seconds(judged) < SHORT_SECONDS
    least = LEAST_SHORT_SHARE if short else LEAST_SHARE
    usual = filled_share([block for block in baseline if block.wall_ns])
    return _refuted(share, least * min(1.0, usual or 1.0)) if share is not None else ""


def busy_share(
    blocks: Sequence[Block], threads: int, around: float = BUSY_FACTOR * AROUND_SECONDS
) -> float | None:
    """The reported time of all threads, as a share of the processor time that the level used; may
    exceed 1. around: seconds that are allowed around an iteration. `WORST_SHARE` of the blocks are
    left out, and one of a few that are all contended: there an untimed iteration whose threads wait
    for each other uses more processor time than all timed ones. None if there is too little to
    tell, and on a device, which does the work."""
    known = _with_busy_time(blocks)
    found = [
        (_busy_seconds_not_allowed_for(block, threads, around), threads * _reported_seconds(block))
        for block in known
    ]
    return _share(_without_worst(found, _fewest_left_out(known)))


def median_share(blocks: Sequence[Block], around: float) -> float | None:
    """The median of each block, which is quoted, for all its iterations, as a share of the
    processor time of a level of one thread. No iteration takes less time than processor time; but
    on busy cores the sum of a few that waited hides what others left to a thread. It is less than 1
    where iterations are unlike each other, at the baseline as well."""
    known = _with_busy_time(blocks)
    found = [
        (_busy_seconds(block, 1, around), median(block.quoted_ns) / 1e9 * _iterations(block))
        for block in known
    ]
    return _share(_without_worst(found, _fewest_left_out(known)))


def refute_busy(
    blocks: Sequence[Block], threads: int | None, baseline: Sequence[Block] = ()
) -> str:
    """Why more work was done than the reported times have room for; empty if it was not.

    This also tells where other programs use the cores, since it does not count what passed while
    the level did nothing. baseline: the blocks of a level that is not in doubt, from the same
    rounds: caches that other programs fill make what is done around an iteration take several times
    as long, there as well.
    """
    if threads is None:
        return ""
    usual = min(_seconds_around(baseline, threads), MOST_AROUND_SECONDS)
    around = max(usual, BUSY_FACTOR * AROUND_SECONDS)
    share, least = busy_share(blocks, threads, around), _least_busy_share(blocks, threads)
    if threads == 1 and (share is None or share >= least):
        if _is_one_contended(blocks):
            least, around = LEAST_FEW_SHARE, _most_around(baseline)
        share = median_share(blocks, around)
        least *= min(1.0, median_share(baseline, around) or 1.0)
    if share is None or share >= least:
        return ""
    return (
        f"the times that it reports are {share:.1%} of the processor time that its threads used, "
        f"at least {least:.0%} is expected: it works outside of its iterations, or with "
        f"more than {threads} threads"
    )


def refute_short(worker: Worker, iteration: float) -> str:
    """Refute a level on a device whose iterations (seconds) are too short for `refute`, since
    marks and results take as long: by a block without them, of which only the clocks count.

    Raises WorkerFailure as ``worker.time`` does.
    """
    if iteration >= SHORT_SECONDS:
        return ""
    count = min(math.ceil(PLAIN_SECONDS / iteration), MOST_PLAIN)
    sample = worker.time(count, 0)
    passed = sample.wall_ns / 1e9 - REQUEST_SECONDS - AROUND_SECONDS * count
    if passed < LEAST_SECONDS or Attempt(sample).contended:
        return ""
    return _refuted(sum(sample.device_ns) / 1e9 / passed, LEAST_PLAIN_SHARE)


def refute_idle(utilization: float | None, baseline: float | None) -> str:
    """Why a level with this utilization did not run on the GPU; empty if it did, or may have.

    A level that is faster than the baseline keeps the GPU busy for more of its time, not for less.
    """
    if utilization is None or baseline is None or baseline < BUSY_BASELINE or utilization > 0:
        return ""
    return (
        "the GPU was idle while it iterated: NVML saw no kernel of it, and eager's kernels took "
        f"{baseline:.0%} of the time"
    )


def _refuted(share: float, least: float) -> str:
    if share >= least:
        return ""
    return (
        f"by golow's clock its blocks took longer: the times it reports fill {share:.1%} of "
        f"them, at least {least:.0%} is expected"
    )


def _without_worst(
    found: Sequence[tuple[float, float]], least: int = 0
) -> list[tuple[float, float]]:
    """Passed and reported seconds of blocks, without those whose difference is the largest, so many
    at the least."""
    kept = len(found) - max(least, math.floor(WORST_SHARE * len(found)))
    return sorted(found, key=lambda seconds: seconds[0] - seconds[1])[:kept]


def _least_busy_share(blocks: Sequence[Block], threads: int) -> float:
    known = _with_busy_time(blocks)
    if not _are_few_contended(known) or (threads == 1 and len(known) > 1):
        return LEAST_BUSY_SHARE
    iterations = sum(map(_iterations, known))
    short = sum(block.busy_ns or 0 for block in known) / 1e9 < SHORT_SECONDS * iterations
    return LEAST_SHORT_SHARE if short and _is_one_contended(known) else LEAST_FEW_SHARE


def _is_one_contended(blocks: Sequence[Block]) -> bool:
    known = _with_busy_time(blocks)
    return len(known) == 1 and known[0].contended


def _most_around(baseline: Sequence[Block]) -> float:
    """Seconds allowed around an iteration in a single contended block: those of the baseline, by
    its quoted medians since others contain waiting; the most if there is none."""
    known = _with_busy_time(baseline)
    if not known:
        return MOST_AROUND_SECONDS
    quoted = sum(median(block.quoted_ns) / 1e9 * _iterations(block) for block in known)
    busy = sum((block.busy_ns or 0) / 1e9 - REQUEST_SECONDS for block in known)
    usual = max(AROUND_SECONDS, (busy - quoted) / sum(map(_iterations, known)))
    return min(BUSY_FACTOR * usual, MOST_AROUND_SECONDS)


def _fewest_left_out(known: Sequence[Block]) -> int:
    """One of a few blocks that are all contended: see `busy_share`."""
    return int(len(known) > 1 and _are_few_contended(known))


def _are_few_contended(known: Sequence[Block]) -> bool:
    return len(known) < LEAST_BLOCKS and all(block.contended for block in known)


def _share(found: Sequence[tuple[float, float]]) -> float | None:
    """Reported over passed seconds; None if too little passed to tell."""
    passed = sum(seconds for seconds, _ in found)
    return sum(reported for _, reported in found) / passed if passed >= LEAST_SECONDS else None


def _iteration_seconds(blocks: Sequence[Block]) -> float:
    """That passed for each timed iteration."""
    iterations = sum(len(block.host_ns) for block in blocks)
    return sum(block.wall_ns for block in blocks) / 1e9 / iterations if iterations else math.inf


def _reported_seconds(block: Block) -> float:
    """Reported seconds of all iterations; the untimed ones take as long as the timed ones."""
    return sum(block.quoted_ns) / 1e9 * _iterations(block) / len(block.host_ns)


def _with_busy_time(blocks: Sequence[Block]) -> list[Block]:
    """Blocks whose processor time is conclusive."""
    return [
        b for b in blocks if b.busy_ns is not None and not b.device_ns and b.wrote <= MOST_WRITTEN
    ]


def _seconds_around(blocks: Sequence[Block], threads: int) -> float:
    """Processor time of an iteration beyond what is reported of it."""
    known = _with_busy_time(blocks)
    iterations = sum(map(_iterations, known))
    passed = sum((block.busy_ns or 0) / 1e9 - REQUEST_SECONDS for block in known)
    more = passed - threads * sum(map(_reported_seconds, known))
    return more / iterations if iterations else 0.0


def _busy_seconds_not_allowed_for(block: Block, threads: int, around: float) -> float:
    busy = (block.busy_ns or 0) / 1e9
    # A single thread waits for its core in its iterations as it does outside of them. Of several
    # it is not known which of them an iteration waited for.
    waited = (block.wait_share or 0.0) * block.wall_ns / 1e9 if threads == 1 else 0.0
    return _busy_seconds(block, threads, around) * (1 + waited / busy) if busy else 0.0


def _busy_seconds(block: Block, threads: int, around: float) -> float:
    """Processor time of a block beyond what is allowed for."""
    spinning = SPIN_SECONDS * (threads - 1)
    written = block.wrote / WRITTEN_PER_SECOND
    allowed = BUSY_FACTOR * REQUEST_SECONDS + around * _iterations(block) + written + spinning
    return max(0.0, (block.busy_ns or 0) / 1e9 - allowed)


def _iterations(block: Block) -> int:
    """Timed and untimed ones."""
    count = len(block.host_ns)
    return count + warmup_iterations(count)


def _seconds_not_allowed_for(block: Block) -> float:
    count = len(block.host_ns)
    request = REQUEST_SECONDS * (4 if block.contended else 1)
    around = AROUND_ON_DEVICE_SECONDS if block.device_ns else AROUND_SECONDS
    written = block.wrote / WRITTEN_PER_SECOND
    allowed = request + written + around * (count + warmup_iterations(count))
    # It may have waited for a core outside its iterations; on a device that contends for none of
    # its time, and several threads may have waited at once.
    waits = block.contended or bool(block.device_ns)
    waited = min(1.0, block.wait_share or 0.0) if waits else 0.0
    return max(0.0, block.wall_ns / 1e9 * (1 - waited) - allowed)
