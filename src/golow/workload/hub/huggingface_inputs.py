"""Inputs of a model from transformers, made from its configuration and the seed."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor

from golow.records.errors import GolowError
from golow.records.workload import ModelSource
from golow.workload.hub.huggingface import class_of, configuration_of
from golow.workload.keywords import cache_keywords
from golow.workload.request import Request

SEQUENCE = 128
SIDE = 224
SOUND = 16000  # one second of speech
TOKENS = ("input_ids", "decoder_input_ids")

Maker = Callable[[Generator], Tensor]


class Made(NamedTuple):
    """makers: of each input by name, batch dimension first. tokens: of text, in one batch."""

    makers: dict[str, Maker]
    settings: dict[str, int]
    tokens: int


def makers(source: ModelSource, request: Request) -> Made:
    """How to make each input; raises `GolowError` for options that do not fit the model."""
    return _Inputs(source, request).made()


def batches(made: Made, count: int, seed: int) -> Iterator[tuple[Tensor, ...]]:
    """This many batches of inputs, from the seed."""
    generator = Generator().manual_seed(seed)
    for _ in range(count):
        yield tuple(make(generator) for make in made.makers.values())


class _Inputs:
    """Inputs of a class of transformers for this request."""

    def __init__(self, source: ModelSource, request: Request) -> None:
        self.source, self.request = source, request
        self.kind: Any = class_of(source)
        self.config = configuration_of(source)
        self.text = self.config.get_text_config()
        self.batch = request.batch or 8
        self.takes = inspect.signature(self.kind.forward).parameters
        self.main: str = getattr(self.kind, "main_input_name", "input_ids")
        self.causal = self.kind.__name__.endswith(("ForCausalLM", "LMHeadModel"))
        self._refuse()

    def made(self) -> Made:
        """The inputs in the order in which they are given."""
        if self.request.phase == "decode":
            return self._decoding()
        found: dict[str, Maker] = {}
        if self.main == "input_ids" or ("input_ids" in self.takes and self.main == "pixel_values"):
            found["input_ids"] = self._ids
            if not self.causal and "attention_mask" in self.takes:
                found["attention_mask"] = self._mask
        if "pixel_values" in self.takes and self.main in ("pixel_values", "input_ids"):
            found["pixel_values"] = self._pixels
        if self.main == "input_features":
            found["input_features"] = self._spectrogram
        if self.main == "input_values":
            found["input_values"] = self._sound
        if not found:
            raise GolowError(
                f"golow cannot generate {self.main}, the input of {self.kind.__name__}",
                "give example inputs by name in Python: golow.compare(model, {'NAME': tensor}).",
            )
        labels = self._labels() if self._trains_itself else {}
        if "decoder_input_ids" in self.takes and self.config.is_encoder_decoder and not labels:
            found["decoder_input_ids"] = self._ids
        settings = dict(self.source.settings)
        if self.request.phase == "prefill":
            settings["logits_to_keep"] = 1
        texts = sum(name in found for name in TOKENS)
        return Made({**found, **labels}, settings, texts * self.batch * self.sequence)

    @property
    def sequence(self) -> int:
        """Tokens of a sample."""
        return self.request.sequence or min(SEQUENCE, self._longest or SEQUENCE)

    @property
    def _longest(self) -> int | None:
        for name in ("max_position_embeddings", "n_positions", "max_target_positions"):
            found = getattr(self.text, name, None)
            if isinstance(found, int) and found > 0:  # XLNet's -1 stands for no limit
                return found
        return None

    @property
    def _trains_itself(self) -> bool:
        return self.request.mode == "train" and self.request.loss is None

    def _refuse(self) -> None:
        longest, sequence, phase = self._longest, self.request.sequence, self.request.phase
        if sequence is not None and (sequence < 1 or (longest and sequence > longest)):
            raise GolowError(
                f"{self.source.name} takes 1 to {longest or 'any number'} tokens, not {sequence}",
                f"use --sequence {min(SEQUENCE, longest or SEQUENCE)}.",
            )
        if phase and not self.causal:
            raise GolowError(
                f"--phase is for causal language models; {self.kind.__name__} is not one",
                "leave it out.",
            )
        if phase and self.request.mode == "train":
            raise GolowError("--phase is for inference", "leave out --mode train.")
        for option, value in (("--channels", self.request.channels),
                              ("--classes", self.request.classes),
                              ("--input", self.request.input_shape)):  # fmt: skip
            if value is not None:
                raise GolowError(
                    f"{option} does not apply to {self.source.name}",
                    "its configuration sets the sizes; --sequence, --resolution and --batch change "
                    "the inputs.",
                )

    # ------------------------------------------------------------ the inputs

    def _ids(self, generator: Generator) -> Tensor:
        size = getattr(self.text, "vocab_size", None)
        if not isinstance(size, int):
            raise GolowError(
                f"{self.kind.__name__} reads tokens, but its configuration has no vocab_size",
                "give example_inputs=; if it is a part of a model, name the whole model.",
            )
        return self._below(size, (self.batch, self.sequence), generator)

    def _below(self, size: int, shape: tuple[int, ...], generator: Generator) -> Tensor:
        """Integers below the size. Ids with a meaning, such as padding, are replaced."""
        ids = torch.randint(size, shape, generator=generator)
        special = (getattr(self.text, f"{name}_token_id", None) for name in ("pad", "bos", "eos"))
        several = (item if isinstance(item, list) else [item] for item in special)
        known = {token for tokens in several for token in tokens if isinstance(token, int)}
        usual = next((i for i in range(size) if i not in known), 0)
        for token in known:
            ids[ids == token] = usual
        return ids

    def _mask(self, generator: Generator) -> Tensor:
        """At least half of each sequence is tokens, the rest is padding after them."""
        lengths = torch.randint(
            (self.sequence + 1) // 2, self.sequence + 1, (self.batch, 1), generator=generator
        )
        return (torch.arange(self.sequence) < lengths).long()

    def _pixels(self, generator: Generator) -> Tensor:
        channels = getattr(self._vision, "num_channels", 3)
        return torch.randn(self.batch, channels, *self._sides, generator=generator)

    @property
    def _vision(self) -> Any:
        return getattr(self.config, "vision_config", self.config)

    @property
    def _sides(self) -> tuple[int, int]:
        size = self.request.resolution or getattr(self._vision, "image_size", None) or SIDE
        return (size, size) if isinstance(size, int) else (int(size[0]), int(size[1]))

    def _sound(self, generator: Generator) -> Tensor:
        """A second of speech; its frames for a model that cuts them into patches, as AST does."""
        if hasattr(self.config, "frequency_stride"):
            frames = self.config.max_length, self.config.num_mel_bins
            return torch.randn(self.batch, *frames, generator=generator)
        return torch.randn(self.batch, SOUND, generator=generator)

    def _spectrogram(self, generator: Generator) -> Tensor:
        """Bins by frames; frames by features for a model that projects these, as Wav2Vec2-BERT."""
        features = getattr(self.config, "feature_projection_input_dim", None)
        if features is not None:
            return torch.randn(self.batch, SOUND // 320, features, generator=generator)
        bins = getattr(self.config, "num_mel_bins", 80)
        frames = 2 * getattr(self.config, "max_source_positions", SOUND // 320)
        return torch.randn(self.batch, bins, frames, generator=generator)

    # ------------------------------------------------------------ training and decoding

    def _labels(self) -> dict[str, Maker]:
        """Labels from which the class computes its loss; nothing if it computes none."""
        name, classes = self.kind.__name__, getattr(self.config, "num_labels", 2)

        def chosen(size: int, *shape: int) -> Maker:
            return lambda g: torch.randint(size, (self.batch, *shape), generator=g)

        if "start_positions" in self.takes:
            return {part: chosen(self.sequence) for part in ("start_positions", "end_positions")}
        if "labels" not in self.takes:
            return {}
        heads = ("SequenceClassification", "ImageClassification", "AudioClassification")
        if any(head in name for head in heads):
            return {"labels": chosen(classes)}
        if "SemanticSegmentation" in name:
            return {"labels": chosen(classes, *self._sides)}
        if "TokenClassification" in name:
            return {"labels": chosen(classes, self.sequence)}
        if self.main in ("input_ids", "input_features"):
            return {"labels": self._ids}
        return {}

    def _decoding(self) -> Made:
        """One token, and the keys and values of those before it, of every layer."""
        text, past = self.text, self.sequence
        if self._longest and past >= self._longest:
            past = self._longest - 1
        heads = getattr(text, "num_key_value_heads", None) or text.num_attention_heads
        width = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads

        def kept(g: Generator) -> Tensor:
            return torch.randn(self.batch, heads, past, width, generator=g)

        found: dict[str, Maker] = {
            "input_ids": lambda g: self._below(text.vocab_size, (self.batch, 1), g)
        }
        found |= dict.fromkeys(cache_keywords(text.num_hidden_layers), kept)
        return Made(found, dict(self.source.settings), self.batch)
