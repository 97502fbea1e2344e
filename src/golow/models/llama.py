"""Llama: Touvron et al., "LLaMA: open and efficient foundation language models", 2023,
arXiv:2302.13971, with the grouped query heads of Llama 2 (arXiv:2307.09288).

RMS norms, rotary position embeddings (Su et al. 2021, arXiv:2104.09864), grouped query heads and
SwiGLU. The state dict has the names and shapes of ``LlamaForCausalLM`` in Hugging Face's
transformers, and the rotation has its order: the two halves of a head are turned against each
other. ``llama_tiny`` is not a published size; its sizes are `LlamaSizes`' defaults.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from golow.models.attention import join_heads, split_heads


class LlamaSizes(NamedTuple):
    """Sizes of a Llama; the defaults are llama_tiny's, whose vocabulary is the bytes."""

    vocabulary: int = 256
    positions: int = 1024
    width: int = 256
    inner: int = 688  # 8/3 of the width, rounded up to a multiple of 16
    layers: int = 6
    heads: int = 8
    groups: int = 4  # key and value heads
    base: float = 10_000.0  # of the rotation's wavelengths


class Rotation(nn.Module):
    """Turns pairs of numbers of each head by an angle that grows with the position."""

    cosines: Tensor
    sines: Tensor

    def __init__(self, sizes: LlamaSizes) -> None:
        super().__init__()
        size = sizes.width // sizes.heads
        # On the CPU even where modules are built without numbers: no state dict holds these.
        steps = torch.arange(0, size, 2, device="cpu", dtype=torch.float64)
        speeds = sizes.base ** (-steps / size)
        positions = torch.arange(sizes.positions, device="cpu", dtype=torch.float64)
        angles = torch.outer(positions, speeds).repeat(1, 2)
        self.register_buffer("cosines", angles.cos().float(), persistent=False)
        self.register_buffer("sines", angles.sin().float(), persistent=False)

    def forward(self, heads: Tensor) -> Tensor:
        """heads and result: [batch, heads, sequence, size]."""
        sequence = heads.shape[2]
        first, second = heads.chunk(2, dim=3)
        turned = torch.cat((-second, first), dim=3)
        return heads * self.cosines[:sequence] + turned * self.sines[:sequence]


class LlamaAttention(nn.Module):
    """Attention of every token to itself and those before it; query heads share keys and values."""

    def __init__(self, sizes: LlamaSizes) -> None:
        super().__init__()
        self.heads, self.groups = sizes.heads, sizes.groups
        narrow = sizes.width // sizes.heads * sizes.groups
        self.q_proj = nn.Linear(sizes.width, sizes.width, bias=False)
        self.k_proj = nn.Linear(sizes.width, narrow, bias=False)
        self.v_proj = nn.Linear(sizes.width, narrow, bias=False)
        self.o_proj = nn.Linear(sizes.width, sizes.width, bias=False)

    def forward(self, hidden: Tensor, rotation: Rotation) -> Tensor:
        """hidden and result: [batch, sequence, width]."""
        query = rotation(split_heads(self.q_proj(hidden), self.heads))
        key = rotation(split_heads(self.k_proj(hidden), self.groups))
        value = split_heads(self.v_proj(hidden), self.groups)
        attended = functional.scaled_dot_product_attention(
            query, key, value, is_causal=True, enable_gqa=True
        )
        projected: Tensor = self.o_proj(join_heads(attended))
        return projected


class LlamaMlp(nn.Module):
    """SwiGLU (Shazeer 2020, arXiv:2002.05202): one linear layer gates another."""

    def __init__(self, sizes: LlamaSizes) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(sizes.width, sizes.inner, bias=False)
        self.up_proj = nn.Linear(sizes.width, sizes.inner, bias=False)
        self.down_proj = nn.Linear(sizes.inner, sizes.width, bias=False)

    def forward(self, hidden: Tensor) -> Tensor:
        """hidden and result: [batch, sequence, width]."""
        gated = functional.silu(self.gate_proj(hidden)) * self.up_proj(hidden)
        projected: Tensor = self.down_proj(gated)
        return projected


class LlamaLayer(nn.Module):
    """Attention and SwiGLU, each added to what it was computed from."""

    def __init__(self, sizes: LlamaSizes) -> None:
        super().__init__()
        self.self_attn = LlamaAttention(sizes)
        self.mlp = LlamaMlp(sizes)
        self.input_layernorm = nn.RMSNorm(sizes.width, eps=1e-5)
        self.post_attention_layernorm = nn.RMSNorm(sizes.width, eps=1e-5)

    def forward(self, hidden: Tensor, rotation: Rotation) -> Tensor:
        """hidden and result: [batch, sequence, width]."""
        hidden = hidden + self.self_attn(self.input_layernorm(hidden), rotation)
        result: Tensor = hidden + self.mlp(self.post_attention_layernorm(hidden))
        return result


class LlamaModel(nn.Module):
    """Embedding, layers and the last norm."""

    def __init__(self, sizes: LlamaSizes) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(sizes.vocabulary, sizes.width)
        self.layers = nn.ModuleList(LlamaLayer(sizes) for _ in range(sizes.layers))
        self.norm = nn.RMSNorm(sizes.width, eps=1e-5)
        self.rotary_emb = Rotation(sizes)

    def forward(self, tokens: Tensor) -> Tensor:
        """[batch, sequence] -> [batch, sequence, width]."""
        hidden = self.embed_tokens(tokens)
        for layer in self.layers:
            hidden = layer(hidden, self.rotary_emb)
        normalised: Tensor = self.norm(hidden)
        return normalised


class Llama(nn.Module):
    """Input: token ids int64 [batch, sequence]. Output: logits of each next token,
    [batch, sequence, vocabulary]."""

    def __init__(self, sizes: LlamaSizes) -> None:
        super().__init__()
        self.model = LlamaModel(sizes)
        self.lm_head = nn.Linear(sizes.width, sizes.vocabulary, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        """The logits of each next token."""
        logits: Tensor = self.lm_head(self.model(tokens))
        return logits


def llama_tiny(*, classes: int = 256) -> Llama:
    """A Llama of four million parameters. classes: the size of the vocabulary."""
    return Llama(LlamaSizes(vocabulary=classes))
