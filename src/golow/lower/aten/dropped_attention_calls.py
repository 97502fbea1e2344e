"""Attention with dropout as calls that PyTorch can trace without looking into them: one forward,
one for its gradients. PyTorch's tracer would make products, softmax, dropout and their gradients of
them. A level without a kernel for the whole gets those by their definitions
(`golow.lower.decompositions.attention`)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from golow.lower.decompositions.attention import (
    DROPPED,
    DROPPED_BACKWARD,
    dropped_attention,
    dropped_attention_backward,
)

_NAMESPACE, *_NAMES = DROPPED.split(".")
_LIBRARY: Any = torch.library.Library(_NAMESPACE, "DEF")  # type: ignore[no-untyped-call]
_HOW = "Tensor? attn_mask, float dropout_p, bool is_causal, float? scale"
_LIBRARY.define(
    f"dropped_attention(Tensor query, Tensor key, Tensor value, {_HOW}) -> "
    "(Tensor output, Tensor logsumexp, Tensor weights, Tensor kept, Tensor dropped)",
    tags=(torch.Tag.nondeterministic_seeded,),
)
_LIBRARY.define(
    "dropped_attention_backward(Tensor grad_out, Tensor query, Tensor key, Tensor value, "
    f"Tensor out, Tensor logsumexp, Tensor weights, Tensor kept, Tensor dropped, {_HOW}) -> "
    "(Tensor, Tensor, Tensor)"
)
for _name, _definition in (
    ("dropped_attention", dropped_attention),
    ("dropped_attention_backward", dropped_attention_backward),
):
    _LIBRARY.impl(_name, _definition, "CompositeExplicitAutograd")
_calls = getattr(torch.ops, _NAMESPACE)
KEPT = 3  # which result of the call that is


def _shapes(query: Tensor, key: Tensor, value: Tensor, *_: Any) -> tuple[Tensor, ...]:
    rows = query.shape[:-1]
    weights, dropped = (query.new_empty((*rows, key.shape[-2])) for _ in range(2))
    output = query.new_empty((*rows, value.shape[-1]))
    kept = torch.empty_like(weights, dtype=torch.bool)
    return output, query.new_empty(rows), weights, kept, dropped


def _shapes_backward(
    gradient: Tensor, query: Tensor, key: Tensor, value: Tensor, *_: Any
) -> tuple[Tensor, ...]:
    return tuple(item.new_empty(item.shape) for item in (query, key, value))


torch.library.register_fake(DROPPED.rpartition(".")[0].replace(".", "::"), _shapes, lib=_LIBRARY)
torch.library.register_fake(
    DROPPED_BACKWARD.rpartition(".")[0].replace(".", "::"), _shapes_backward, lib=_LIBRARY
)


class _Differentiable(torch.autograd.Function):
    """The call with its gradients."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, *how: Any) -> Any:
        found = _calls.dropped_attention(query, key, value, *how)
        ctx.save_for_backward(query, key, value, *found)
        ctx.how = how
        ctx.mark_non_differentiable(*found[1:])
        return found

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, *_: Any) -> Any:
        found = _calls.dropped_attention_backward(gradient, *ctx.saved_tensors, *ctx.how)
        return *found, None, None, None, None


@contextmanager
def dropped_attention_whole() -> Iterator[None]:
    """Within the block attention with dropout is one call."""
    with _Whole():
        yield


class _Whole(TorchFunctionMode):
    def __torch_function__(
        self, function: Any, types: Any, given: tuple[Any, ...] = (), named: Any = None
    ) -> Any:
        if function is functional.scaled_dot_product_attention:
            whole = _whole(*given, **(named or {}))
            if whole is not None:
                return whole
        return function(*given, **(named or {}))


def _whole(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor | None:
    """The output by one call; None without dropout, and for what the call does not take."""
    plain = not enable_gqa and len({item.dim() for item in (query, key, value)} | {4}) == 1
    batch = len({item.shape[:2] for item in (query, key, value)}) == 1
    learned = attn_mask is not None and attn_mask.requires_grad
    if not 0 < dropout_p < 1 or not plain or not batch or learned:
        return None
    how = (attn_mask, dropout_p, is_causal, scale)
    output: Tensor = _Differentiable.apply(query, key, value, *how)[0]  # type: ignore[no-untyped-call]
    return output
