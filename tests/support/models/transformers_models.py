"""Small models of `transformers` with random weights, and inputs for them, without a download."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

SIZES = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
BATCH, WORDS, VOCABULARY = 2, 16, 99


class Features(nn.Module):
    """A model whose output is one vector for each sample: the mean over positions, or what the
    model pools itself."""

    def __init__(self, model: nn.Module, keywords: tuple[str, ...], result: str) -> None:
        super().__init__()
        self.model, self.keywords, self.result = model, keywords, result
        self.settings = {"use_cache": False} if hasattr(model.config, "use_cache") else {}

    def forward(self, *inputs: Tensor) -> Tensor:
        """Inputs in the order of the keywords -> [batch, features]"""
        given = dict(zip(self.keywords, inputs, strict=True))
        found: Tensor = getattr(self.model(**given, **self.settings), self.result)
        return found.mean(1) if found.dim() == 3 else found.flatten(1)


def words() -> Tensor:
    """Token ids [batch, words]."""
    return torch.randint(3, VOCABULARY, (BATCH, WORDS))


def image() -> Tensor:
    """[batch, 3, 32, 32]"""
    return torch.randn(BATCH, 3, 32, 32)


def bert(t: Any) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """An encoder, with a mask of attention."""
    model = t.BertModel(t.BertConfig(vocab_size=VOCABULARY, intermediate_size=128, **SIZES))
    mask = torch.ones(BATCH, WORDS, dtype=torch.int64)
    mask[1, 10:] = 0
    pooled = Features(model, ("input_ids", "attention_mask"), "last_hidden_state")
    return pooled, (words(), mask)


def gpt2(t: Any) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """A decoder with learned positions."""
    config = t.GPT2Config(vocab_size=VOCABULARY, n_embd=64, n_layer=2, n_head=4, n_positions=32)
    return Features(t.GPT2Model(config), ("input_ids",), "last_hidden_state"), (words(),)


def llama(t: Any) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """A decoder with rotary positions, grouped heads and RMS norm."""
    config = t.LlamaConfig(
        vocab_size=VOCABULARY, intermediate_size=128, num_key_value_heads=2, **SIZES
    )
    return Features(t.LlamaModel(config), ("input_ids",), "last_hidden_state"), (words(),)


def mixtral(t: Any) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """A decoder with a mixture of experts, of which each token takes two."""
    config = t.MixtralConfig(
        vocab_size=VOCABULARY, intermediate_size=128, num_key_value_heads=2, num_local_experts=4,
        **SIZES,
    )  # fmt: skip
    return Features(t.MixtralModel(config), ("input_ids",), "last_hidden_state"), (words(),)


def t5(t: Any) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """An encoder and a decoder with relative positions."""
    config = t.T5Config(
        vocab_size=VOCABULARY, d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4
    )
    model = Features(t.T5Model(config), ("input_ids", "decoder_input_ids"), "last_hidden_state")
    return model, (words(), words())


def whisper(t: Any) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """The encoder of speech."""
    config = t.WhisperConfig(
        vocab_size=VOCABULARY, d_model=64, encoder_layers=2, decoder_layers=2,
        encoder_attention_heads=4, decoder_attention_heads=4, encoder_ffn_dim=128,
        decoder_ffn_dim=128, num_mel_bins=16, max_source_positions=32, pad_token_id=0,
        bos_token_id=1, eos_token_id=2, decoder_start_token_id=1,
    )  # fmt: skip
    encoder = t.WhisperModel(config).get_encoder()
    return Features(encoder, ("input_features",), "last_hidden_state"), (torch.randn(2, 16, 64),)


def vit(t: Any) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """An encoder of patches."""
    config = t.ViTConfig(intermediate_size=128, image_size=32, patch_size=8, **SIZES)
    return Features(t.ViTModel(config), ("pixel_values",), "last_hidden_state"), (image(),)


def swin(t: Any) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """Attention in shifted windows."""
    config = t.SwinConfig(
        image_size=32, patch_size=4, embed_dim=24, depths=[2, 2], num_heads=[2, 4], window_size=4
    )
    return Features(t.SwinModel(config), ("pixel_values",), "last_hidden_state"), (image(),)


def convnext(t: Any) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """Depthwise convolutions and layer norms."""
    config = t.ConvNextConfig(hidden_sizes=[16, 32], depths=[2, 2], num_stages=2)
    return Features(t.ConvNextModel(config), ("pixel_values",), "pooler_output"), (image(),)


def resnet(t: Any) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """Convolutions and batch norms."""
    config = t.ResNetConfig(embedding_size=16, hidden_sizes=[16, 32], depths=[2, 2])
    return Features(t.ResNetModel(config), ("pixel_values",), "pooler_output"), (image(),)


def segformer(t: Any) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """A pyramid whose head reads the states of all its stages, which the model records."""
    config = t.SegformerConfig(
        num_labels=5, depths=[1, 1], hidden_sizes=[16, 32], decoder_hidden_size=32,
        num_encoder_blocks=2, sr_ratios=[4, 2], patch_sizes=[7, 3], strides=[4, 2],
        num_attention_heads=[1, 2], mlp_ratios=[2, 2],
    )  # fmt: skip
    model = t.SegformerForSemanticSegmentation(config)
    return Features(model, ("pixel_values",), "logits"), (image(),)


Maker = Callable[[Any], tuple[nn.Module, tuple[Tensor, ...]]]
MODELS: dict[str, Maker] = {
    maker.__name__: maker
    for maker in (bert, gpt2, vit, t5, llama, mixtral, whisper, swin, convnext, resnet, segformer)
}
