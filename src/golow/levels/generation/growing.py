"""``eager``: PyTorch with caches that grow by concatenation, as users run a model by default."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from golow.levels.generation.program import Generator, TextProgram
from golow.models.gpt2 import Gpt2, Gpt2Block
from golow.records.errors import Unsupported
from golow.workload.generation.huggingface_step import HuggingFaceGrowing
from golow.workload.generation.step_modules import is_huggingface
from golow.workload.generation.text_bundle import TextBundle


class GrowingGpt2:
    """A GPT-2 that appends keys and values to the earlier ones."""

    def __init__(self, model: Gpt2) -> None:
        self._model = model
        self._kept: list[tuple[Tensor, Tensor] | None] = []

    def prefill(self, tokens: Tensor) -> Tensor:
        """Logits after the first tokens of texts."""
        self._kept = [None] * len(self._model.transformer.h)
        return self.step(tokens, 0)

    def step(self, tokens: Tensor, position: int) -> Tensor:
        """Logits after the next tokens."""
        decoder = self._model.transformer
        places = torch.arange(position, position + tokens.shape[1], device=tokens.device)
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
        # One token sees all before it; several are the beginning of a text.
        causal = query.shape[2] > 1
        return functional.scaled_dot_product_attention(query, key, value, is_causal=causal)


def growing(bundle: TextBundle) -> Generator:
    """The generator for this model; raises `Unsupported` for a user's step module."""
    module = bundle.module()
    if isinstance(module, Gpt2):
        return GrowingGpt2(module)
    if is_huggingface(module):
        return HuggingFaceGrowing(module)
    raise Unsupported("eager", "a step module has its own caches: see eager:static")


def program(variant: str) -> TextProgram:
    """The worker's side."""
    return TextProgram(growing)
