"""The workload of text generation: a model, the sizes of its texts, and how a token is chosen."""

from __future__ import annotations

from typing import Literal

from golow.records.quantization import Calibration
from golow.records.record import Record
from golow.records.workload import Device, ModelSource

TextPrecision = Literal[
    "default", "tf32", "bf16", "fp16", "int8-weights", "int4-weights", "fp8-weights"
]
Alphabet = Literal["", "bytes", "huggingface"]
EncoderInput = Literal["", "tokens", "features"]


class Sampling(Record, frozen=True, kw_only=True):
    """How the next token is chosen from the logits.

    temperature: the logits are divided by it; 0 takes the likeliest token. top_k: only this many of
    the likeliest tokens are candidates; 0 is all. top_p: of these, only the likeliest whose
    probabilities together reach this share. seed: of the draws.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0

    @property
    def is_greedy(self) -> bool:
        """True if the likeliest token is taken, which needs no draw."""
        return self.temperature == 0


class TextWorkload(Record, frozen=True, kw_only=True):
    """Everything that a level needs to generate texts.

    batch: texts that are generated together. prompt, tokens: their tokens that are given, and
    those that are generated. lengths: given tokens of each text where they differ; prompt is then
    the largest. precision: of weights, caches and arithmetic; ``default`` is float32,
    ``tf32`` is float32 with products of tf32. device: of every level, and of the reference.
    alphabet: what a token stands for; empty if the model has no text. weight_bytes: of the weights
    that a step reads. cache_bytes: of the keys and values of one token of all texts.
    initialisation: what the weights are. parameters: their number. encoder: what an encoder reads,
    if there is one: the prompts, or features drawn from prompts of one number; the decoder then
    begins with its start token. encoder_bytes: of the keys and values of the encoder's output, of
    all texts. quantized_parameters: number of parameters in quantised layers. calibration: of a
    precision that quantises, if it had samples.
    """

    model: str
    source: ModelSource
    vocabulary: int
    batch: int
    prompt: int
    tokens: int
    lengths: tuple[int, ...] = ()
    precision: TextPrecision = "default"
    device: Device = "cpu"
    threads: int = 1
    sampling: Sampling = Sampling()
    seed: int = 0
    alphabet: Alphabet = ""
    initialisation: str = ""
    parameters: int = 0
    weight_bytes: int = 0
    cache_bytes: int = 0
    encoder: EncoderInput = ""
    encoder_bytes: int = 0
    quantized_parameters: int = 0
    calibration: Calibration | None = None

    @property
    def longest(self) -> int:
        """Tokens of the longest whole text."""
        return self.prompt + self.tokens

    @property
    def prompts(self) -> tuple[int, ...]:
        """Given tokens of each text."""
        return self.lengths or (self.prompt,) * self.batch

    def read_bytes(self, before: float) -> float:
        """Bytes that a step reads: the weights, and the caches of this many tokens before."""
        kept = before - self.prompt + 1 if self.encoder else before
        return self.weight_bytes + self.encoder_bytes + self.cache_bytes * kept
