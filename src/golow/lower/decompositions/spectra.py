"""Short-time Fourier transforms: the Fourier transform of each window of a signal, and the sum of
their inverses (Griffin & Lim 1984)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten
BY_ROOT = 1  # ATen's number for the norm that divides by the square root of the number of points


def stft(
    self: Tensor,  # as ATen names them
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    normalized: bool = False,
    onesided: bool | None = None,
    return_complex: bool | None = None,
    align_to_window: bool | None = None,
) -> Any:
    """Decompose ``stft`` of a real signal [..., time] -> [..., frequencies, windows]."""
    if align_to_window or self.is_complex() or (window is not None and window.is_complex()):
        return NotImplemented
    parts = self.unfold(-1, n_fft, hop_length or n_fft // 4)  # [..., windows, n_fft]
    whole = _widened(window, win_length or n_fft, n_fft, self)
    parts = parts if whole is None else parts * whole
    norm = BY_ROOT if normalized else 0
    found = aten._fft_r2c.default(parts, [parts.dim() - 1], norm, onesided is not False)
    found = found.transpose(-1, -2)
    return found if return_complex else torch.view_as_real(found)


def istft(
    input: Tensor,  # as PyTorch names them
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    center: bool = True,
    normalized: bool = False,
    onesided: bool | None = None,
    length: int | None = None,
    return_complex: bool = False,
) -> Any:
    """Decompose ``istft`` to a real signal: [..., frequencies, windows] -> [..., time]."""
    if return_complex:
        return NotImplemented
    hop, rows = hop_length or n_fft // 4, n_fft // 2 + 1
    windows = input.shape[-1]
    signals = input.reshape(-1, *input.shape[-2:]).transpose(1, 2)[..., :rows]
    parts = torch.fft.irfft(signals, n_fft, norm="ortho" if normalized else "backward")
    whole = _widened(window, win_length or n_fft, n_fft, parts)
    weights = parts.new_ones(n_fft) if whole is None else whole
    size = n_fft + hop * (windows - 1)
    made = aten.unfold_backward(parts * weights, [parts.shape[0], size], 1, n_fft, hop)
    squares = (weights * weights).expand(1, windows, n_fft)
    weight = aten.unfold_backward(squares, [1, size], 1, n_fft, hop)
    start = n_fft // 2 if center else 0
    end = start + length if length is not None else size - start
    made = made[:, start:end] / weight[:, start:end]
    if end > size:
        made = torch.nn.functional.pad(made, (0, end - size))
    return made.reshape(*input.shape[:-2], end - start)


def _widened(window: Tensor | None, width: int, points: int, like: Tensor) -> Tensor | None:
    """Return the window, centred in the size of a transform; None if it is all ones."""
    if window is None and width == points:
        return None
    if window is None:
        window = like.new_ones(width)
    before = (points - width) // 2
    return aten.constant_pad_nd.default(window, [before, points - width - before], 0.0)


DEFINITIONS = {"aten.stft.default": stft}
