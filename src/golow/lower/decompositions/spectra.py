"""The spectra of a signal's windows: ``torch.stft``, of which speech models are made."""

from __future__ import annotations

import torch
from torch import Tensor

aten = torch.ops.aten


def windowed_spectra(
    self: Tensor,
    n_fft: int,
    hop_length: int | None = None,
    win_length: int | None = None,
    window: Tensor | None = None,
    normalized: bool = False,
    onesided: bool | None = None,
    return_complex: bool | None = None,
    align_to_window: bool | None = None,
) -> Tensor:
    """Fourier transforms of overlapping frames: [..., samples] -> [..., frequencies, frames]. A
    shorter window is in the middle of its frame."""
    if self.is_complex() or align_to_window or (window is not None and window.is_complex()):
        return NotImplemented
    frames = aten.unfold.default(self, -1, n_fft, hop_length or n_fft // 4)
    length = win_length or n_fft
    if window is None and length < n_fft:
        window = aten.ones.default([length], dtype=self.dtype)
    if window is not None:
        before = (n_fft - length) // 2
        whole = aten.constant_pad_nd.default(window, [before, n_fft - length - before])
        frames = aten.mul.Tensor(frames, whole)
    norm = "ortho" if normalized else None
    transform = aten.fft_rfft if onesided is not False else aten.fft_fft
    spectra: Tensor = aten.transpose.int(transform.default(frames, None, -1, norm), -1, -2)
    return spectra if return_complex else aten.view_as_real.default(spectra)


DEFINITIONS = {"aten.stft.default": windowed_spectra}
