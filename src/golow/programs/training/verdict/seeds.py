"""Compare a level's numbers with eager's over several seeds: equal as far as the seeds can tell?

The means of each number are compared. The 95% interval of their difference is compared with a
tolerance: two runs that differ only in their seed stay within it in 98 of 100 cases. ``same`` means
that the whole interval is within the tolerance, ``differs`` that all of it is outside. The spread
over seeds is estimated from both levels together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
from scipy.stats import f as fisher
from scipy.stats import t as student

from golow.programs.training.training_record import TrainingRun
from golow.programs.training.verdict.pair import Judgement, Pair, resolution
from golow.records.comparison import Quantity

LEAST_SEEDS = 3
"""With fewer seeds the spread is too poorly known to tell equal levels from others."""

WIDEST_ACCURACY = 0.1
"""If the tolerance of the accuracy is larger than this, no level is called the same."""

_TWO_SIDED_95, _TWO_SIDED_98, _UNLIKE = 0.975, 0.99, 0.99


class Measure(NamedTuple):
    """One number of a run, and the smallest credible spread of it over seeds."""

    name: str
    of: Callable[[TrainingRun], float]
    least_spread: float


class Difference(NamedTuple):
    """The difference of the means, its 95% interval, the tolerance, and whether the level's seeds
    are farther apart than eager's by more than chance."""

    value: float
    low: float
    high: float
    tolerance: float
    erratic: bool

    def figures(self, name: str) -> tuple[Quantity, Quantity]:
        """The difference and the tolerance for the record; name: of the measured number."""
        low, high = self.low, self.high
        return (
            Quantity(name=f"{name}_difference", unit="", value=self.value, low=low, high=high),
            Quantity(name=f"{name}_tolerance", unit="", value=self.tolerance),
        )


def by_seeds(pairs: Sequence[Pair]) -> Judgement:
    """Compare the last epoch's mean loss, and the final loss and accuracy on the test set."""
    if len(pairs) < LEAST_SEEDS:
        count = "one seed gives no spread" if len(pairs) == 1 else "two give hardly any spread"
        return Judgement("unclear", f"its curve leaves eager's, and {count}; use 3 seeds")
    figures: list[Quantity] = []
    judged: list[Judgement] = []
    for measure in _measures(pairs):
        found = compared(pairs, measure)
        figures += found.figures(measure.name)
        judged.append(_word(measure.name, found))
    words = [judgement.word for judgement in judged]
    if "differs" in words or "unclear" in words:
        first = words.index("differs" if "differs" in words else "unclear")
        return judged[first]._replace(figures=tuple(figures))
    reason = f"over {len(pairs)} seeds: {'; '.join(judgement.reason for judgement in judged)}"
    return Judgement("same", reason, tuple(figures))


def compared(pairs: Sequence[Pair], measure: Measure) -> Difference:
    """Compare one number of the level's runs with eager's; needs at least two pairs."""
    level = np.array([measure.of(pair.level) for pair in pairs])
    eager = np.array([measure.of(pair.eager) for pair in pairs])
    count, freedom = len(pairs), 2 * len(pairs) - 2
    spreads = [max(float(side.std(ddof=1)), measure.least_spread) for side in (level, eager)]
    spread = math.hypot(*spreads) / math.sqrt(2)
    value = float(level.mean() - eager.mean())
    reach = float(student.ppf(_TWO_SIDED_95, freedom)) * spread * math.sqrt(2 / count)
    tolerance = float(student.ppf(_TWO_SIDED_98, freedom)) * spread * math.sqrt(2)
    chance = math.sqrt(float(fisher.ppf(_UNLIKE, count - 1, count - 1)))
    erratic = spreads[0] > chance * spreads[1]
    return Difference(value, value - reach, value + reach, tolerance, erratic)


def _measures(pairs: Sequence[Pair]) -> Iterator[Measure]:
    least = max(pair.least_distance for pair in pairs)
    eager = [pair.eager for pair in pairs]
    yield Measure("train_loss", _train_loss, least)
    if all(run.epochs[-1].eval_loss is not None for pair in pairs for run in pair):
        yield Measure("test_loss", _test_loss, least)
        yield Measure("accuracy", _accuracy, max(resolution(run.epochs[-1]) for run in eager))


def _word(name: str, found: Difference) -> Judgement:
    value, low, high, tolerance, erratic = found
    what = name.replace("_", " ")
    text = f"{what} {value:+.2g} from eager's ({low:+.2g} to {high:+.2g})"
    explained = f"seeds explain {tolerance:.2g}"
    if low > tolerance or high < -tolerance:
        return Judgement("differs", f"{text}, {explained}")
    if erratic:
        return Judgement("unclear", f"its seeds are farther apart than eager's in {what}")
    if name == "accuracy" and tolerance > WIDEST_ACCURACY:
        return Judgement("unclear", f"the seeds are too far apart: {explained} of accuracy")
    if -tolerance <= low and high <= tolerance:
        return Judgement("same", f"{what} {value:+.2g} ({explained})")
    return Judgement("unclear", f"{text}, {explained}; more seeds narrow the interval")


def _train_loss(run: TrainingRun) -> float:
    return float(np.mean(run.epochs[-1].losses))


def _test_loss(run: TrainingRun) -> float:
    loss = run.epochs[-1].eval_loss
    return math.nan if loss is None else loss


def _accuracy(run: TrainingRun) -> float:
    return run.epochs[-1].eval_accuracy or 0.0
