"""The records of text generation.

Format history of ``generation.json``:

1   November 2026, the first.
"""

from __future__ import annotations

from statistics import mean

from golow.records.comparison import (
    Block,
    Check,
    Environment,
    Quantity,
    RaceSummary,
    Ratio,
    VerdictName,
)
from golow.records.record import Record
from golow.records.text import TextWorkload

FORMAT_VERSION = 1


class Departure(Record, frozen=True, kw_only=True):
    """Where a level's free text departs from the baseline's.

    text: of the batch, from 0. token: of those generated, from 0. error: by how much logits must be
    off to explain both choices. explained: whether rounding explains that much.
    """

    text: int
    token: int
    error: float
    explained: bool


class TextRun(Record, frozen=True, kw_only=True):
    """One level on one batch size.

    check: of the logits after forced tokens. texts: the free run's tokens, [batch][count]. written:
    the first of them as text, behind the user's prompt; empty for drawn prompts. further: the same
    of the user's further prompts.
    replayed: tokens that the reference judged, free and timed ones together; worst: the largest
    error of logits that one of them needs, in the unit of logits. ratio, first_ratio: time of a
    token, and up to the first one, over that of the first level. figures: ``start`` (s, from the
    start of the process until it can begin a text), ``resident``, ``resident_peak`` and ``device``
    (B), ``package_energy`` and ``gpu_energy`` (J a token of all texts). blocks: raw; of each the
    first time is that up to the first token, the others those of the later tokens.
    """

    level: str
    verdict: VerdictName
    reason: str = ""
    check: Check | None = None
    texts: tuple[tuple[int, ...], ...] = ()
    written: str = ""
    further: tuple[str, ...] = ()
    departure: Departure | None = None
    replayed: int = 0
    worst: float = 0.0
    first_token: Quantity | None = None
    token: Quantity | None = None
    slow_token: Quantity | None = None
    ratio: Ratio | None = None
    first_ratio: Ratio | None = None
    figures: tuple[Quantity, ...] = ()
    blocks: tuple[Block, ...] = ()
    log: str = ""

    @property
    def energy(self) -> float | None:
        """Joules per token of all texts, of the GPU if it was measured, else of the processor."""
        gpu = self.figure("gpu_energy")
        return self.figure("package_energy") if gpu is None else gpu

    @property
    def memory(self) -> float | None:
        """Bytes on the device, as far as they are known."""
        device = self.figure("device")
        return self.figure("resident") if device is None else device

    def figure(self, name: str) -> float | None:
        """The value of one of its figures; None if it was not measured."""
        return next((one.value for one in self.figures if one.name == name), None)


class TextCase(Record, frozen=True, kw_only=True):
    """All levels on one batch size. error_limit: of single logits, up to which rounding explains
    the choice of another token; 0 before the reference has run."""

    workload: TextWorkload
    runs: tuple[TextRun, ...]
    race: RaceSummary | None = None
    error_limit: float = 0.0

    def roof(self, read_rate: float) -> float:
        """Seconds that reading takes for one token of all texts: the weights once, and the caches
        of the mean length, at that many bytes per second."""
        work = self.workload
        length = mean(work.prompts) + (work.tokens + 1) / 2
        return work.read_bytes(length) / read_rate


class Generation(Record, frozen=True, kw_only=True):
    """Texts of one model at every level. prompt, further: the tokens that the user gave, of the
    first text and of others; empty if they are drawn. read_rate: bytes per second of a plain read
    of the machine's memory."""

    format_version: int
    id: str
    created: str
    environment: Environment
    cases: tuple[TextCase, ...]
    prompt: tuple[int, ...] = ()
    further: tuple[tuple[int, ...], ...] = ()
    read_rate: Quantity | None = None
    notes: tuple[str, ...] = ()
    interrupted: bool = False
