"""How a token is chosen from logits: one definition that every level shares.

A draw is a number from 0 to 1, given from outside, so that levels can be compared. It picks a token
by the cumulative probabilities in the order of the vocabulary: near ties between two tokens then
move the cumulative sums only a little, whichever of them a level ranks first.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from golow.records.text import Sampling

HALVINGS = 30  # of the interval in which the least error is searched
LARGEST = 64.0  # an error of the logits that is looked for
ROUNDING, SMALLEST = 1e-12, 1e-300  # of sums of probabilities


def choose(logits: Tensor, sampling: Sampling, draws: Tensor | None) -> Tensor:
    """The next token of each text, int64 [batch]. logits: [batch, vocabulary]. draws: float64
    [batch], from 0 to 1; None if sampling is greedy."""
    if sampling.is_greedy or draws is None:
        return logits.argmax(-1)
    scaled = logits.double() / sampling.temperature
    kept = _kept(scaled, sampling)
    chances = scaled.masked_fill(~kept, -torch.inf).softmax(-1)
    passed = chances.cumsum(-1) <= draws[:, None]
    # The sum of all may be a rounding below a draw: the last candidate stands for what is missing.
    last = kept.shape[-1] - 1 - kept.flip(-1).int().argmax(-1)
    return torch.minimum(passed.sum(-1), last)


def explaining_errors(
    logits: Tensor, tokens: Tensor, sampling: Sampling, draws: Tensor | None
) -> Tensor:
    """The least error of single logits that explains that a level chose these tokens, float64
    [batch]: 0 for the token that these logits choose; infinite if nothing does.

    logits: float64 [batch, vocabulary]. tokens: int64 [batch]. draws: as of `choose`.
    """
    if sampling.is_greedy or draws is None:
        own = logits.gather(-1, tokens[:, None])[:, 0]
        return (logits.amax(-1) - own) / 2
    errors = torch.zeros(len(tokens), dtype=torch.float64, device=logits.device)
    for row in range(len(tokens)):
        part = slice(row, row + 1)
        errors[row] = _least_error(logits[part], tokens[part], sampling, draws[part])
    return errors


def _least_error(logits: Tensor, tokens: Tensor, sampling: Sampling, draws: Tensor) -> float:
    """The least error for one text. Most tokens need none, and are done at once."""
    if _may_choose(logits, tokens, sampling, draws, 0.0):
        return 0.0
    low, high = 0.0, LARGEST
    if not _may_choose(logits, tokens, sampling, draws, high):
        return math.inf
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if _may_choose(logits, tokens, sampling, draws, middle):
            high = middle
        else:
            low = middle
    return high


def _kept(scaled: Tensor, sampling: Sampling) -> Tensor:
    """The candidates, bool [batch, vocabulary]. Of equal ones, the first."""
    size = scaled.shape[-1]
    count = min(sampling.top_k, size) or size
    if count == size and sampling.top_p == 1:
        return torch.ones_like(scaled, dtype=torch.bool)
    values = scaled.topk(count, dim=-1).values
    chances = values.softmax(-1)
    before = chances.cumsum(-1) - chances
    kept = (before < sampling.top_p).sum(-1, keepdim=True)
    last = values.gather(-1, kept - 1)
    above, equal = scaled > last, scaled == last
    return above | (equal & (equal.cumsum(-1) <= kept - above.sum(-1, keepdim=True)))


def _candidates(scaled: Tensor, sampling: Sampling, error: float) -> tuple[Tensor, Tensor]:
    """Tokens that are candidates for certain, and those that may be if each of the scaled logits is
    off by up to the error: bool [batch, vocabulary] each."""
    batch, size = scaled.shape
    slack = 2 * error
    values, order = scaled.sort(dim=-1, descending=True, stable=True)
    # How many tokens may be before each one, and how many must be. Equal ones are in order.
    rank = torch.arange(size, device=scaled.device).expand(batch, size)
    most = torch.searchsorted(-values, slack - values, right=True) - 1
    least = torch.searchsorted(-values, -slack - values)
    if not error:
        most = least = rank
    sure = possible = torch.ones_like(scaled, dtype=torch.bool)
    if 0 < sampling.top_k < size:
        sure, possible = most < sampling.top_k, least < sampling.top_k
    if sampling.top_p < 1:
        through, before = _sums(values, sure), _sums(values, possible)
        own = through.diff(dim=-1)
        over = _shifted(through.gather(-1, most + 1) - own, slack)
        under = _shifted(before.gather(-1, least), -slack)
        sure, possible = sure & (over < sampling.top_p), possible & (under < sampling.top_p)
    back = order.argsort(-1)
    return sure.gather(-1, back), possible.gather(-1, back)


def _may_choose(
    logits: Tensor, tokens: Tensor, sampling: Sampling, draws: Tensor, error: float
) -> bool:
    """True if a level whose logits are off by up to the error may choose the token, of one text."""
    scaled, slack = logits / sampling.temperature, error / sampling.temperature
    sure, possible = _candidates(scaled, sampling, slack)
    token, draw = int(tokens[0]), float(draws[0])
    if not possible[0, token]:
        return False
    chances = scaled.softmax(-1)[0]
    certain, maximal = chances * sure[0], chances * possible[0]
    # The least and the most that may be before the token, and through it.
    least = _least_share(certain[:token], maximal[token:], slack)
    most = 1 - _least_share(certain[token + 1 :], maximal[: token + 1], slack)
    return least - ROUNDING <= draw <= most + ROUNDING


def _least_share(first: Tensor, other: Tensor, slack: float) -> float:
    """Share of the first in both, if its logits are too small by the slack and those of the others
    too large."""
    odds = math.exp(-2 * slack) * float(first.sum())
    return odds / max(odds + float(other.sum()), SMALLEST)


def _sums(values: Tensor, kept: Tensor) -> Tensor:
    """Probabilities of those kept, summed up to each place and to the end: [batch, size + 1]."""
    sums = values.masked_fill(~kept, -torch.inf).softmax(-1).cumsum(-1)
    return torch.cat([torch.zeros_like(sums[:, :1]), sums], -1)


def _shifted(share: Tensor, slack: float) -> Tensor:
    """A probability if the logits of its tokens grow by half of the slack, and all others shrink
    by as much."""
    grown = share * math.exp(slack)
    return grown / (grown + (1 - share).clamp_min(0)).clamp_min(SMALLEST)
