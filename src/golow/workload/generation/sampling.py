"""How a token is chosen from logits: one definition that every level shares.

A draw is a number from 0 to 1, given from outside, so that levels can be compared. It picks a token
by the cumulative probabilities in the order of the vocabulary: near ties between two tokens then
move the cumulative sums only a little, whichever of them a level ranks first.
"""

from __future__ import annotations

import torch
from torch import Tensor

from golow.records.text import Sampling

HALVINGS = 30  # of the interval in which the least error is searched
LARGEST = 64.0  # an error of the logits that explains every token


def choose(logits: Tensor, sampling: Sampling, draws: Tensor | None) -> Tensor:
    """The next token of each text, int64 [batch]. logits: [batch, vocabulary]. draws: float64
    [batch], from 0 to 1; None if sampling is greedy."""
    if sampling.is_greedy or draws is None:
        return logits.argmax(-1)
    scaled = logits.double() / sampling.temperature
    kept, _ = candidates(scaled, sampling, 0.0)
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
    low = torch.zeros(len(tokens), dtype=torch.float64)
    high = torch.full_like(low, LARGEST)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        explains = _may_choose(logits, tokens, sampling, draws, middle)
        low, high = torch.where(explains, low, middle), torch.where(explains, middle, high)
    exact = _may_choose(logits, tokens, sampling, draws, torch.zeros_like(low))
    high = high.masked_fill(high > LARGEST / 2, torch.inf)
    return torch.where(exact, torch.zeros_like(high), high)


def candidates(scaled: Tensor, sampling: Sampling, error: Tensor | float) -> tuple[Tensor, Tensor]:
    """Tokens that are candidates for certain, and those that may be if each of the scaled logits is
    off by up to the error, a number or [batch]: bool [batch, vocabulary] each."""
    batch, size = scaled.shape
    slack = 2 * torch.as_tensor(error, dtype=torch.float64).expand(batch)[:, None]
    values, order = scaled.sort(dim=-1, descending=True, stable=True)
    # How many tokens may be before each one, and how many must be. Equal ones are in order.
    rank = torch.arange(size).expand(batch, size)
    most = torch.searchsorted(-values, slack - values, right=True) - 1
    least = torch.searchsorted(-values, -slack - values)
    most, least = (torch.where(slack == 0, rank, found) for found in (most, least))
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
    logits: Tensor, tokens: Tensor, sampling: Sampling, draws: Tensor, error: Tensor
) -> Tensor:
    """True where a level whose logits are off by up to the error may choose the token."""
    scaled, slack = logits / sampling.temperature, error / sampling.temperature
    sure, possible = candidates(scaled, sampling, slack)
    chances = scaled.softmax(-1)
    certain, maximal = chances * sure, chances * possible
    place = torch.arange(logits.shape[-1])
    before, after = place < tokens[:, None], place > tokens[:, None]
    own = maximal.gather(-1, tokens[:, None])[:, 0]
    grown, shrunk = slack.exp(), (-slack).exp()

    def share(little: Tensor, much: Tensor) -> Tensor:
        return little * shrunk / (little * shrunk + much * grown).clamp_min(1e-300)

    # The least and the most that may be before the token, and through it.
    least = share((certain * before).sum(-1), own + (maximal * after).sum(-1))
    most = 1 - share((certain * after).sum(-1), own + (maximal * before).sum(-1))
    rounding = 1e-12  # of the sums
    inside = (draws >= least - rounding) & (draws <= most + rounding)
    return inside & possible.gather(-1, tokens[:, None])[:, 0]


def _sums(values: Tensor, kept: Tensor) -> Tensor:
    """Probabilities of those kept, summed up to each place and to the end: [batch, size + 1]."""
    sums = values.masked_fill(~kept, -torch.inf).softmax(-1).cumsum(-1)
    return torch.cat([torch.zeros_like(sums[:, :1]), sums], -1)


def _shifted(share: Tensor, slack: Tensor) -> Tensor:
    """A probability if the logits of its tokens grow by half of the slack, and all others shrink
    by as much."""
    grown = share * slack.exp()
    return grown / (grown + (1 - share).clamp_min(0))
