"""``eager``: PyTorch with caches that grow by concatenation, as users run a model by default."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional

from golow.levels.generation.program import Generator, TextProgram
from golow.models.gpt2 import Gpt2, Gpt2Block
from golow.records.errors import Unsupported
from golow.workload.generation.encoder_decoder_step import EncoderDecoderGrowing
from golow.workload.generation.encoder_sources import is_encoder_decoder
from golow.workload.generation.huggingface_step import HuggingFaceGrowing, left_padded
from golow.workload.generation.step_modules import is_huggingface
from golow.workload.generation.text_bundle import TextBundle


class GrowingGpt2:
    """A GPT-2 that appends keys and values to the earlier ones."""

    def __init__(self, model: Gpt2) -> None:
        self._model = model
        self._kept: list[tuple[Tensor, Tensor] | None] = []
        self._behind: Tensor | None = None  # padding before each text, [batch, 1]

    def prefill(self, tokens: Tensor) -> Tensor:
        """Logits after the tokens that texts begin with."""
        self._behind = None
        return self._first(tokens)

    def prefill_apart(self, texts: Sequence[Tensor]) -> Tensor:
        """Return logits after texts of different lengths, padded at the front."""
        tokens, self._behind = left_padded(texts)
        return self._first(tokens)

    def _first(self, tokens: Tensor) -> Tensor:
        self._kept = [None] * len(self._model.transformer.h)
        return self.step(tokens, 0)

    def step(self, tokens: Tensor, position: int) -> Tensor:
        """Logits after the next tokens."""
        decoder = self._model.transformer
        places = torch.arange(position, position + tokens.shape[1], device=tokens.device)
        if self._behind is not None:
            places = (places - self._behind).clamp(min=0)
        hidden = decoder.wte(tokens) + decoder.wpe(places)
        for layer, block in enumerate(decoder.h):
            assert isinstance(block, Gpt2Block)  # noqa: S101 - a list of modules has no type
            hidden = hidden + block.attn.join(self._attended(layer, block, hidden))
            hidden = hidden + block.mlp(block.ln_2(hidden))
        logits: Tensor = self._model.lm_head(decoder.ln_f(hidden[:, -1]))
        return logits

    def _attended(self, layer: int, block: Gpt2Block, hidden: Tensor) -> Tensor:
        query, key, value = block.attn.project(block.ln_1(hidden))
        before = self._kept[layer]
        if before is not None:
            key, value = torch.cat([before[0], key], 2), torch.cat([before[1], value], 2)
        self._kept[layer] = key, value
        if self._behind is not None:
            return functional.scaled_dot_product_attention(
                query, key, value, attn_mask=self._seen(query.shape[2], key.shape[2])
            )
        # One token sees all before it; several are the beginning of a text.
        causal = query.shape[2] > 1
        return functional.scaled_dot_product_attention(query, key, value, is_causal=causal)

    def _seen(self, count: int, keys: int) -> Tensor:
        """Return which keys each token sees, [batch, 1, count, keys]. Padding sees itself, so that
        no row of the attention weights is empty."""
        assert self._behind is not None  # noqa: S101 - texts differ in length
        place = torch.arange(keys, device=self._behind.device)
        own = place[keys - count :, None]
        begun = place >= self._behind[:, None, None]
        return (begun & (place <= own)) | (place == own)


def growing(bundle: TextBundle) -> Generator:
    """The generator for this model; raises `Unsupported` for a user's step module."""
    module = bundle.module()
    if isinstance(module, Gpt2):
        return GrowingGpt2(module)
    if is_encoder_decoder(module):
        return EncoderDecoderGrowing(module)
    if is_huggingface(module):
        return HuggingFaceGrowing(module)
    raise Unsupported("eager", "a step module has its own caches: see eager:static")


def program(variant: str) -> TextProgram:
    """The worker's side."""
    return TextProgram(growing)
