"""From raw iterations to quoted numbers: medians, 95% intervals and the word for a ratio.

Everything here is a pure function. Times are in seconds; a ratio is level over baseline, so that
below 1 is faster.

Two choices matter most:

* **Medians.** On a shared machine a 5 ms iteration occasionally takes 464 ms. A mean follows it; a
  median does not.
* **Pairs.** Each round times level and baseline within about a second, so a clock that drops by a
  fifth affects both. The ratio is formed inside the round before rounds are summarised, and the
  bootstrap resamples whole rounds.

Looking at an interval repeatedly and stopping when it looks good ("optional stopping") makes it too
narrow. Three rules limit this: the race stops on the *width* of the interval and never on the side
of 1 on which it is; it looks only every few rounds (`race.CHECK_EVERY`) and not before
`race.LEAST_ROUNDS`; and a word needs the whole interval beyond `CLAIM_MARGIN`. In simulation
(normal noise of 0.5% to 3% per round) the interval of such a race covers the true ratio in 90% to
94% of cases, against 92% to 94% without stopping, and at most one in a hundred equal pairs is
called faster or slower. Looking after every round from the fifth on covers only 86%.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from golow.measure.words import CLAIM_MARGIN, LEAST_ROUNDS, word
from golow.records.comparison import Quantity, Ratio

CONFIDENCE = 0.95
RESAMPLES = 1000
"""Bootstrap resamples: the interval's ends then move by about a twentieth of its width from seed to
seed, and one interval takes under a millisecond."""

_NANOSECONDS = 1e-9

_Figures = npt.NDArray[np.float64]


def block_figure(nanoseconds: Sequence[int]) -> float:
    """Seconds per iteration of a block: the median of its iterations."""
    return float(np.median(nanoseconds)) * _NANOSECONDS


def median_interval(values: npt.ArrayLike, seed: int) -> tuple[float, float] | None:
    """The 95% bootstrap interval of the median; None for fewer than two values.

    The percentile method, because the median's jackknife values are nearly all alike and the
    bias-corrected one (BCa) divides by their spread.
    """
    sample = np.asarray(values, dtype=float)
    if sample.size < 2:
        return None
    from scipy.stats import bootstrap

    interval = bootstrap(
        (sample,),
        np.median,
        n_resamples=RESAMPLES,
        vectorized=True,
        confidence_level=CONFIDENCE,
        method="percentile",
        rng=np.random.default_rng(seed),
    ).confidence_interval
    return float(interval.low), float(interval.high)


def level_time(figures: npt.ArrayLike, seed: int) -> Quantity:
    """Seconds per iteration of a level: the median over its rounds.

    Its interval includes the machine's drift; only the ratio is free of that. A single round gives
    a value without an interval. Raises ValueError if there is no round.
    """
    return _quantity("time", figures, seed)


def difference(level: npt.ArrayLike, baseline: npt.ArrayLike, seed: int) -> Quantity:
    """Seconds by which an iteration of the level takes longer than the baseline's (negative: less).

    The arguments hold one figure per round, in the same order of rounds.
    """
    over, under = _paired(level, baseline)
    return _quantity("difference", over - under, seed)


def ratio(level: npt.ArrayLike, baseline: npt.ArrayLike, seed: int) -> Ratio | None:
    """Time of the level divided by time of the baseline: the median of the rounds' ratios.

    The arguments hold one figure per round, in the same order of rounds. None if there is no ratio
    with an interval: fewer than two rounds, or a baseline that took no time by its clock.
    """
    over, under = _paired(level, baseline)
    if not (np.isfinite(over) & np.isfinite(under) & (under > 0)).all():
        return None
    ratios = over / under
    interval = median_interval(ratios, seed)
    if interval is None:
        return None
    low, high = interval
    # Rounds without any spread come from a clock coarser than the time, or from a worker that
    # repeats itself: their interval has no width because it carries no information.
    informative = ratios.size >= LEAST_ROUNDS and float(np.ptp(ratios)) > 0
    return Ratio(
        value=float(np.median(ratios)),
        low=low,
        high=high,
        word=word(low, high) if informative else "unclear",
    )


def change(after: npt.ArrayLike, before: npt.ArrayLike, seed: int) -> Ratio | None:
    """Time after over time before, of two races that share no rounds: the ratio of the medians.

    The arguments hold one figure per round. The interval resamples the rounds of each race by
    themselves, and includes neither a machine that changed in between nor the percent by which two
    processes of one program differ. None for fewer than two rounds, or a time of zero.
    """
    over, under = np.asarray(after, dtype=float), np.asarray(before, dtype=float)
    if min(over.size, under.size) < 2 or not (np.isfinite(over).all() and (under > 0).all()):
        return None
    from scipy.stats import bootstrap

    interval = bootstrap(
        (over, under),
        lambda a, b, axis: np.median(a, axis=axis) / np.median(b, axis=axis),
        n_resamples=RESAMPLES,
        vectorized=True,
        confidence_level=CONFIDENCE,
        method="percentile",
        rng=np.random.default_rng(seed),
    ).confidence_interval
    low, high = float(interval.low), float(interval.high)
    informative = min(over.size, under.size) >= LEAST_ROUNDS and high > low
    return Ratio(
        value=float(np.median(over) / np.median(under)),
        low=low,
        high=high,
        word=word(low, high) if informative else "unclear",
    )


def evidence(level: npt.ArrayLike, baseline: npt.ArrayLike) -> float:
    """The p-value of a difference of more than `CLAIM_MARGIN`, in either direction.

    The arguments hold one figure per round, in the same order of rounds. Wilcoxon's signed-rank
    test (Wilcoxon 1945) on the logarithms of the rounds' ratios, against the nearer end of the
    margin; doubled, because the data choose the direction. 1 if there is nothing to test.
    """
    over, under = _paired(level, baseline)
    if (
        over.size < 2
        or not (np.isfinite(over) & np.isfinite(under) & (over > 0) & (under > 0)).all()
    ):
        return 1.0
    logs = np.log(over / under)
    from scipy.stats import wilcoxon  # as everything of it, imported late: it takes a second

    faster = wilcoxon(logs - np.log(1 - CLAIM_MARGIN), alternative="less").pvalue
    slower = wilcoxon(logs - np.log(1 + CLAIM_MARGIN), alternative="greater").pvalue
    return float(min(1.0, 2 * min(faster, slower)))


def adjusted(evidences: Sequence[float]) -> list[float]:
    """The p-values of several questions asked at once, corrected by Holm's method (Holm 1979): the
    chance that any of those below 0.05 is a false alarm is at most 0.05, however they depend on one
    another."""
    order = sorted(range(len(evidences)), key=lambda i: evidences[i])
    corrected, so_far = [0.0] * len(evidences), 0.0
    for rank, index in enumerate(order):
        so_far = max(so_far, min(1.0, (len(evidences) - rank) * evidences[index]))
        corrected[index] = so_far
    return corrected


def rounds_for(questions: int) -> int:
    """Rounds after which the smallest possible evidence passes the correction for this many
    questions at once: with n rounds that is 2 / 2^n."""
    return max(LEAST_ROUNDS, math.ceil(math.log2(2 * max(1, questions) / (1 - CONFIDENCE))) + 1)


def relative_width(estimate: Ratio | Quantity | None) -> float:
    """Full width of the interval (high - low) over the value; infinite without an interval."""
    if estimate is None or estimate.low is None or estimate.high is None or estimate.value <= 0:
        return float("inf")
    return (estimate.high - estimate.low) / estimate.value


def payback(extra_seconds: float, ratio: Ratio | None, difference: Quantity | None) -> float | None:
    """Iterations after which a level has made up for its extra build and start seconds.

    extra_seconds: how much longer the level takes to build and start than the baseline. 0 for a
    level that costs nothing extra; None for one that never pays off, which is every level that is
    not known to be faster.
    """
    if ratio is None or ratio.word != "faster" or difference is None or difference.value >= 0:
        return None
    return max(0.0, extra_seconds) / -difference.value


def _quantity(name: str, values: npt.ArrayLike, seed: int) -> Quantity:
    sample = np.asarray(values, dtype=float)
    if sample.size == 0:
        raise ValueError(f"there is no round to estimate the {name} from")
    low, high = median_interval(sample, seed) or (None, None)
    return Quantity(name=name, unit="s", value=float(np.median(sample)), low=low, high=high)


def _paired(level: npt.ArrayLike, baseline: npt.ArrayLike) -> tuple[_Figures, _Figures]:
    """Both as arrays of equal length; numpy would otherwise broadcast a single round over many."""
    over, under = np.asarray(level, dtype=np.float64), np.asarray(baseline, dtype=np.float64)
    if over.shape != under.shape:
        raise ValueError(f"{over.size} rounds of the level against {under.size} of the baseline")
    return over, under
