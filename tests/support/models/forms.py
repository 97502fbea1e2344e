"""Small models, each of which takes, keeps or returns what not every level must be able to."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

FEATURES, CLASSES, TOKENS = 8, 5, 11


@dataclass
class Scores:
    """A dataclass that nobody registered with PyTorch; one field may stay empty."""

    scores: Tensor
    hidden: Tensor
    loss: Tensor | None = None


class Pair(NamedTuple):
    """A named tuple."""

    first: Tensor
    second: Tensor


class _Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(FEATURES, FEATURES), nn.Linear(FEATURES, CLASSES)


class ReturnsDataclass(_Layers):
    """Scores, in a dataclass."""

    def forward(self, x: Tensor) -> Scores:
        hidden = torch.relu(self.first(x))
        return Scores(self.second(hidden), hidden)


class ReturnsNested(_Layers):
    """A dict of a dataclass, a named tuple, a list and nothing."""

    def forward(self, x: Tensor) -> dict[str, Any]:
        hidden = torch.relu(self.first(x))
        scores = self.second(hidden)
        return OrderedDict(
            scores=Scores(scores, hidden),
            pair=Pair(x.sum(1), hidden.sum(1)),
            more=[x * 2],
            none=None,
        )


class ReturnsTheSame(_Layers):
    """An input, one tensor twice, and a view of it."""

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        scores = self.second(torch.relu(self.first(x)))
        return scores, x, scores, scores[:, 1:]


class TakesSeveral(_Layers):
    """Indices, a mask, numbers, and an input that it does not use."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(TOKENS, FEATURES)

    def forward(self, tokens: Tensor, mask: Tensor, x: Tensor, unused: Tensor) -> dict[str, Tensor]:
        """[batch, 3], [batch, 3], [batch, features], [batch, 2]"""
        found = self.embedding(tokens).masked_fill(~mask[..., None], 0.0).sum(1)
        scores = self.second(torch.relu(self.first(found + x)))
        return {"scores": scores, "best": scores.argmax(1), "empty": ~mask.any(1)}


class KeepsUnsaved(_Layers):
    """Buffers outside the state dict: numbers, indices, and one that each step changes."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("scale", torch.linspace(0.5, 2.0, FEATURES), persistent=False)
        self.register_buffer("order", torch.arange(FEATURES).flip(0), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """[batch, features] -> [batch, classes]"""
        return self.second(torch.relu(self.first(x[:, self.order] * self.scale)))


class CountsUnsaved(_Layers):
    """A buffer outside the state dict that a training step changes, and its result depends on."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("steps", torch.ones(()), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """[batch, features] -> [batch, classes]"""
        if self.training:
            self.steps.add_(1.0)
        return self.second(torch.relu(self.first(x))) / self.steps


class OverwritesBuffer(_Layers):
    """A buffer of the state dict that a step writes without reading it."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("latest", torch.zeros(FEATURES))

    def forward(self, x: Tensor) -> Tensor:
        """[batch, features] -> [batch, classes]"""
        hidden = torch.relu(self.first(x))
        self.latest.copy_(hidden.detach().mean(0))
        return self.second(hidden)


class ReadsVersion(_Layers):
    """Loads only a state dict with its version, as torchvision's MNASNet."""

    _version = 2

    def forward(self, x: Tensor) -> Tensor:
        """[batch, features] -> [batch, classes]"""
        return self.second(torch.relu(self.first(x)))

    def _load_from_state_dict(
        self, state_dict: Any, prefix: str, local_metadata: Any, *rest: Any
    ) -> None:
        version = local_metadata.get("version", None)
        if version not in (1, 2):
            raise ValueError(f"version should be set to 1 or 2 instead of {version}")
        super()._load_from_state_dict(state_dict, prefix, local_metadata, *rest)


class SharesWeights(_Layers):
    """An embedding that is the last layer too, a layer of two names, a bias of two layers."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(TOKENS, FEATURES)
        self.second = nn.Linear(FEATURES, TOKENS, bias=False)
        self.second.weight = self.embedding.weight
        self.again = self.first
        self.norm = nn.LayerNorm(FEATURES)
        self.norm.bias = self.first.bias

    def forward(self, tokens: Tensor) -> Tensor:
        """[batch, 3] -> [batch, tokens, 3]"""
        x = torch.relu(self.first(self.embedding(tokens)))
        x = self.norm(self.again(x))
        return self.second(x).transpose(1, 2)


class SharesBuffers(nn.Module):
    """Running statistics of one norm, under two names; and a buffer that two layers have."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm = nn.Linear(FEATURES, FEATURES), nn.BatchNorm1d(FEATURES)
        self.same = self.norm
        self.register_buffer("scale", torch.linspace(0.5, 2.0, FEATURES))
        self.layer.register_buffer("scale", self.scale)

    def forward(self, x: Tensor) -> Tensor:
        """[batch, features] -> [batch, features]"""
        return self.same(torch.relu(self.norm(self.layer(x)))) * self.layer.scale


def inputs_of(model: nn.Module) -> tuple[Tensor, ...]:
    """A batch of 6 that the model takes."""
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(6, FEATURES, generator=draw)
    tokens = torch.randint(TOKENS, (6, 3), generator=draw)
    if isinstance(model, TakesSeveral):
        return tokens, torch.rand(6, 3, generator=draw) > 0.4, x, torch.randn(6, 2, generator=draw)
    return (tokens,) if isinstance(model, SharesWeights) else (x,)


FORMS: tuple[type[nn.Module], ...] = (
    ReturnsDataclass,
    ReturnsNested,
    ReturnsTheSame,
    TakesSeveral,
    KeepsUnsaved,
    CountsUnsaved,
    OverwritesBuffer,
    ReadsVersion,
    SharesWeights,
    SharesBuffers,
)
