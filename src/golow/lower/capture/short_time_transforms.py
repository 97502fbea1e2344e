"""Inverse short-time Fourier transform, replaced by its arithmetic while a model is captured:
PyTorch's call reads the elements of its window, which are not available in a graph."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

import torch

from golow.lower.decompositions.spectra import istft


@contextmanager
def inverse_spectra_in_graph() -> Iterator[None]:
    """Trace ``istft`` to a real signal as arithmetic within the block."""
    plain = torch.istft

    @wraps(plain)  # Dynamo reads its name
    def arithmetic(*given: Any, **named: Any) -> Any:
        found = istft(*given, **named)
        return plain(*given, **named) if found is NotImplemented else found

    torch.istft = arithmetic
    try:
        yield
    finally:
        torch.istft = plain
