"""Encoder-decoder models from transformers that generate: the encoder reads a source once, and the
keys and values of its output stay next to the cache of the decoder's own tokens."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from golow.records.errors import Unsupported
from golow.workload.generation.encoder_sources import source_of, start_of
from golow.workload.generation.held_caches import HeldCaches
from golow.workload.generation.weights_read import bytes_read
from golow.workload.source import users_code

ADVICE = "if its weights are quantised, use another precision: T5 casts values to their type."
ONE_LENGTH = "an encoder reads sources of one length"
SOURCE = "source_"  # before the names of buffers that keep keys and values of the encoder's output


class EncoderDecoderStep(HeldCaches):
    """A step of the decoder, whose caches are buffers that it writes in place.

    source: what the encoder reads, for its shape and dtype. start: the token before every text.
    longest: tokens of the decoder. shared: names of the buffers that only a new source changes.
    """

    source: Tensor

    def __init__(self, model: nn.Module, batch: int, source: int, longest: int) -> None:
        """source: tokens that the encoder reads; features have the size that the model expects.
        longest: tokens of the decoder, its start included."""
        super().__init__()
        from golow.workload.generation.huggingface_cache import static_layers, trial_caches

        self.model, self.start, self.longest = model, start_of(model), longest
        self._call = DecoderCall(model)
        device = next(model.parameters()).device
        start, self.source = self.beginning(torch.zeros(batch, source, dtype=torch.long).to(device))
        trial = trial_caches()
        # The number and the sizes of caches are those that a first call makes.
        with torch.no_grad(), users_code(f"{type(model).__name__} cannot begin a text", ADVICE):
            hidden = self._call.encoded(self.source)
            self._call(start, hidden, trial)
        self._hidden_shape = tuple(hidden.shape)
        self._own = static_layers(trial.self_attention_cache.layers, longest)
        self._cross = trial.cross_attention_cache.layers
        self.hold(self._own)
        self.hold(self._cross, SOURCE)
        self.shared = tuple(name for name, _ in self.named_buffers() if name.startswith(SOURCE))

    def forward(self, tokens: Tensor, position: Tensor, source: Tensor | None = None) -> Tensor:
        """Return the logits [batch, vocabulary] of the next token. tokens: int64 [batch, count], of
        the decoder. position: int64 without axes, how many it read before. source: the encoder
        reads it first, and a new text begins."""
        from golow.workload.generation.huggingface_cache import decoder_caches

        for layer in self._own:
            layer.cumulative_length.copy_(position)
        caches = decoder_caches(self._own, self._cross, known=source is None)
        if source is None:  # of the encoder's output only keys and values are read
            hidden = next(self.model.parameters()).new_zeros(self._hidden_shape)
        else:
            hidden = self._call.encoded(source)
        return self._call(tokens, hidden, caches)

    def vocabulary(self) -> int:
        """Return the number of logits."""
        found: int = self.model.get_output_embeddings().weight.shape[0]  # type: ignore[operator]
        return found

    def token_bytes(self) -> int:
        """Return bytes of the keys and values of one of the decoder's tokens, of all texts."""
        return sum(item[:, :, :1].nbytes for item in self._kept(self._own))

    def source_bytes(self) -> int:
        """Return bytes of the keys and values of the encoder's output, of all texts."""
        return sum(item.nbytes for item in self._kept(self._cross))

    def weight_bytes(self) -> int:
        """Return bytes of the weights that a step reads: the decoder's, without those that turn the
        encoder's output into keys and values."""
        start = torch.full((len(self.source), 1), self.start, device=self.source.device)
        position = torch.zeros((), dtype=torch.long, device=self.source.device)
        with torch.no_grad():
            return bytes_read(self.model, lambda: self(start, position))

    @staticmethod
    def _kept(layers: list[Any]) -> Iterator[Tensor]:
        return (item for layer in layers for item in (layer.keys, layer.values))

    def beginning(self, prompt: Tensor) -> tuple[Tensor, Tensor]:
        """Return the start tokens [batch, 1] and the source of a prompt, int64 [batch, count]."""
        return torch.full_like(prompt[:, :1], self.start), source_of(self.model, prompt)


class EncoderDecoderGrowing:
    """The model with transformers' ``EncoderDecoderCache``, as ``generate`` calls it by default."""

    def __init__(self, model: nn.Module) -> None:
        self._model, self._call = model, DecoderCall(model)
        self._hidden = torch.empty(0)
        self._caches: Any = None

    def prefill(self, tokens: Tensor) -> Tensor:
        """Logits [batch, vocabulary] after the start token and the source of a prompt, [batch,
        count]."""
        from transformers import DynamicCache, EncoderDecoderCache

        self._hidden = self._call.encoded(source_of(self._model, tokens))
        self._caches = EncoderDecoderCache(DynamicCache(), DynamicCache())
        return self.step(torch.full_like(tokens[:, :1], start_of(self._model)), 0)

    def prefill_apart(self, texts: Sequence[Tensor]) -> Tensor:
        """Raise `Unsupported`: an encoder reads sources of one length."""
        raise Unsupported("eager", ONE_LENGTH)

    def step(self, tokens: Tensor, position: int) -> Tensor:
        """Logits after the next tokens, [batch, count]."""
        return self._call(tokens, self._hidden, self._caches)


class DecoderCall:
    """Calls encoder and decoder by the argument names of this version of transformers."""

    def __init__(self, model: Any) -> None:
        self._model = model
        own = inspect.signature(model.forward).parameters
        self._cache = "cache" if "cache" in own else "past_key_values"

    def encoded(self, source: Tensor) -> Tensor:
        """Return the encoder's output, [batch, length, width]."""
        if source.is_floating_point():
            source = source.to(next(self._model.parameters()).dtype)
        hidden: Tensor = self._model.get_encoder()(source).last_hidden_state
        return hidden

    def __call__(self, tokens: Tensor, hidden: Tensor, caches: Any) -> Tensor:
        """Return the logits [batch, vocabulary] after the decoder's tokens, [batch, count]."""
        from transformers.modeling_outputs import BaseModelOutput

        output = self._model(
            encoder_outputs=BaseModelOutput(last_hidden_state=hidden),
            decoder_input_ids=tokens,
            use_cache=True,
            **{self._cache: caches},
        )
        logits: Tensor = output.logits[:, -1]
        return logits
