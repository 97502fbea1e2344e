"""``llama.cpp``: the model as a GGUF file in golow's cache, with weights in float types."""

from __future__ import annotations

import gc
import hashlib
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import torch
from torch import Tensor

from golow.levels.generation.gguf_file import LEVEL, write_gguf
from golow.levels.generation.program import TextProgram
from golow.levels.generation.table import build_key
from golow.records.errors import Unsupported
from golow.records.text import Sampling, TextPrecision, TextWorkload
from golow.storage.cache import building_sealed, is_sealed, open_cache
from golow.workload.generation.text_bundle import WEIGHTS, TextBundle

FILE = "model.gguf"
# Of the caches, by llama.cpp's numbers: it keeps keys and values in float16 by default.
CACHE_TYPES: dict[TextPrecision, int] = {"default": 0, "bf16": 1}  # float32, float16


class LlamaCpp:
    """Generates texts with one context, in which each text is a sequence."""

    def __init__(self, file: Path, work: TextWorkload) -> None:
        import llama_cpp

        self._library: Any = llama_cpp
        # Its own handler prints everything that is not below this level.
        logging.getLogger("llama-cpp-python").setLevel(logging.ERROR)
        model = llama_cpp.llama_model_load_from_file(
            bytes(file), llama_cpp.llama_model_default_params()
        )
        if not model:
            raise RuntimeError(f"llama.cpp does not load {file}")
        longest = llama_cpp.llama_model_n_ctx_train(model)
        if work.longest > longest:
            raise Unsupported(LEVEL, f"it reads no more than {longest} tokens of this model")
        most = work.batch * work.longest
        self._context = llama_cpp.llama_init_from_model(model, _settings(llama_cpp, work, most))
        if not self._context:
            raise RuntimeError(f"llama.cpp has no context for {work.batch} texts")
        self._batch = llama_cpp.llama_batch_init(most, 0, 1)
        self._vocabulary, self._positions = work.vocabulary, [0] * work.batch

    def prefill(self, tokens: Tensor) -> Tensor:
        """Return logits after the first tokens of texts."""
        return self._begin(tokens.tolist())

    def prefill_apart(self, texts: Sequence[Tensor]) -> Tensor:
        """Return logits after texts of different lengths, each at its own positions."""
        return self._begin([text.tolist() for text in texts])

    def step(self, tokens: Tensor, position: int) -> Tensor:
        """Return logits after the next tokens, in memory that the next step overwrites."""
        return self._read(tokens.tolist())

    def _begin(self, texts: Sequence[Sequence[int]]) -> Tensor:
        kept = self._library.llama_get_memory(self._context)
        self._library.llama_memory_clear(kept, False)
        self._positions = [0] * len(texts)
        return self._read(texts)

    def _read(self, texts: Sequence[Sequence[int]]) -> Tensor:
        """Read the next tokens of each text, all in one call."""
        batch, place = self._batch, 0
        for text, tokens in enumerate(texts):
            for position, token in enumerate(tokens, start=self._positions[text]):
                batch.token[place], batch.pos[place] = token, position
                batch.n_seq_id[place], batch.seq_id[place][0] = 1, text
                batch.logits[place] = False
                place += 1
            batch.logits[place - 1] = True
            self._positions[text] += len(tokens)
        batch.n_tokens = place
        if status := self._library.llama_decode(self._context, batch):
            raise RuntimeError(f"llama_decode returns {status}")
        logits = self._library.llama_get_logits(self._context)
        return torch.from_numpy(np.ctypeslib.as_array(logits, (len(texts), self._vocabulary)))


def _settings(library: Any, work: TextWorkload, most: int) -> Any:
    """The context's: the library's defaults but for sizes, threads, and what float32 needs. most:
    tokens of all texts."""
    settings = library.llama_context_default_params()
    settings.n_ctx = settings.n_batch = most
    settings.n_seq_max = work.batch
    settings.n_threads = settings.n_threads_batch = work.threads
    settings.type_k = settings.type_v = CACHE_TYPES[work.precision]
    if work.precision == "default":  # its attention in one piece rounds keys and values to float16
        settings.flash_attn_type = library.LLAMA_FLASH_ATTN_TYPE_DISABLED
    return settings


def generator(bundle: TextBundle) -> LlamaCpp:
    """Return the generator. Raises `Unsupported` for a model that llama.cpp does not run."""
    work = bundle.workload
    if work.precision not in CACHE_TYPES or work.source.quantized:
        raise Unsupported(LEVEL, "golow writes it weights in float32 and bf16 alone")
    if work.encoder:
        raise Unsupported(LEVEL, "golow writes it no model with an encoder")
    return LlamaCpp(_written(bundle), work)


def _written(bundle: TextBundle) -> Path:
    """The file in golow's cache, where it is written the first time."""
    with (bundle.folder / WEIGHTS).open("rb") as weights:
        digest = hashlib.file_digest(weights, "sha256").hexdigest()
    alone = msgspec.structs.replace(
        bundle.workload, batch=1, prompt=1, tokens=1, lengths=(), threads=1, sampling=Sampling(),
        cache_bytes=0, seed=0,
    )  # fmt: skip
    folder = open_cache() / LEVEL / f"{build_key(alone)}-{digest[:16]}"
    if not is_sealed(folder):
        with building_sealed(folder, "writing-") as draft:
            write_gguf(bundle.module(), draft / FILE)
        gc.collect()  # models from transformers hold themselves
    return folder / FILE


def program(variant: str) -> TextProgram:
    """The worker's side."""
    return TextProgram(generator)
