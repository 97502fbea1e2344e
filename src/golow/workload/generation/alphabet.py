"""Meaning of tokens: bytes, or the pieces of a tokenizer of transformers."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from golow.models.gpt2 import Gpt2
from golow.records.errors import GolowError
from golow.records.text import Alphabet
from golow.records.workload import ModelSource
from golow.workload.hub.huggingface import configuration_of, has_tokenizer, load_tokenizer

BYTES = 256  # tokens of a vocabulary whose tokens are bytes


def tokens_of(text: str, alphabet: Alphabet, source: ModelSource) -> list[int]:
    """The tokens of a text. Raises `GolowError` if the model has none, or the text is empty."""
    if not alphabet:
        raise GolowError(
            f"{source.name} has no tokens for a text",
            "leave out --text: golow draws prompts of --prompt tokens.",
        )
    found = list(text.encode()) if alphabet == "bytes" else _pieces(text, source)
    if not found:
        raise GolowError("the text has no token", 'for example --text "The ".')
    return found


def text_of(tokens: Sequence[int], alphabet: Alphabet, source: ModelSource) -> str:
    """The text of these tokens; their numbers if they stand for nothing."""
    if alphabet == "bytes":
        return bytes(tokens).decode(errors="replace")
    if alphabet == "huggingface":
        return str(load_tokenizer(source).decode(list(tokens)))
    return " ".join(map(str, tokens))


def alphabet_of(source: ModelSource, module: nn.Module) -> Alphabet:
    """Return the meaning of this model's tokens."""
    if source.kind == "huggingface":
        return "huggingface" if has_tokenizer(source) else ""
    return "bytes" if isinstance(module, Gpt2) and module.sizes.vocabulary == BYTES else ""


def _pieces(text: str, source: ModelSource) -> list[int]:
    found: list[int] = load_tokenizer(source)(text)["input_ids"]
    size, last = configuration_of(source).get_text_config().vocab_size, max(found, default=0)
    if last >= size:
        raise GolowError(
            f"the tokenizer of {source.name} makes the token {last} of this text, and the model "
            f"has those from 0 to {size - 1}",
            "put the tokenizer beside it with which it was trained.",
        )
    return found
