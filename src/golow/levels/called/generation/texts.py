"""Texts as users pass them to a compiled model, of equal or different lengths."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from golow.records.errors import GolowError

Ids = Tensor | Sequence[Tensor]


class Texts(NamedTuple):
    """ids: int64 [batch, most], shorter texts right-padded with zeros. lengths: of each text."""

    ids: Tensor
    lengths: tuple[int, ...]

    @property
    def alike(self) -> bool:
        """True if all have the same number of tokens."""
        return len(set(self.lengths)) <= 1


def texts_of(ids: Ids, attention_mask: Tensor | None, device: torch.device) -> Texts:
    """Return the texts of ids [batch, count], without the padding at one end if there is a mask, or
    of a list of 1-D ids. Raises `GolowError` for anything else."""
    if isinstance(ids, Tensor):
        _require_ids([ids], 2, device)
        if attention_mask is None:
            return Texts(ids, (ids.shape[1],) * ids.shape[0])
        return _joined(_unpadded(ids, attention_mask))
    if attention_mask is not None:
        raise GolowError(
            "attention_mask does not go with a list of texts",
            "leave it out: each has its own length.",
        )
    if not isinstance(ids, Sequence):
        raise GolowError(
            f"the texts are {type(ids).__name__}",
            "give int64 tokens [batch, count], or a list of one-dimensional texts.",
        )
    texts = list(ids)
    _require_ids(texts, 1, device)
    return _joined(texts)


def _require_ids(tensors: Sequence[Tensor], axes: int, device: torch.device) -> None:
    for item in tensors:
        if not isinstance(item, Tensor):
            raise GolowError(
                f"a text is {type(item).__name__}", "give each text as an int64 tensor of tokens."
            )
        if item.dtype != torch.int64 or item.device != device:
            raise GolowError(
                f"the tokens are {str(item.dtype).removeprefix('torch.')} on {item.device}",
                f"give int64 on {device}.",
            )
        if item.dim() != axes:
            raise GolowError(
                f"the tokens have the shape {list(item.shape)}",
                "give [batch, count], or a list of one-dimensional texts.",
            )


def _unpadded(ids: Tensor, mask: Tensor) -> list[Tensor]:
    if not isinstance(mask, Tensor) or mask.shape != ids.shape:
        shape = list(mask.shape) if isinstance(mask, Tensor) else type(mask).__name__
        raise GolowError(
            f"attention_mask is {shape}, but the tokens are {list(ids.shape)}",
            "give one number for each token: 1, or 0 for padding.",
        )
    kept = mask.to(ids.device) != 0
    changes = (kept[:, 1:] != kept[:, :-1]).sum(1)
    if bool((changes > 1).any()):
        row = int((changes > 1).nonzero()[0])
        raise GolowError(
            f"attention_mask hides tokens within text {row}, or at both of its ends",
            "pad texts at one end.",
        )
    return [row[own] for row, own in zip(ids, kept, strict=True)]


def _joined(texts: Sequence[Tensor]) -> Texts:
    empty = next((k for k, text in enumerate(texts) if not len(text)), None)
    if empty is not None or not texts:
        words = "there is no text" if empty is None else f"text {empty} has no token"
        raise GolowError(words, "give each text at least one token.")
    ids = torch.nn.utils.rnn.pad_sequence(list(texts), batch_first=True)
    return Texts(ids, tuple(map(len, texts)))


def require_known(ids: Tensor, vocabulary: int) -> None:
    """Raise `GolowError` for a token that the model lacks, in whose place a plan would read another
    one. Not on a GPU: the host would wait for it."""
    if ids.device.type != "cpu" or not ids.numel():
        return
    numbers = ids.numpy()  # whose ends, unlike those of a tensor, allocate nothing of torch
    least, most = int(numbers.min()), int(numbers.max())
    if least < 0 or most >= vocabulary:
        raise GolowError(
            f"the tokens include {least if least < 0 else most}, and the model has those from 0 to "
            f"{vocabulary - 1}",
            "use the tokenizer of this model; hide padding with attention_mask.",
        )
