"""Work of a level that writes a source before its worker starts: passes, refusals, and the folder
of source and graph in the cache."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from golow.levels.lowering import Passes, lowered, write_lowered
from golow.lower.ir.graph import Graph, Pass
from golow.records.workload import Workload
from golow.workload.bundle import Bundle

SOURCE = "step.py"  # in the cache folder, beside the graph

Source = Callable[[Graph, Workload], str]


def passes(workload: Workload, recurrences: Pass | None = None) -> tuple[Pass, ...]:
    """Return the passes to the vocabulary. In inference batch norms are folded; in training the
    forward pass is left, because a framework makes its own gradients and update. In half precision
    the graph then has its casts. recurrences: what becomes of recurrent layers; by default loops,
    as always in half precision, whose casts are within a step."""
    from golow.levels.traced.forward import forward_of_training
    from golow.levels.traced.halving import HALVES, autocast_forward, store_in_half
    from golow.lower.fuse.epilogue_fusion import fuse_padding
    from golow.lower.fuse.weight_folding import fold_batch_norm
    from golow.lower.ir.clean_up import eliminate_dead_code
    from golow.lower.recognise.plain_calls import to_plain_calls
    from golow.lower.to_vocabulary import CANONICAL

    half = HALVES.get(workload.precision)
    unfolded = to_plain_calls if recurrences is None or half is not None else recurrences
    if workload.mode == "infer":
        stored = () if half is None else (_named(store_in_half, half),)
        return (unfolded, *CANONICAL, fuse_padding, fold_batch_norm, *stored, eliminate_dead_code)
    cast = () if half is None else (_named(autocast_forward, half),)
    first = (forward_of_training, unfolded)
    return (*first, *cast, *CANONICAL, fuse_padding, eliminate_dead_code)


def _named(run: Callable[[Graph, str], Graph], half: str) -> Pass:
    """A pass with its dtype, under its own name."""

    def named(graph: Graph) -> Graph:
        return run(graph, half)

    named.__name__ = run.__name__
    return named


def write_source(
    level: str, passes: Passes, source: Source, key: str, bundle: Bundle, cache: Path
) -> Path:
    """Write source and lowered graph into the cache; return their folder. key: what a build depends
    on further. Raises `Unsupported` for what the level cannot run."""
    graph = lowered(level, bundle, passes)
    text = source(graph, bundle.workload)
    whole = f"{key} {bundle.workload.threads}\n{text}"
    return write_lowered(level, graph, whole, cache, {SOURCE: text})
