"""Scaled dot product attention: products of matrices around a softmax, and their gradients."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten

# Calls of `golow.lower.aten.dropped_attention_calls`.
DROPPED = "golow_called.dropped_attention.default"
DROPPED_BACKWARD = "golow_called.dropped_attention_backward.default"


def scores_of(
    query: Tensor, key: Tensor, mask: Tensor | None, causal: bool, scale: float | None
) -> Tensor:
    """[..., L, S]: query key^T times the scale, with minus infinity where nothing may be seen."""
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = (query * factor) @ key.transpose(-1, -2)
    if causal:
        rows = torch.arange(query.shape[-2]).unsqueeze(1)
        seen = torch.arange(key.shape[-2]).unsqueeze(0) <= rows
        scores = aten.where.ScalarOther(seen, scores, -math.inf)
    if mask is None:
        return scores
    if mask.dtype == torch.bool:
        return aten.where.ScalarOther(mask, scores, -math.inf)
    return scores + mask


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """``scaled_dot_product_attention`` without dropout."""
    if dropout_p:
        return NotImplemented
    if enable_gqa:
        key, value = for_every_head(query, key, value)
    scores = scores_of(query, key, attn_mask, is_causal, scale)
    weights = safe_softmax(scores, -1) if attn_mask is not None else torch.softmax(scores, -1)
    return weights @ value


def repeated(heads: Tensor, times: int) -> Tensor:
    """Each head of [..., H, S, D] this many times in a row."""
    *outer, count, length, width = heads.shape
    wide = heads.unsqueeze(-3).expand(*outer, count, times, length, width)
    return wide.reshape(*outer, count * times, length, width)


def safe_softmax(self: Tensor, dim: int, dtype: torch.dtype | None = None) -> Tensor:
    """softmax that is zero where everything is minus infinity."""
    x = self if dtype is None else self.to(dtype)
    largest = aten.amax.default(x, [dim], True)
    hidden = aten.eq.Scalar(largest, -math.inf)
    result = torch.softmax(aten.where.ScalarSelf(hidden, 0.0, x), dim)
    return aten.where.ScalarSelf(hidden, 0.0, result)


def flash_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
) -> Any:
    """The output, and for each row the logarithm of the sum of its exponentials."""
    if dropout_p:
        return NotImplemented
    key, value = for_every_head(query, key, value)
    scores = scores_of(query, key, attn_mask, is_causal, scale)
    largest = aten.amax.default(scores, [-1], True)
    largest = aten.where.ScalarSelf(aten.eq.Scalar(largest, -math.inf), 0.0, largest)
    total = torch.exp(scores - largest).sum(-1, keepdim=True)
    logarithm = largest + torch.log(total)
    weights = torch.exp(scores - logarithm)
    weights = aten.where.ScalarSelf(aten.eq.Scalar(total, 0), 0.0, weights)
    return weights @ value, logarithm.squeeze(-1)


def flash_backward(
    grad_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    logsumexp: Tensor,
    dropout_p: float,
    is_causal: bool,
    *,
    attn_mask: Tensor | None = None,
    scale: float | None = None,
    factors: Tensor | None = None,
) -> Any:
    """The gradients of query, key and value; the weights are computed again (Dao et al. 2022,
    "FlashAttention", algorithm 4). factors: of dropout, of each weight."""
    if dropout_p:
        return NotImplemented
    groups = key.shape[-3]
    key, value = for_every_head(query, key, value)
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = scores_of(query, key, attn_mask, is_causal, scale)
    weights = torch.exp(scores - logsumexp.unsqueeze(-1))
    hidden = aten.eq.Scalar(scores, -math.inf)
    weights = aten.where.ScalarSelf(hidden, 0.0, weights)
    of_weights = grad_out @ value.transpose(-1, -2)
    dropped = weights
    if factors is not None:
        of_weights, dropped = of_weights * factors, weights * factors
    shared = (grad_out * out).sum(-1, keepdim=True)
    of_scores = weights * (of_weights - shared)
    of_query = (of_scores @ key) * factor
    of_key = (of_scores.transpose(-1, -2) @ query) * factor
    of_value = dropped.transpose(-1, -2) @ grad_out
    return of_query, _of_groups(of_key, groups), _of_groups(of_value, groups)


def dropped_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
) -> Any:
    """The output of attention with dropout; of each row the logarithm of the sum of exponentials;
    the weights, which of them are kept, and these."""
    scores = scores_of(query, key, attn_mask, is_causal, scale)
    weights = safe_softmax(scores, -1) if attn_mask is not None else torch.softmax(scores, -1)
    dropped, kept = aten.native_dropout.default(weights, dropout_p, True)
    return dropped @ value, torch.logsumexp(scores, -1), weights, kept, dropped


def dropped_attention_backward(
    grad_out: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    out: Tensor,
    logsumexp: Tensor,
    weights: Tensor,
    kept: Tensor,
    dropped: Tensor,
    attn_mask: Tensor | None,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
) -> Any:
    """The gradients of query, key and value, from what `dropped_attention` returns."""
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    of_dropped = grad_out @ value.transpose(-1, -2)
    of_weights = aten.native_dropout_backward.default(of_dropped, kept, 1 / (1 - dropout_p))
    of_scores = aten._softmax_backward_data.default(of_weights, weights, -1, weights.dtype)
    of_query = (of_scores @ key) * factor
    of_key = (of_scores.transpose(-1, -2) @ query) * factor
    return of_query, of_key, dropped.transpose(-1, -2) @ grad_out


def for_every_head(query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    times = query.shape[-3] // key.shape[-3]
    return (key, value) if times == 1 else (repeated(key, times), repeated(value, times))


def _of_groups(gradient: Tensor, groups: int) -> Tensor:
    """The sum over the heads that share a key or value."""
    *outer, heads, length, width = gradient.shape
    if heads == groups:
        return gradient
    return gradient.reshape(*outer, groups, heads // groups, length, width).sum(-3)


DEFINITIONS = {
    DROPPED: dropped_attention,
    DROPPED_BACKWARD: dropped_attention_backward,
    "aten.scaled_dot_product_attention.default": attention,
    "aten._safe_softmax.default": safe_softmax,
    "aten._scaled_dot_product_flash_attention_for_cpu.default": flash_forward,
    "aten._scaled_dot_product_flash_attention_for_cpu_backward.default": flash_backward,
}
