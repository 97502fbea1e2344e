"""A GPT-2 for bytes that trains on a CPU in minutes, for `trained_quantized.py`."""

from __future__ import annotations

from golow.models.gpt2 import Gpt2, Gpt2Sizes


class ByteGpt2(Gpt2):
    """0.9 million parameters; 128 bytes of text."""

    def __init__(self) -> None:
        super().__init__(Gpt2Sizes(vocabulary=256, positions=128, width=128, layers=4, heads=4))
