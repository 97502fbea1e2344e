"""Text from which a rule of quantisation learns what the layers of a language model read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from golow.data import text as own_text
from golow.records.errors import GolowError
from golow.records.quantization import Calibration
from golow.records.text import Alphabet
from golow.records.workload import ModelSource
from golow.storage.files import read_text
from golow.workload.generation.alphabet import tokens_of
from golow.workload.generation.encoder_sources import is_encoder_decoder
from golow.workload.generation.step_modules import longest_text

OWN = "text"
"""In place of a file: the text that is embedded in golow, without its last tenth."""
COUNT, MOST = own_text.SEQUENCE, 512  # tokens of a sample, and samples
CHARACTERS = 1 << 20  # of a file, from its beginning; more have no more samples
ROWS = 4  # of a forward pass, whose logits for all tokens are in memory


class CalibrationText(NamedTuple):
    """tokens: int64 [samples, count]. data: their source."""

    tokens: Tensor
    data: str

    def samples(self) -> Iterator[tuple[Tensor, ...]]:
        """Yield the inputs of forward passes."""
        for first in range(0, len(self.tokens), ROWS):
            yield (self.tokens[first : first + ROWS],)

    def described(self) -> Calibration:
        """Return the facts for the record."""
        samples, count = self.tokens.shape
        data = f"{self.data}, {count} tokens each"
        return Calibration(method="compensation", data=data, samples=samples)


def calibration_text(
    named: str | Path, alphabet: Alphabet, source: ModelSource, module: nn.Module
) -> CalibrationText:
    """Return the samples of a file, or of golow's own text. Raises `GolowError` for a file that is
    not text, and for a model that reads no text or has an encoder."""
    if not alphabet or is_encoder_decoder(module):
        why = "has an encoder" if alphabet else "has no tokens for a text"
        raise GolowError(
            f"{source.name} {why}, so golow cannot calibrate it with text",
            "leave out --calibrate.",
            python_hint="leave out calibrate=.",
        )
    if str(named) == OWN:
        text, data = own_text.load()[: own_text.TRAINING].decode(), "golow's text"
    else:
        text, data = read_text(Path(named))[:CHARACTERS], Path(named).name
    if not text:
        raise GolowError(f"{named} is empty", "name a file with text.")
    tokens = tokens_of(text, alphabet, source)
    count = min(COUNT, longest_text(module) or COUNT, len(tokens))
    samples = min(len(tokens) // count, MOST)
    found = torch.tensor(tokens[: samples * count]).reshape(samples, count)
    return CalibrationText(found, data)
