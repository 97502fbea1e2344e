"""Vision Transformer: Dosovitskiy et al., "An image is worth 16x16 words: transformers for image
recognition at scale" (2021), arXiv:2010.11929. State-dict names as in torchvision.
"""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import Tensor, nn

from golow.models import check_arguments
from golow.models.channels_last import feed_forward

PATCH = 16  # pixels of a patch's side
_WIDTH, _HIDDEN, _HEADS, _LAYERS = 768, 3072, 12, 12  # table 1 of the paper, ViT-Base
_EPSILON = 1e-6


class EncoderLayer(nn.Module):
    """Self-attention and two linear layers, each after a layer norm and added to its input.

    [batch, tokens, width], the same.
    """

    def __init__(self) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(_WIDTH, eps=_EPSILON)
        self.self_attention = nn.MultiheadAttention(_WIDTH, _HEADS, batch_first=True)
        self.ln_2 = nn.LayerNorm(_WIDTH, eps=_EPSILON)
        self.mlp = feed_forward(_WIDTH, _HIDDEN)

    def forward(self, tokens: Tensor) -> Tensor:
        """The tokens after attention and the linear layers."""
        normal = self.ln_1(tokens)
        attended: Tensor = self.self_attention(normal, normal, normal, need_weights=False)[0]
        tokens = attended + tokens
        output: Tensor = self.mlp(self.ln_2(tokens))
        return tokens + output


class Encoder(nn.Module):
    """Adds a learned position to each token, then the layers: [batch, tokens, width], the same."""

    def __init__(self, tokens: int, layers: int) -> None:
        super().__init__()
        self.pos_embedding = nn.Parameter(torch.empty(1, tokens, _WIDTH))
        named = [(f"encoder_layer_{index}", EncoderLayer()) for index in range(layers)]
        self.layers = nn.Sequential(OrderedDict(named))
        self.ln = nn.LayerNorm(_WIDTH, eps=_EPSILON)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw the positions as BERT does."""
        nn.init.normal_(self.pos_embedding, std=0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        """The encoded tokens."""
        encoded: Tensor = self.ln(self.layers(tokens + self.pos_embedding))
        return encoded


class VisionTransformer(nn.Module):
    """Patches of 16x16 pixels and a token for the class, encoded; the token is classified.

    Input: [batch, in_channels, resolution, resolution]. Output: logits [batch, classes].
    """

    def __init__(
        self, in_channels: int, classes: int, resolution: int, layers: int = _LAYERS
    ) -> None:
        super().__init__()
        self.class_token = nn.Parameter(torch.empty(1, 1, _WIDTH))
        self.conv_proj = nn.Conv2d(in_channels, _WIDTH, kernel_size=PATCH, stride=PATCH)
        self.encoder = Encoder(1 + (resolution // PATCH) ** 2, layers)
        self.heads = nn.Sequential(OrderedDict([("head", nn.Linear(_WIDTH, classes))]))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """The token of the class begins at 0."""
        nn.init.zeros_(self.class_token)

    def forward(self, images: Tensor) -> Tensor:
        """Images [batch, in_channels, resolution, resolution] -> logits [batch, classes]."""
        patches = self.conv_proj(images).flatten(2).transpose(1, 2)
        token = self.class_token.expand(images.shape[0], -1, -1)
        encoded = self.encoder(torch.cat((token, patches), dim=1))
        logits: Tensor = self.heads(encoded[:, 0])
        return logits


def vit_b_16(
    *, in_channels: int = 3, classes: int = 1000, resolution: int = 224
) -> VisionTransformer:
    """ViT-B/16. It has one position for each patch of this resolution: other weights fit only
    if they were trained at the same one.

    Raises:
        ValueError: an argument is too small, or the resolution is not a multiple of 16.
    """
    check_arguments("vit_b_16", in_channels=in_channels, classes=classes, resolution=resolution)
    return VisionTransformer(in_channels, classes, resolution)
