"""Attention as one operator, and its gradients. Only a pass makes these
(`golow.lower.recognise.whole_attention`): a level without a kernel for them gets products of
matrices around a softmax."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from golow.lower.ir.graph import Ref
from golow.lower.ir.operator import Operator

if TYPE_CHECKING:
    from torch import Tensor


class Attention(Operator, frozen=True, kw_only=True):
    """softmax(scale * query key^T + added) value, and the logarithm of each row's sum of
    exponentials.

    query: [B, H, L, E], key: [B, G, S, E], value: [B, G, S, D], where H is a multiple of G; the
    results are [B, H, L, D] and [B, H, L]. causal: row i sees the first i + 1 keys. scale: None is
    1 / sqrt(E). added: None, or four axes that broadcast to [B, H, L, S]: numbers, or truth values,
    by which a score is seen or not. A row that sees nothing is zero, and so is its logarithm.
    exact: what is added is not rounded to 16 bits, as where a network adds it itself. kept: which
    weights dropout with that probability keeps, [B, H, L, S]; they are divided by 1 - probability,
    the others are zero.
    """

    query: Ref
    key: Ref
    value: Ref
    added: Ref | None
    causal: bool
    scale: float | None
    exact: bool = False
    kept: Ref | None = None
    probability: float = 0.0

    @property
    def results(self) -> int:
        return 2

    @staticmethod
    def meaning(
        query: Tensor,
        key: Tensor,
        value: Tensor,
        added: Tensor | None,
        causal: bool,
        scale: float | None,
        exact: bool = False,
        kept: Tensor | None = None,
        probability: float = 0.0,
    ) -> tuple[Any, ...]:
        import math

        from golow.lower.decompositions.attention import for_every_head, scores_of

        key, value = for_every_head(query, key, value)
        scores = scores_of(query, key, added, causal, scale)
        sees_nothing = (scores == -math.inf).all(dim=-1, keepdim=True)
        weights = scores.softmax(dim=-1).masked_fill(sees_nothing, 0)
        if kept is not None:
            weights = weights * kept / (1 - probability)
        logarithm = scores.logsumexp(dim=-1).masked_fill(sees_nothing.squeeze(-1), 0)
        return weights @ value, logarithm


class AttentionBackward(Operator, frozen=True, kw_only=True):
    """The gradients of query, key and value, from what `Attention` returns."""

    gradient_of = Attention

    gradient: Ref
    query: Ref
    key: Ref
    value: Ref
    output: Ref
    logarithm: Ref
    added: Ref | None
    causal: bool
    scale: float | None
    kept: Ref | None = None
    probability: float = 0.0

    @property
    def results(self) -> int:
        return 3

    @staticmethod
    def meaning(
        gradient: Tensor,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        output: Tensor,
        logarithm: Tensor,
        added: Tensor | None,
        causal: bool,
        scale: float | None,
        kept: Tensor | None = None,
        probability: float = 0.0,
    ) -> tuple[Any, ...]:
        from golow.lower.decompositions.attention import flash_backward

        result: tuple[Any, ...] = flash_backward(
            gradient,
            query,
            key,
            value,
            output,
            logarithm,
            0.0,
            causal,
            attn_mask=added,
            scale=scale,
            factors=None if kept is None else kept / (1 - probability),
        )
        return result
