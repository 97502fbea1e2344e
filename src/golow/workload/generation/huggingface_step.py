"""A causal language model from transformers that generates: with a static or a growing cache."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from golow.workload.generation.held_caches import HeldCaches


class HuggingFaceStep(HeldCaches):
    """Inputs and output: those of a step module (`golow.models.gpt2_step.Gpt2Step`).

    The caches are the tensors of transformers' ``StaticCache``, which its layers write in place,
    here as buffers.
    """

    def __init__(self, model: nn.Module, batch: int, longest: int) -> None:
        super().__init__()
        from golow.workload.generation.huggingface_cache import static_cache

        self.model, self._longest = model, longest
        config: Any = model.config
        self._text_config: Any = config.get_text_config()
        self._cache = cache = static_cache(config, longest)
        self._call = Call(model)
        with torch.no_grad():  # the layers allocate their tensors when they are first called
            device = next(model.parameters()).device
            first = torch.zeros(batch, 1, dtype=torch.long, device=device)
            self._call(first, torch.arange(1, device=device), cache)
        self.hold(cache.layers)

    def forward(self, tokens: Tensor, position: Tensor) -> Tensor:
        """The logits of the next token."""
        positions = position + torch.arange(tokens.shape[1], device=tokens.device)
        if position.dim():
            return self._at_own_positions(tokens, positions)
        for layer in self._cache.layers:
            if hasattr(layer, "cumulative_length"):
                layer.cumulative_length.copy_(position)
        return self._call(tokens, positions, self._cache)

    def _at_own_positions(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """positions: [batch, count]."""
        from golow.workload.generation.huggingface_cache import masks_of

        dtype = next(self.model.parameters()).dtype
        masks = masks_of(self._text_config, positions, self._longest, dtype)
        for layer in self._cache.layers:
            layer.rows = positions
        try:
            return self._call(tokens, positions, self._cache, masks)
        finally:
            for layer in self._cache.layers:
                layer.rows = None


class HuggingFaceGrowing:
    """The model with transformers' ``DynamicCache``, as ``generate`` calls it by default."""

    def __init__(self, model: nn.Module) -> None:
        self._config: Any = model.config
        self._call = Call(model)
        self._cache: Any = None
        self._behind: Tensor | None = None  # padding before each text, [batch, 1]

    def prefill(self, tokens: Tensor) -> Tensor:
        """Logits [batch, vocabulary] after the tokens that a text begins with, [batch, count]."""
        self._behind = None
        return self._first(tokens)

    def prefill_apart(self, texts: Sequence[Tensor]) -> Tensor:
        """Return logits after texts of different lengths, left-padded as tokenizers do, with an
        attention mask and position ids."""
        tokens, self._behind = left_padded(texts)
        return self._first(tokens)

    def _first(self, tokens: Tensor) -> Tensor:
        from transformers import DynamicCache

        self._cache = DynamicCache(config=self._config)
        return self.step(tokens, 0)

    def step(self, tokens: Tensor, position: int) -> Tensor:
        """Logits after the next tokens, [batch, count], which come after ``position`` others."""
        whole = torch.arange(position + tokens.shape[1], device=tokens.device)
        positions = whole[position:]
        if self._behind is None:
            return self._call(tokens, positions, self._cache)
        mask = (whole >= self._behind).long()
        own = (positions - self._behind).clamp(min=0)
        return self._call(tokens, own, self._cache, mask)


def left_padded(texts: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Return texts of different lengths as [batch, most], the shorter ones left-padded with zeros,
    and the number of zeros of each, [batch, 1]."""
    tokens = pad_sequence(list(texts), batch_first=True, padding_side="left")
    counts = [tokens.shape[1] - len(text) for text in texts]
    return tokens, torch.tensor(counts, device=tokens.device)[:, None]


class Call:
    """Calls a model for the logits of the last token, by the argument names of its class and of the
    version of transformers."""

    def __init__(self, model: Any) -> None:
        self._model = model
        own = inspect.signature(model.forward).parameters
        self._places = [name for name in ("position_ids", "cache_position") if name in own]
        self._cache = "cache" if "cache" in own else "past_key_values"

    def __call__(self, tokens: Tensor, positions: Tensor, cache: Any, masks: Any = None) -> Tensor:
        """Logits [batch, vocabulary] for tokens [batch, count] at positions [count], or [batch,
        count] with masks that state what each token sees."""
        if masks is None:
            known = {"position_ids": positions[None], "cache_position": positions}
            places = {name: known[name] for name in self._places}
        else:
            places = {"position_ids": positions, "attention_mask": masks}
        given = {self._cache: cache, **places}
        output = self._model(input_ids=tokens, use_cache=True, logits_to_keep=1, **given)
        logits: Tensor = output.logits[:, -1]
        return logits
