"""The whole program in one function: run a workload at every level, check, measure and record it.

`compare` reads as the table of contents: prepare and bundle the workload, capture the graph and
compute the reference; build, load and check each level; race the levels that match (`Bench`); write
the records.
"""

from __future__ import annotations

import math

from golow.levels import ladder
from golow.levels.level_selection import choices, require_any
from golow.levels.starter import Starter
from golow.observer import Observer
from golow.programs.comparison.settings import ComparisonSettings
from golow.records.comparison import Comparison
from golow.records.errors import GolowError
from golow.workload.request import Request, require_mode, require_precision, require_ranks


def compare(request: Request, settings: ComparisonSettings, observer: Observer) -> Comparison:
    """Run the model at every level, check that the levels agree, and measure what each one costs.

    After Ctrl-C the record holds the partial results, and ``race.stopped_because`` is
    ``interrupted``. Raises `GolowError` for errors that the caller can fix. An error in a level is
    recorded as its result.
    """
    require_sense(request, settings)
    chosen = choices(settings.levels, settings.workers, request.mode, request.device, request.ranks)
    require_any(settings.levels, chosen, request.device)
    with Starter(settings.limits, settings.turn, request.ranks) as starter:
        reference = ladder.choose(ladder.REFERENCE, request.mode, request.device)
        starter.ahead([reference, *chosen], request.mode, request.threads, request.device)
        # Imports PyTorch, while the first workers import it as well.
        from golow.programs.comparison.bench import open_bench
        from golow.programs.comparison.recording import recorded

        with open_bench(request, settings, observer, starter) as bench:
            raced = bench.race(chosen)
            return recorded(bench.workload, settings, raced, bench.notes)


def require_sense(request: Request, settings: ComparisonSettings) -> None:
    """Raise `GolowError` for settings that make no sense."""
    if settings.cold and request.device == "cpu":
        raise GolowError("--cold empties the cache of a GPU", "add --device cuda.")
    if not 0 <= settings.time_limit < math.inf:
        raise GolowError(
            f"a time limit of {settings.time_limit} s is not allowed", "use --time-limit 60 or so."
        )
    if not 0 <= settings.interval < 1:
        raise GolowError(
            f"an interval of {settings.interval} is not allowed: it is a share, below 1",
            "use --interval 0.02 for 2%.",
        )
    require_mode(request.mode)
    require_precision(request.device, request.precision)
    require_ranks(request)
    if request.ranks > 1 and settings.turn is not None and settings.turn.is_shared:
        raise GolowError("ranks need exclusive GPUs", "drop turn=.")
