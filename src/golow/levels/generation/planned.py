"""``onednn`` and ``cudnn``: the step module as plans of the libraries over one cache, with no
framework in them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from torch import Tensor

from golow.levels.called.generation.building import built_generator
from golow.levels.called.generation.generation import Generation
from golow.levels.called.generation.generator import Generator
from golow.levels.called.wanted import Wanted
from golow.levels.generation.program import TextProgram
from golow.levels.generation.static import step_module
from golow.observer import Silent
from golow.records.errors import GolowError, Unsupported
from golow.records.text import TextPrecision
from golow.records.workload import Precision
from golow.workload.generation.encoder_decoder_step import EncoderDecoderStep
from golow.workload.generation.encoder_sources import source_of as encoder_source
from golow.workload.generation.text_bundle import TextBundle

# A module in half precision states its own.
ON_GPU: dict[TextPrecision, Precision] = {"default": "ieee", "tf32": "tf32"}


class Planned:
    """A generator over a compiled model. Its logits are in memory that the next call writes.
    source_of: what an encoder reads for the tokens that texts begin with."""

    def __init__(
        self, compiled: Generator, source_of: Callable[[Tensor], Tensor] | None = None
    ) -> None:
        self._compiled, self._source_of = compiled, source_of

    def prefill(self, tokens: Tensor) -> Tensor:
        """Logits after the tokens that texts begin with."""
        self._compiled.reset()
        given = tokens if self._source_of is None else self._source_of(tokens)
        return self._compiled.prefill(given)

    def prefill_apart(self, texts: Sequence[Tensor]) -> Tensor:
        """Logits after texts of different lengths."""
        self._compiled.reset()
        return self._compiled.prefill(texts)

    def likeliest(self, tokens: Tensor, count: int) -> Iterator[Tensor]:
        """Texts that begin with these tokens, by their likeliest tokens."""
        self._compiled.reset()
        return self._compiled.stream(tokens, count)

    def step(self, tokens: Tensor, position: int) -> Tensor:
        """Logits after the next tokens."""
        return self._compiled.decode(tokens)


def planned(bundle: TextBundle) -> Planned:
    """The generator; raises `Unsupported` for a step that the level cannot run."""
    work = bundle.workload
    step, texts = step_module(bundle), Generation(longest=work.longest, batch=work.batch)
    source_of = None
    if isinstance(step, EncoderDecoderStep):
        texts = texts._replace(longest=step.longest)
        source_of = partial(encoder_source, step.model)
    if work.device == "cuda":
        wanted = Wanted(level="cudnn", precision=ON_GPU.get(work.precision, "default"))
    elif work.precision == "bf16" and work.encoder:
        raise Unsupported("onednn", "it computes a model with an encoder in float32")
    else:
        wanted = Wanted(level="onednn", threads=work.threads)
    try:
        return Planned(built_generator(step, None, texts, wanted, Silent()), source_of)
    except GolowError as error:
        if isinstance(error.__cause__, Unsupported):
            raise error.__cause__ from None
        raise


def program(variant: str) -> TextProgram:
    """The worker's side."""
    return TextProgram(planned)
