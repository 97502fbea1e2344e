"""Figures that follow from a run's record: throughput, and percentiles of an iteration."""

from __future__ import annotations

from statistics import quantiles

from golow.records.comparison import Block, Quantity, Run
from golow.records.workload import Workload

# A percentile needs some iterations beyond it: with fewer than these it would be the slowest one.
LEAST_ITERATIONS = {50: 2, 95: 20, 99: 100}


def throughput(run: Run) -> Quantity | None:
    """Images, tokens or samples per second, with the interval of the time, of all ranks together;
    None without a time.

    An image is a floating-point sample with three dimensions, a token is one of a sample's
    integers, and everything else counts as a sample.
    """
    if run.time is None or run.time.value <= 0:
        return None
    unit, number = counted(run.workload)
    number *= run.workload.ranks
    low, high = run.time.low, run.time.high
    return Quantity(
        name="throughput",
        unit=f"{unit}/s",
        value=number / run.time.value,
        low=number / high if high else None,
        high=number / low if low else None,
    )


def counted(workload: Workload) -> tuple[str, int]:
    """Unit of a batch, and how many there are."""
    first = workload.inputs[0]
    if len(first.shape) == 2 and first.dtype in ("int64", "int32"):
        return "tokens", first.shape[0] * first.shape[1]
    is_image = len(first.shape) == 4 and first.dtype.startswith(("float", "bfloat"))
    return ("images" if is_image else "samples"), workload.batch


def percentiles(run: Run) -> tuple[Quantity, ...]:
    """Seconds of an iteration at the 50th, 95th and 99th percentile, of all timed iterations in the
    rounds that the time is from; only those for which there are enough iterations."""
    times = [ns for block in used_blocks(run) for ns in block.quoted_ns]
    asked = [share for share, least in LEAST_ITERATIONS.items() if len(times) >= least]
    if not asked:
        return ()
    cuts = quantiles(times, n=100, method="inclusive")
    return tuple(Quantity(name=f"p{n}", unit="s", value=cuts[n - 1] * 1e-9) for n in asked)


def round_figures(run: Run) -> list[float]:
    """Seconds of an iteration in each round that the run's time is from."""
    from golow.measure.stats import block_figure  # SciPy, which reading a record does not need

    return [block_figure(block.quoted_ns) for block in used_blocks(run)]


def used_blocks(run: Run) -> tuple[Block, ...]:
    """The blocks of the rounds that the run's time is from."""
    if run.conditions.rounds_used == "all":
        return run.blocks
    return tuple(b for b in run.blocks if not b.contended and not b.throttled)
