"""Chooses among engines that took about as long alone by the time of the whole iteration. A kernel
of golow's own begins, and loads its weights, before the kernel before it has ended; how much that
saves depends on the neighbours, and so does what is in the GPU's cache."""

from __future__ import annotations

from typing import TYPE_CHECKING

from golow.levels.direct.cudnn.engines.golow_convolution import OwnConvolution

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.engines.engines import Engine, Engines
    from golow.levels.direct.cudnn.run.execution import Execution

# In longer iterations, launches are a small part.
LONGEST_NS = 3_000_000
# An engine is tried if it took at most this many times as long alone as the fastest, plus what its
# neighbours may save. This many of each operation are tried.
NEAR, NEAR_NS, TRIED = 1.25, 1500.0, 5
# An engine takes another one's place if the iteration then takes less than this share of its time.
GAIN = 0.998


def refine(execution: Execution, engines: Engines) -> bool:
    """Try the engines of the operations that were timed in this process, one operation after the
    other, and keep what makes an iteration faster. Return whether another engine was kept; the plan
    must be built again then."""
    if not engines.timed:
        return False
    best = execution.iteration_ns()
    if best > LONGEST_NS:
        return False
    changed = False
    for operation, timed in engines.timed.items():
        chosen = engines.choose(operation)
        if chosen is None or not execution.runs(chosen):
            continue
        fastest = min(timed.values())
        limit = NEAR * fastest + NEAR_NS
        near = [e for e in sorted(timed, key=lambda engine: timed[engine]) if timed[e] <= limit]
        kept = chosen
        for engine in near[:TRIED]:
            if engine is chosen or _takes_other_operands(engine, chosen):
                continue
            time = _time(execution, chosen, engine)
            if time < GAIN * best:
                kept, best = engine, time
        if kept is not chosen:
            execution.exchange(chosen, kept)
            engines.keep(operation, kept)
            changed = True
    return changed


def _takes_other_operands(engine: Engine, chosen: Engine) -> bool:
    """True if their operands differ in type: golow's own convolutions take a bias in float32."""
    return isinstance(engine, OwnConvolution) != isinstance(chosen, OwnConvolution)


def _time(execution: Execution, chosen: Engine, engine: Engine) -> float:
    """The time of an iteration with an engine instead of the chosen one, in ns."""
    execution.exchange(chosen, engine)
    try:
        return execution.iteration_ns()
    except RuntimeError:
        return float("inf")
    finally:
        execution.exchange(chosen, chosen)
