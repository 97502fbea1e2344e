"""Small encoder-decoder models of `transformers` with random weights, and their configurations."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

VOCABULARY, FRAMES = 61, 24
T5: dict[str, Any] = {
    "model_type": "t5",
    "architectures": ["T5ForConditionalGeneration"],
    "vocab_size": VOCABULARY,
    "d_model": 32,
    "d_kv": 8,
    "d_ff": 48,
    "num_layers": 2,
    "num_decoder_layers": 1,
    "num_heads": 4,
    "initializer_factor": 2.0,
    "pad_token_id": 0,
    "decoder_start_token_id": 0,
}
BART: dict[str, Any] = {
    "model_type": "bart",
    "architectures": ["BartForConditionalGeneration"],
    "vocab_size": VOCABULARY,
    "d_model": 32,
    "encoder_layers": 1,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "max_position_embeddings": 40,
    "init_std": 0.3,
    "decoder_start_token_id": 2,
}
WHISPER: dict[str, Any] = {
    **{name: value for name, value in BART.items() if name != "max_position_embeddings"},
    "model_type": "whisper",
    "architectures": ["WhisperForConditionalGeneration"],
    "num_mel_bins": 8,
    "max_source_positions": FRAMES // 2,
    "max_target_positions": 40,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 3,
}
CONFIGURATIONS = {"t5": T5, "bart": BART, "whisper": WHISPER}


def encoder_decoder(kind: str) -> Any:
    """A model in float32 whose logits depend on every token of the source."""
    import transformers

    torch.manual_seed(0)
    values = {name: value for name, value in CONFIGURATIONS[kind].items() if name != "model_type"}
    (architecture,) = values.pop("architectures")
    config = transformers.AutoConfig.for_model(kind, **values)
    model: nn.Module = getattr(transformers, architecture)(config).eval()
    return model.requires_grad_(False)


def whole_pass(model: Any, source: Tensor, tokens: Tensor) -> Tensor:
    """Logits [batch, count, vocabulary] of a pass without a cache, in the model's dtype. tokens: of
    the decoder, int64 [batch, count]."""
    floating = source.is_floating_point()
    name = "input_features" if floating else "input_ids"
    given = source.to(next(model.parameters()).dtype) if floating else source
    found: Tensor = model(**{name: given}, decoder_input_ids=tokens, use_cache=False).logits
    return found
