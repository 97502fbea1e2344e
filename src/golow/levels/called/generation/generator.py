"""A language model that writes text: two or more plans over one cache and one set of weights."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from numbers import Integral
from typing import NamedTuple, Self

import torch
from torch import Tensor

from golow.levels.called.forks import forks, require_own_process
from golow.levels.called.generation.chunks import pieces
from golow.levels.called.generation.forms import BEGINNING, Form
from golow.levels.called.generation.generation import Generation
from golow.levels.called.generation.texts import Ids, Texts, require_known, texts_of
from golow.levels.called.target import Run, TargetPlan
from golow.levels.called.uncopied import Uncopied
from golow.lower.plan.listing import table_lines
from golow.records.errors import GolowError
from golow.records.text import Sampling
from golow.workload.generation.request import require_sampling
from golow.workload.generation.sampling import choose

GREEDY = Sampling()


class GeneratorParts(NamedTuple):
    """name: of the module's class. level: that runs it. form: of its step. plans: by the number of
    new tokens that each processes. runs: the plans as functions of the addresses of tokens,
    position and logits. likeliest: the plan of one token that also chooses the next tokens, or
    None; it writes them over the tokens and into the text, whose address follows that of the
    logits, and advances the position. vocabulary: number of logits. clear: sets the caches to zero.
    bytes: of weights, caches and iterations. close: releases all memory."""

    name: str
    level: str
    generation: Generation
    form: Form
    device: torch.device
    vocabulary: int
    plans: Mapping[int, TargetPlan]
    runs: Mapping[int, Run]
    likeliest: Run | None
    clear: Callable[[], None]
    bytes: Callable[[], dict[str, int]]
    close: Callable[[], None]


class Generator(Uncopied):
    """A language model, compiled to write text. Every call continues where the last one ended;
    `reset` begins a new text.

    position: number of tokens in the cache of the longest text. Tokens are int64 on the model's
    device. Only one thread may use it at a time. `prefill` and `decode` build and capture nothing,
    and allocate only to read texts of different lengths.
    """

    def __init__(self, parts: GeneratorParts) -> None:
        generation, device = parts.generation, parts.device
        self._parts, self._runs = parts, dict(parts.runs)
        self._counts = tuple(sorted(parts.plans.keys() - {BEGINNING}))
        self._forks = len(forks)
        self.batch, self.longest = generation.batch, generation.longest
        self.vocabulary, self.device, self.name = parts.vocabulary, device, parts.name
        self.position = 0
        new = torch.empty
        # Behind a shorter text are tokens of the vocabulary, which no other token sees.
        self._text = torch.zeros(self.batch, self.longest, dtype=torch.int64, device=device)
        self._given = {
            n: new(self.batch, n, dtype=torch.int64, device=device) for n in self._counts
        }
        self._position = parts.form.position(device)
        self._behind = torch.zeros(self.batch, 1, dtype=torch.int64, device=device)
        self._differ = False  # the lengths of texts
        self._logits = new(self.batch, self.vocabulary, dtype=torch.float32, device=device)
        self._best = new(self.batch, dtype=torch.int64, device=device)
        self._at = {
            n: ([ids.data_ptr(), self._position.data_ptr()], [self._logits.data_ptr()])
            for n, ids in self._given.items()
        }

    def __repr__(self) -> str:
        texts = f"{self.batch} texts" if self.batch > 1 else "texts"
        return (
            f"<golow: {self.name} at {self._parts.level}, {texts} of up to {self.longest} tokens>"
        )

    def prefill(self, ids: Ids, attention_mask: Tensor | None = None) -> Tensor:
        """Read one or more tokens of each text; return the logits of the next token, float32
        [batch, vocabulary], in memory that the next call overwrites.

        ids: int64 [batch, count], or a list of texts of different lengths, int64 [count] each.
        attention_mask: [batch, count], zero on the padding of shorter texts, at either end. Each
        text continues where it ended. Raises `GolowError` for tokens that do not fit.
        """
        return self._read(texts_of(ids, attention_mask, self.device))

    def decode(self, ids: Tensor) -> Tensor:
        """Read one more token of each text, int64 [batch] or [batch, 1]; return the logits, as
        `prefill` does."""
        if ids.dim() == 1:
            ids = ids.unsqueeze(1)
        texts = texts_of(ids, None, self.device)
        if texts.lengths[:1] != (1,):
            raise GolowError(f"the tokens are {list(ids.shape)}", "give one of each text.")
        self._require_fitting(texts)
        self._given[1].copy_(ids)
        self._run(self.position, 1)
        if self._differ:
            self._text.scatter_(1, self._position, ids)
        else:
            self._text[:, self.position : self.position + 1].copy_(ids)
        self.position += 1
        return self._logits

    def generate(
        self,
        ids: Ids,
        tokens: int = 128,
        *,
        attention_mask: Tensor | None = None,
        temperature: float = 0.0,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int = 0,
        stop: Collection[int] = (),
    ) -> Tensor:
        """Read tokens as `prefill` does, and generate ``tokens`` more tokens of each text; return
        these, int64 [batch, tokens], or fewer if all texts reached a stop token.

        temperature, top_k, top_p, seed: as in `golow.generate`; temperature 0 takes the likeliest
        token. stop: tokens that end a text, which then repeats its last token until all texts have
        ended. The last token has not been read: to continue, pass it first. Raises `GolowError` for
        invalid settings, and if the texts become longer than `longest`.
        """
        sampling = Sampling(temperature=temperature, top_k=top_k, top_p=top_p, seed=seed)
        written = self.stream(
            ids, tokens, attention_mask=attention_mask, sampling=sampling, stop=stop
        )
        found = torch.empty(self.batch, tokens, dtype=torch.int64, device=self.device)
        count = 0
        for token in written:
            found[:, count].copy_(token)
            count += 1
        return found[:, :count]

    def stream(
        self,
        ids: Ids,
        tokens: int = 128,
        *,
        attention_mask: Tensor | None = None,
        sampling: Sampling = GREEDY,
        stop: Collection[int] = (),
    ) -> Iterator[Tensor]:
        """Generate as `generate` does, and yield the next token of each text, int64 [batch], as
        soon as it is known, in memory that the next token overwrites."""
        require_sampling(sampling)
        _require_tokens(stop)
        if not isinstance(tokens, int) or tokens < 1:
            raise GolowError(f"tokens={tokens!r} writes nothing", "use tokens=1 or more.")
        texts = texts_of(ids, attention_mask, self.device)
        self._require_fitting(texts, beside=tokens - 1)
        if sampling.is_greedy and not stop and self._parts.likeliest is not None:
            return self._likeliest(texts, tokens, self._parts.likeliest)
        return self._written(texts, tokens, sampling, stop)

    def _likeliest(self, texts: Texts, tokens: int, run: Run) -> Iterator[Tensor]:
        """The likeliest tokens, which the device chooses and feeds to the next step itself."""
        given, (reads, logits) = self._given[1], self._at[1]
        torch.argmax(self._read(texts), dim=-1, out=self._best)
        given.copy_(self._best.unsqueeze(1))
        yield self._best
        self._position.fill_(self.position)
        if tokens > 1:
            self._text[:, self.position].copy_(self._best)
        for _ in range(tokens - 1):
            run(reads, [*logits, self._text.data_ptr()])
            self.position += 1
            yield given[:, 0]

    def _written(
        self, texts: Texts, tokens: int, sampling: Sampling, stop: Collection[int]
    ) -> Iterator[Tensor]:
        drawn = torch.Generator().manual_seed(sampling.seed)
        ends = torch.tensor([*stop], dtype=torch.int64, device=self.device)
        logits = self._read(texts)
        for index in range(tokens):
            if index:
                logits = self.decode(self._best)
            ended = torch.isin(self._best, ends) if index and stop else None
            last = self._best.clone() if ended is not None else None
            if sampling.is_greedy:
                torch.argmax(logits, dim=-1, out=self._best)
            else:
                draws = torch.rand(self.batch, dtype=torch.float64, generator=drawn)
                self._best.copy_(choose(logits, sampling, draws.to(self.device)))
            if ended is not None and last is not None:
                self._best.copy_(torch.where(ended, last, self._best))
            yield self._best
            if stop and bool(torch.isin(self._best, ends).all()):
                return

    def reset(self) -> None:
        """Begin new texts. The old content of the cache is no longer read, and stays until it is
        overwritten."""
        self.position, self._differ = 0, False
        self._behind.zero_()

    # ------------------------------------------------------------ about it

    @property
    def positions(self) -> list[int]:
        """How many tokens the cache holds of each text."""
        found: list[int] = (self.position - self._behind[:, 0]).tolist()
        return found

    @property
    def counts(self) -> tuple[int, ...]:
        """The numbers of tokens that plans process at once."""
        return self._counts

    def plan(self, count: int = 1) -> str:
        """Return the steps of the plan for this many new tokens, one per line. Raises `GolowError`
        for a number without a plan."""
        self._require_open()
        if count not in self._parts.plans:
            known = ", ".join(map(str, self._counts))
            raise GolowError(f"there is no plan for {count} new tokens", f"there are {known}.")
        return "\n".join(table_lines(self._parts.plans[count].plan))

    def memory(self) -> dict[str, int]:
        """Return bytes: ``weights`` and ``cache``, once for all plans, and ``iteration``."""
        self._require_open()
        return self._parts.bytes()

    def forget(self) -> None:
        """Set the caches to zero, and begin new texts."""
        self._require_open()
        self._parts.clear()
        self.reset()

    def close(self) -> None:
        """Release all memory. A later call is an error."""
        if self._runs:
            self._runs = {}
            self._parts.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # ------------------------------------------------------------ implementation

    def _read(self, texts: Texts) -> Tensor:
        self._require_fitting(texts)
        if self._differ or not texts.alike:
            return self._read_apart(texts)
        begin, end = self.position, self.position + texts.lengths[0]
        self._text[:, begin:end].copy_(texts.ids)
        for start, count in pieces(begin, end, self._counts):
            self._given[count].copy_(self._text[:, start : start + count])
            self._run(start, count)
        self.position = end
        return self._logits

    def _read_apart(self, texts: Texts) -> Tensor:
        """Read texts of different lengths. All end together: a shorter one begins later, and until
        then reads its beginning, with what comes behind it."""
        lengths = torch.tensor(texts.lengths, device=self.device)[:, None]
        ends = self.position - self._behind + lengths
        end = int(ends.max())
        for row, (ids, last) in enumerate(zip(texts.ids, ends[:, 0].tolist(), strict=True)):
            count = texts.lengths[row]
            self._text[row, last - count : last].copy_(ids[:count])
        self._behind.copy_(end - ends)
        self._differ = bool(self._behind.any())
        begin = end - max(texts.lengths)
        found = list(pieces(begin, end, self._counts))
        if found[-1][1] > int(ends.min()):  # it would not end with the last token of that text
            found = [*pieces(begin, end - 1, self._counts), (end - 1, 1)]
        for start, count in found:
            self._place(start)
            places = self._position + torch.arange(count, device=self.device)
            torch.gather(self._text, 1, places, out=self._given[count])
            self._runs[count](*self._at[count])
        self.position = end
        return self._logits

    def _run(self, start: int, count: int) -> None:
        self._place(start)
        self._runs[count](*self._at[count])

    def _place(self, start: int) -> None:
        """Set the positions of new tokens. start: that of the longest text."""
        self._position.fill_(start)
        if self._differ:
            self._position.sub_(self._behind).clamp_(min=0)

    def _require_fitting(self, texts: Texts, beside: int = 0) -> None:
        """Raise `GolowError` for another number of texts, and for too many or unknown tokens.
        beside: further tokens to come."""
        self._require_open()
        if len(texts.lengths) != self.batch or not texts.lengths[0]:
            raise GolowError(
                f"the tokens are {list(texts.ids.shape)}, not [{self.batch}, count]",
                "give each text at least one token, or compile with another batch in Generation.",
            )
        if not texts.alike and not self._parts.form.own:
            raise GolowError(
                f"the texts have {min(texts.lengths)} to {max(texts.lengths)} tokens, but "
                f"{self.name} at {self._parts.level} takes one position for all",
                "give texts of equal length, or compile with batch=1 and give one after the other.",
            )
        require_known(texts.ids, self.vocabulary)
        behind = self._behind[:, 0].tolist() if self._differ else [0] * self.batch
        read = max(count - late for count, late in zip(texts.lengths, behind, strict=True))
        after = self.position + read + beside
        if after > self.longest:
            raise GolowError(
                f"the texts would have {after} tokens, and the cache holds {self.longest}",
                "call reset() for new texts, or compile with a larger longest in Generation.",
            )

    def _require_open(self) -> None:
        if not self._runs:
            raise GolowError("the compiled model is closed")
        require_own_process(self._forks, "the model was compiled")


def _require_tokens(stop: object) -> None:
    if not isinstance(stop, Collection) or not all(isinstance(token, Integral) for token in stop):
        raise GolowError(
            f"stop={stop!r} is not a list of tokens", "for example stop=[2]; leave it out for none."
        )
