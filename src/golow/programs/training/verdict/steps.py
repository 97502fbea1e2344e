"""Compare two curves step by step, as long as rounding keeps them near each other.

The effect of rounding is measured: eager trains its first epochs again, from weights that are a
few roundings away (the twin). While the twin is near eager, a correct level is too. A distance is
the root mean square of the differences of the losses up to a step.
"""

from __future__ import annotations

import numpy as np

from golow.programs.training.training_record import TrainingRun
from golow.programs.training.verdict.pair import Numbers, Pair, resolution, step_losses

FACTOR = 10.0
"""A level may be this many times as far from eager as the twin. The twin is moved by eight
roundings of every weight; another order of summation amounts to about four. The rates at which two
correct curves part vary by a few times."""

NEAR = 0.01
"""Two curves are near each other up to this share of the standard deviation of eager's loss over
the steps. Beyond it, two correct training runs are independent, and only the spread over seeds can
judge them. It is not a share of the loss itself, which hardly changes if nothing is learnt."""


def left_by_more_than_rounding(pair: Pair, twin: TrainingRun) -> str:
    """Why the level's curve cannot be eager's with other roundings; empty if it can be."""
    curves = [step_losses(run) for run in (pair.eager, pair.level, twin)]
    eager, level, moved = (curve[: min(map(len, curves))] for curve in curves)
    rounding, found = _running_distance(moved, eager), _running_distance(level, eager)
    allowed = FACTOR * rounding + pair.least_distance
    beyond = np.flatnonzero((rounding < _near(pair)) & (found > allowed))
    if not beyond.size:
        return _evaluated_otherwise(pair, twin, rounding)
    step = int(beyond[0])
    return (
        f"after {step + 1} step{'s' if step else ''} its losses are off by {found[step]:.2g}, "
        f"rounding explains {allowed[step]:.2g}"
    )


def stays_near(pair: Pair) -> bool:
    """True if training and test losses stay within `NEAR` of eager's to the end, and the final
    accuracy within its standard error."""
    near = _near(pair)
    if distance(pair) > near:
        return False
    for one, other in zip(pair.level.epochs, pair.eager.epochs, strict=True):
        if one.eval_loss is None or other.eval_loss is None:
            continue
        if abs(one.eval_loss - other.eval_loss) > near:
            return False
    last, eager = pair.level.epochs[-1], pair.eager.epochs[-1]
    if last.eval_accuracy is None or eager.eval_accuracy is None:
        return True
    return abs(last.eval_accuracy - eager.eval_accuracy) <= resolution(eager)


def distance(pair: Pair) -> float:
    """The distance of the two curves over the steps that both have."""
    eager, level = step_losses(pair.eager), step_losses(pair.level)
    steps = min(len(eager), len(level))
    return float(_running_distance(level[:steps], eager[:steps])[-1])


def _near(pair: Pair) -> float:
    return NEAR * float(step_losses(pair.eager).std())


def _evaluated_otherwise(pair: Pair, twin: TrainingRun, apart: Numbers) -> str:
    """Explain a deviating test loss, as long as the twin's weights are near eager's; empty if none.

    apart: the twin's distance up to each step. Once its curve has left eager's, the two are
    separate training runs, and their test losses may agree by luck.
    """
    rounding, steps = 0.0, 0
    for level, eager, moved in zip(pair.level.epochs, pair.eager.epochs, twin.epochs, strict=False):
        steps += len(moved.losses)
        if apart[min(steps, len(apart)) - 1] >= _near(pair):
            return ""
        if level.eval_loss is None or eager.eval_loss is None or moved.eval_loss is None:
            continue
        rounding = max(rounding, abs(moved.eval_loss - eager.eval_loss))
        found = abs(level.eval_loss - eager.eval_loss)
        # Running statistics that are not warmed up can make a test loss many times the first loss.
        allowed = FACTOR * rounding + pair.least_distance * max(1.0, eager.eval_loss)
        if rounding < _near(pair) and found > allowed:
            return (
                f"its test loss after epoch {level.epoch} is off by {found:.2g}, "
                f"rounding explains {allowed:.2g}"
            )
    return ""


def _running_distance(losses: Numbers, eager: Numbers) -> Numbers:
    """The distance up to each step."""
    found: Numbers = np.sqrt(np.cumsum((losses - eager) ** 2) / np.arange(1, len(eager) + 1))
    return found
