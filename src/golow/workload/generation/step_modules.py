"""The step module of a text model, which keeps its caches in buffers.

A step module has ``forward(tokens, position) -> logits``: new tokens int64 [batch, count], how many
came before (int64, without axes), logits [batch, vocabulary] of the token after the last one. A
text begins at position 0 with any number of tokens, and continues where it ended.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from itertools import chain
from typing import NamedTuple

import torch
from torch import Tensor, nn

from golow.models.gpt2 import Gpt2
from golow.models.gpt2_step import Gpt2Step
from golow.records.errors import GolowError
from golow.records.text import TextPrecision
from golow.workload.generation.encoder_decoder_step import EncoderDecoderStep
from golow.workload.generation.encoder_sources import is_encoder_decoder
from golow.workload.generation.huggingface_step import HuggingFaceStep
from golow.workload.quantization.quantized_layers import Quantized
from golow.workload.source import users_code

HALVES: dict[TextPrecision, torch.dtype] = {"bf16": torch.bfloat16, "fp16": torch.float16}
CONTRACT = (
    "its forward must take tokens int64 [batch, count] and a position int64 without axes, and "
    "return logits [batch, vocabulary]; docs/use/generation.md has an example."
)


def step_of(module: nn.Module, batch: int, longest: int, prompt: int = 0) -> nn.Module:
    """The step module, with caches for this many texts of up to this many tokens. A module that is
    none of the known kinds is a step module already, with its own caches. prompt: tokens of these
    that an encoder reads if the model has one; then the decoder reads its start and the others."""
    if is_encoder_decoder(module):
        return EncoderDecoderStep(module, batch, prompt, longest - prompt + 1).eval()
    if isinstance(module, Gpt2):
        return Gpt2Step(module, batch, longest).to(module.transformer.ln_f.weight).eval()
    if is_huggingface(module):
        return HuggingFaceStep(module, batch, longest).eval()
    return module


def is_huggingface(module: nn.Module) -> bool:
    """True for a model from transformers that generates text."""
    return hasattr(module, "generate") and hasattr(module, "config")


def is_own_step(module: nn.Module) -> bool:
    """True for a user's step module, whose caches have sizes of its own."""
    return not isinstance(module, Gpt2) and not is_huggingface(module)


def require_step(module: nn.Module) -> None:
    """Raise `GolowError` for a module whose forward pass does not take tokens and a position."""
    try:
        inspect.signature(module.forward).bind(None, None)
    except TypeError as error:
        raise GolowError(
            f"{type(module).__name__} is neither a model that golow knows to generate text nor a "
            f"step module: {error}",
            CONTRACT,
        ) from error


def longest_text(module: nn.Module) -> int | None:
    """Tokens of the longest text that the model has positions for; None if it does not tell."""
    if isinstance(module, Gpt2):
        return module.sizes.positions
    if is_huggingface(module):
        text = module.config.get_text_config()  # type: ignore[union-attr, operator]
        for name in ("max_position_embeddings", "n_positions"):
            if isinstance(found := getattr(text, name, None), int):
                return found
    return None


class StepFacts(NamedTuple):
    """vocabulary: number of logits. cache_bytes: of one token of all texts. weight_bytes: of the
    weights that a step reads. encoder_bytes: of keys and values of the source of all texts."""

    vocabulary: int
    cache_bytes: int
    weight_bytes: int
    encoder_bytes: int = 0


def facts_of(
    step: nn.Module, module: nn.Module, name: str, batch: int, prompt: int, longest: int
) -> StepFacts:
    """Return what a step of the module reads and writes. Raises `GolowError` for a module that
    breaks the contract."""
    if isinstance(step, EncoderDecoderStep):
        sizes = step.token_bytes(), step.weight_bytes(), step.source_bytes()
        return StepFacts(step.vocabulary(), *sizes)
    return StepFacts(*tried_step(step, name, batch, prompt, longest), weight_bytes(module))


def tried_step(
    step: nn.Module, name: str, batch: int, prompt: int, longest: int
) -> tuple[int, int]:
    """The vocabulary, and the bytes of caches that one token of all texts takes. Raises
    `GolowError` for a module that breaks the contract."""
    device = device_of(step)
    start = torch.zeros(batch, prompt, dtype=torch.long, device=device)
    begin, last = (torch.tensor(place, device=device) for place in (0, longest - 1))
    with torch.no_grad(), users_code(f"{name} is not a step module", CONTRACT):
        found = [step(start, begin)]
        written = _written_bytes(step, lambda: found.append(step(start[:, :1], last)))
    for logits in found:
        if not isinstance(logits, Tensor) or logits.dim() != 2 or len(logits) != batch:
            shape = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
            raise GolowError(f"{name} returns {shape}, not logits [{batch}, vocabulary]", CONTRACT)
    if not written:
        raise GolowError(f"{name} writes no buffer, so it keeps nothing of a text", CONTRACT)
    return found[0].shape[1], written


def _written_bytes(step: nn.Module, call: Callable[[], object]) -> int:
    """Return the bytes of buffers that a call of the step writes. Zeros count too, because before
    it every number is moved by one: the embedding of a padding token is often zero, and then so are
    its keys and values."""
    before = {name: value.clone() for name, value in step.named_buffers()}
    moved = {
        name: value
        for name, value in step.named_buffers()
        if value.is_floating_point() and 0 not in value.stride()
    }
    for value in moved.values():
        value.add_(1)
    call()
    written = 0
    for name, value in step.named_buffers():
        expected = before[name] + 1 if name in moved else before[name]
        if value.dim():
            written += int((value != expected).sum()) * value.element_size()
    for name, value in moved.items():
        value.copy_(before[name])
    return written


def device_of(module: nn.Module) -> torch.device:
    """Where its weights are."""
    tensors = chain(module.parameters(), module.buffers())
    return next((tensor.device for tensor in tensors), torch.device("cpu"))


def weight_bytes(module: nn.Module) -> int:
    """Bytes of the weights that a step reads: all but tables of which it looks up single rows. A
    table that is the output layer, too, counts."""
    looked_up = {
        id(weight)
        for layer in module.modules()
        if isinstance(layer, nn.Embedding)
        for weight in layer.parameters()
    }
    used = {
        id(weight)
        for layer in module.modules()
        if not isinstance(layer, nn.Embedding)
        for weight in layer.parameters(recurse=False)
    }
    quantized = (
        weight
        for layer in module.modules()
        if isinstance(layer, Quantized)
        for weight in (layer.weight, layer.output_scale)
    )
    wide = (w for w in module.parameters() if id(w) in used or id(w) not in looked_up)
    return sum(weight.nbytes for weight in (*wide, *quantized))


def in_precision(module: nn.Module, precision: TextPrecision) -> nn.Module:
    """The module with its weights in this precision, and a user's step module with its caches. What
    a model from transformers computes for itself, such as frequencies, stays float32, as it does
    for those who load it in a precision. Weights of whole numbers are given to layers, not to a
    module."""
    half = HALVES.get(precision)
    if half is None:
        return module
    if not is_huggingface(module):
        return module.to(half)
    for weight in module.parameters():
        weight.data = weight.data.to(half)
    return module
