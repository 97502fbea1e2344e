"""Sources of encoder-decoder models: tokens, or features of sound that a number stands for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from golow.records.errors import GolowError
from golow.records.text import EncoderInput
from golow.workload.generation.request import TextRequest

POSITIONS = ("max_target_positions", "max_position_embeddings")

ONE_NUMBER = 1  # tokens of a prompt for which features are drawn


def is_encoder_decoder(module: nn.Module) -> bool:
    """Return True for a model from transformers whose decoder attends to an encoder's output."""
    return bool(getattr(getattr(module, "config", None), "is_encoder_decoder", False))


def require_generating(model: Any, name: str) -> None:
    """Raise `GolowError` for a model whose texts golow cannot begin."""
    if not hasattr(model, "get_output_embeddings") or model.get_output_embeddings() is None:
        raise GolowError(
            f"{name} has no logits",
            "use its class for generation, such as hf:NAME:T5ForConditionalGeneration.",
        )
    reads_of(model, name)
    start_of(model, name)


def reads_of(model: Any, name: str = "the model") -> EncoderInput:
    """Return what its encoder reads. Raises `GolowError` for anything but tokens and the features
    of Whisper."""
    known: dict[str, EncoderInput] = {"input_ids": "tokens"}
    if model.config.model_type == "whisper":
        known = {"input_features": "features"}
    given = model.get_encoder().main_input_name
    if given not in known:
        raise GolowError(
            f"the encoder of {name} reads {given}, for which golow draws no values",
            "golow generates with encoders of tokens, such as T5's and BART's, and with Whisper.",
        )
    return known[given]


def start_of(model: Any, name: str = "the model") -> int:
    """Return the token before every text. Raises `GolowError` if the model has none."""
    for settings in (model.config, getattr(model, "generation_config", None)):
        found = getattr(settings, "decoder_start_token_id", None)
        if isinstance(found, int):
            return found
    raise GolowError(
        f"{name} has no decoder_start_token_id, so its texts have no beginning",
        "set it in its configuration.",
    )


def source_shape(model: Any, batch: int, count: int) -> tuple[int, ...]:
    """Return the shape of the encoder's input. count: tokens; features have the model's own
    length."""
    if reads_of(model) == "tokens":
        return batch, count
    encoder = model.get_encoder()
    frames = model.config.max_source_positions
    for layer in (encoder.conv1, encoder.conv2):
        frames *= layer.stride[0]
    return batch, model.config.num_mel_bins, frames


def source_of(model: Any, prompt: Tensor) -> Tensor:
    """Return the source of a prompt, int64 [batch, count]: its tokens, or features that are drawn
    with its first token as seed."""
    shape = source_shape(model, *prompt.shape)
    if len(shape) == 2:
        return prompt
    rows = [
        torch.randn(shape[1:], generator=torch.Generator().manual_seed(seed))
        for seed in prompt[:, 0].tolist()
    ]
    return torch.stack(rows).to(prompt.device)


def require_sources(
    model: Any, name: str, request: TextRequest, count: int, lengths: Sequence[int]
) -> None:
    """Raise `GolowError` for sources that the model cannot read, and for texts that its decoder has
    no positions for. count: tokens of a source; lengths: of those that the user gave."""
    if request.device != "cpu":
        raise GolowError(
            f"{name} has an encoder, and golow generates its texts on a CPU only",
            "leave out --device.",
            python_hint="leave out device=.",
        )
    if reads_of(model, name) == "features":
        for option, given in (("prompt", request.prompt), ("text", request.text)):
            if given is not None:
                raise GolowError(
                    f"the encoder of {name} reads features of one size, which golow draws",
                    f"leave out --{option}.",
                    python_hint=f"leave out {option}=.",
                )
    if len(set(lengths)) > 1:
        raise GolowError(
            f"the encoder of {name} reads sources of one length, and these have "
            f"{' and '.join(map(str, sorted(set(lengths))))} tokens",
            "give texts with equal numbers of tokens.",
        )
    most = longest_target(model)
    if most is not None and max(count, request.tokens + 1) > most:
        raise GolowError(
            f"{name} has positions for {most} tokens, not for a source of {count} and "
            f"{request.tokens} after the start token",
            "use fewer --tokens or a shorter prompt.",
            python_hint="use fewer tokens= or a shorter prompt.",
        )


def longest_target(model: Any) -> int | None:
    """Return how many tokens the decoder has positions for; None if any number fits."""
    if hasattr(model.config, "relative_attention_num_buckets"):
        return None
    config = model.get_decoder().config
    found = (getattr(config, name, None) for name in POSITIONS)
    return next((size for size in found if isinstance(size, int)), None)
