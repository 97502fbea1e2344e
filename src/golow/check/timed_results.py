"""Verify that timed iterations do the work that was checked. The check covers a level's answers to
`outputs`; the race trusts its answers to `time`. This file ties the two together. Every block of a
race carries a challenge: values, chosen at random by the parent, that are written into the inputs
before each iteration. The level answers with one number for the result of each iteration, a
commitment. Eager gets the same challenge in the same round, so its numbers state what the level's
must be, within what the check allows. A level that computes nothing, or only a part, or repeats
stored results, cannot know these numbers.

Two tests follow: is each number eager's up to rounding (`Verifier.judge`), and over the whole race,
do the numbers respond to the marks as eager's do (`Verifier.unmoved`)? The second also works in low
precision, where rounding may hide the effect of a single mark.
"""

from __future__ import annotations

import math
import random
import secrets
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from golow.check.left_state import Steps
from golow.check.marked_places import Span
from golow.measure.block import Committed, warmup_iterations
from golow.records.comparison import Block, Check
from golow.records.workload import Workload
from golow.worker.marking import cell
from golow.worker.protocol import Challenge, Marks

DEVIATIONS = 10.0
"""Standard deviations that a weighted sum may be off. Rounding errors add up like random numbers,
since the weights look random; another pattern of errors of the same size does, too."""

SUM_ROUNDING = 4e-6
"""Error of a weighted sum itself, as a share of its size: it is computed in float32."""

FALSE_ALARMS = 1e-9
"""How often an honest level with random layers may be refuted by a round, by chance. The fewer
steps a round has, the further their mean may be off."""

STEPS = 16
"""Steps of a training run after a reset in which its losses are compared with eager's. Rounding
drives the weights apart from step to step."""

CHEAP_WEIGHTS, MOST_WITHOUT_RESET, MOST_AFTER_CHEAP_ONE = 1e7, 6, 2
"""The most rounds of a training run in a row that do not begin with a reset, which costs as much as
loading weights: fewer if these have at most this many bytes. At least one follows each reset."""

EVALUATION_SHARE = 0.01
"""Share of eager's timed iterations that it may repeat to verify iterations of faster levels."""

LEAST_MOVED, LARGEST_ERROR = 0.5, 0.1
"""A level's results must move by at least this share of eager's, if the share is known with at most
this standard error."""

LEAST_SIGNAL = 3.0
"""That slope is requested only if eager's results move by this many times what rounding may make of
one: noise in eager's moves alone would make the slope of an honest level small."""


CELLS = 16.0
"""Width of a cell of the chain, in errors that are allowed to a result: honest results are in
eager's cell but for one in hundreds."""


class Verifier:
    """Challenges the levels of a race and verifies their results against the baseline's.

    spans: the places of marks, those of each input; a round marks one of them, drawn at random.
    checks: the verdict of every level that takes part, by name. Levels that did not match are not
    verified, and none is if the baseline did not. weights: bytes that a worker writes when it goes
    back to the bundle's weights.
    """

    def __init__(
        self,
        workload: Workload,
        spans: Sequence[Sequence[Span]],
        checks: Mapping[str, Check],
        learning_rate: float,
        baseline: str,
        weights: int = 0,
    ) -> None:
        self.workload, self.baseline = workload, baseline
        self._spans = spans
        self.learning_rate = learning_rate
        self.seconds = 0.0  # that eager needed to repeat iterations
        self._secret = secrets.token_hex(16)
        self._draw = random.Random(secrets.token_hex(16))  # noqa: S311 - seeded by a secret
        self._limits = {
            name: Limit.of(check, workload)
            for name, check in checks.items()
            if check.verdict == checks[baseline].verdict == "match" and name != baseline
        }
        self._proving = True
        self._proved: dict[int, Span | None] = {}  # rounds with a challenge, and where it marks
        self._reset_due = 0
        cheap = weights <= CHEAP_WEIGHTS
        self._most_without_reset = MOST_AFTER_CHEAP_ONE if cheap else MOST_WITHOUT_RESET
        self._chain = self._chain_width()
        self._moves = {name: Moves(limit.rounding) for name, limit in self._limits.items()}
        self._round = 0

    def begin_round(self, number: int) -> None:
        """Begin a round; in training, only some rounds are verified."""
        self._round = number
        due = number >= self._reset_due or number in self._proved  # if no level had time for it
        self._proving = self.workload.mode == "infer" or due
        if not self._proving:
            return
        self._reset_due = number + 1 + self._draw.randint(1, self._most_without_reset)
        span = self._draw.choice(self._draw.choice(self._spans)) if self._spans else None
        self._proved[number] = span

    def may_end(self, found: Mapping[str, Sequence[Block]]) -> bool:
        """True if the race may end with this round: in training the last blocks of levels are
        verified by the state that they leave, and both kinds must be among them. found: the blocks
        of the levels that can still be timed."""
        train = self.workload.mode == "train"
        return not train or all(len(self.steps_since_reset(b)) != 1 for b in found.values())

    def can_verify(self, blocks: Sequence[Block]) -> bool:
        """True if the state that these blocks of a training level left can be verified: a worker
        may be honest in a block that begins with a reset, and in no other."""
        return len(self.steps_since_reset(blocks)) > 1

    def steps_since_reset(self, blocks: Sequence[Block]) -> list[Steps]:
        """A training level's steps since its own last reset, from its blocks in this race; a level
        may lack one of the race's last round."""
        resets = [block.round for block in blocks if block.round in self._proved]
        steps: list[Steps] = []
        for block in (block for block in blocks if resets and block.round >= resets[-1]):
            count = len(block.host_ns) + warmup_iterations(len(block.host_ns))
            if block.round == resets[-1]:  # each attempt began again
                steps.append(Steps(self._challenge(block.round, block.attempts - 1), count))
            else:
                steps.append(Steps(None, block.attempts * count))
        return steps

    def challenge(self, attempt: int) -> Challenge | None:
        """Challenge of the current round, the same for every level; None if none is made."""
        return self._challenge(self._round, attempt) if self._proving else None

    def _challenge(self, number: int, attempt: int) -> Challenge:
        train, marks = self.workload.mode == "train", self._marks(number, attempt)
        return Challenge(reset=train, learning_rate=self.learning_rate, marks=marks)

    def judge(
        self, found: Mapping[str, Committed], evaluate: Callable[[Challenge], float | None]
    ) -> dict[str, str]:
        """Why levels are refuted by their results in this round, by name.

        evaluate: makes eager run one iteration with a challenge; its result.
        """
        if not self._proving:
            return {}
        eager = found.get(self.baseline, ())
        refuted: dict[str, str] = {}
        for name, limit in self._limits.items():
            if name not in found:
                continue
            pairs = self._pairs(found[name], eager, evaluate)
            reason = self._refute(name, limit, pairs)
            if reason:
                refuted[name] = reason
        return refuted

    def unmoved(self, name: str) -> str:
        """Why the level's results do not move with the marks; empty if they do, or if it cannot be
        told."""
        return self._moves[name].refute() if name in self._moves else ""

    # ------------------------------------------------------------ implementation

    def _chain_width(self) -> float | None:
        """Results of inference are chained on a CPU, so that no iteration can be computed before
        the one before it. A GPU enqueues iterations before it has a result, and the steps of a
        training run need one another anyway."""
        if (self.workload.mode, self.workload.device) != ("infer", "cpu"):
            return None
        return CELLS * max((v.allowed(0, 0.0) for v in self._limits.values()), default=0.0) or None

    def _marks(self, number: int, attempt: int, previous: float | None = None) -> Marks | None:
        span = self._proved[number]
        if span is None:
            return None
        seed = f"{self._secret} {number} {attempt}"
        draw = random.Random(seed)  # noqa: S311 - the secret is in the seed
        return span.marks(draw.getrandbits(32), self._chain, previous)

    def _pairs(
        self,
        level: Committed,
        eager: Committed,
        evaluate: Callable[[Challenge], float | None],
    ) -> Iterator[tuple[int, float, float]]:
        """Iterations with the level's result and eager's."""
        train = self.workload.mode == "train"
        unknown: list[tuple[int, int]] = []  # attempts and iterations without eager's result
        for attempt, results in enumerate(level):
            others = eager[attempt] if attempt < len(eager) else ()
            if train:
                yield from zip(range(STEPS), results, others)  # noqa: B905 - of any lengths
                continue
            unknown += ((attempt, i) for i in range(len(others), len(results)))
            before = 0, 0  # the cells of the results of the iteration before
            for iteration, (own, other) in enumerate(zip(results, others, strict=False)):
                if before[0] == before[1]:
                    yield iteration, own, other
                else:  # on the two sides of a limit between cells: they had other marks
                    unknown.append((attempt, iteration))
                before = cell(self._chain, own), cell(self._chain, other)
        share = EVALUATION_SHARE * max(1, *map(len, eager)) if eager else EVALUATION_SHARE
        if unknown and self._draw.random() < share:
            attempt, iteration = self._draw.choice(unknown)
            previous = level[attempt][iteration - 1] if iteration else None
            marks = self._marks(self._round, attempt, previous)
            repeated = evaluate(Challenge(first=iteration, reset=False, marks=marks))
            if repeated is not None:
                yield iteration, level[attempt][iteration], repeated

    def _refute(self, name: str, limit: Limit, pairs: Iterator[tuple[int, float, float]]) -> str:
        if self.workload.random_layers:
            return limit.refute_mean([(own, other) for _, own, other in pairs], self._round)
        for iteration, own, other in pairs:
            if not math.isfinite(other):
                continue
            allowed = limit.allowed(iteration, other)
            if not abs(own - other) <= allowed:  # also if it is not finite
                return (
                    f"in round {self._round} of the race the result of iteration {iteration} is "
                    f"off by {abs(own - other):.2g}; rounding explains {allowed:.2g}"
                )
            self._moves[name].add(iteration % self.workload.batches, own, other)
        return ""


class Limit(NamedTuple):
    """How far a level's result may be from eager's.

    error: the error that the check allows for. size: the result's own typical size. per_step: by
    how much the limit grows with each step of a training run, as a share of error. rounding:
    eager's own error of a result: of what is summed, by the check, and of the sum.
    """

    error: float
    size: float
    per_step: float
    rounding: float = 0.0

    @classmethod
    def of(cls, check: Check, workload: Workload) -> Limit:
        """From the tensors of a level's check."""
        if workload.mode == "train":
            losses = [t for t in check.tensors if "/loss/" in t.name]
            error = max((tensor.limit for tensor in losses), default=0.0)
            size = max((tensor.scale for tensor in losses), default=0.0)
            rounding = max((tensor.eager_error for tensor in losses), default=0.0)
            return cls(4 * error, size, 1.0, rounding)
        # For each output, the largest of all batches: squares of limit, size and eager's error.
        largest: dict[str, tuple[float, ...]] = {}
        for tensor in check.tensors:
            _, kind, position = tensor.name.split("/", 2)
            if kind == "output":
                found = [
                    value**2 * (tensor.elements - tensor.infinite)
                    for value in (tensor.limit, tensor.scale, tensor.eager_error)
                ]
                before = largest.get(position, (0.0,) * len(found))
                largest[position] = tuple(map(max, before, found))
        limit, size, rounding = (
            sum(each[index] for each in largest.values()) for index in range(3)
        )
        deviation = DEVIATIONS * math.sqrt(limit / 3)  # of weights between -1 and 1
        summed = SUM_ROUNDING * math.sqrt(size)
        return cls(deviation, math.sqrt(size), 0.0, math.hypot(math.sqrt(rounding / 3), summed))

    def allowed(self, iteration: int, wanted: float) -> float:
        """For the result of that iteration. A mark may make it larger than the check's."""
        larger = max(1.0, abs(wanted) / self.size) if self.size else 1.0
        growth = 1 + self.per_step * iteration
        return self.error * growth * larger + SUM_ROUNDING * max(self.size, abs(wanted))

    def refute_mean(self, pairs: Sequence[tuple[float, float]], number: int) -> str:
        """For steps with random layers, of which only the means can be compared."""
        from scipy.stats import t  # takes long to import, and few networks have random layers

        if len(pairs) < 2:
            return ""
        own, other = (np.array(values) for values in zip(*pairs, strict=True))
        spread = float((own - other).std(ddof=1)) / math.sqrt(len(pairs))
        deviations = float(t.isf(FALSE_ALARMS, len(pairs) - 1))
        allowed = self.allowed(len(pairs), float(other.mean())) + deviations * spread
        distance = abs(float(own.mean() - other.mean()))
        if distance <= allowed:
            return ""
        return (
            f"in round {number} of the race the mean loss of {len(pairs)} steps is off by "
            f"{distance:.2g}; rounding and random layers explain {allowed:.2g}"
        )


class Moves:
    """How a level's results move with the marks, against eager's: a slope that should be one.

    Results are compared within batches, so that what stored results of a batch would explain does
    not count. rounding: of one of eager's results, a standard deviation.
    """

    def __init__(self, rounding: float = 0.0) -> None:
        self.rounding = rounding
        self._found: dict[int, list[tuple[float, float]]] = defaultdict(list)

    def add(self, batch: int, own: float, other: float) -> None:
        """Record a result on that batch, and of eager's."""
        self._found[batch].append((own, other))

    def refute(self) -> str:
        """Why the slope is too small; empty if it is not, or if it is not known well enough."""
        slope, error = self.slope()
        if error > LARGEST_ERROR or slope >= LEAST_MOVED:
            return ""
        return (
            f"its timed results move by {slope:.2f} of what eager's do (standard error "
            f"{error:.2f}) when values are written into the inputs"
        )

    def slope(self) -> tuple[float, float]:
        """The slope of a regression within batches, and its standard error; infinite if there is
        too little to tell."""
        pairs = [np.array(found) for found in self._found.values() if len(found) > 1]
        if not pairs:
            return 1.0, math.inf
        centred = np.concatenate([found - found.mean(axis=0) for found in pairs])
        own, other = centred[:, 0], centred[:, 1]
        freedom = len(centred) - len(pairs) - 1
        squares = float(other @ other)
        if freedom < 1 or squares == 0 or not np.isfinite(centred).all():
            return 1.0, math.inf
        if math.sqrt(squares / (freedom + 1)) < LEAST_SIGNAL * self.rounding:
            return 1.0, math.inf
        slope = float(own @ other) / squares
        residual = own - slope * other
        return slope, math.sqrt(float(residual @ residual) / freedom / squares)
