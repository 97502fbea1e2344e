"""State of a level during a text generation: its worker, its verdict, and its texts."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from golow.measure.gpu.joules import Joules
from golow.measure.gpu.nvml import Card
from golow.programs.generation.figures import TextFigures
from golow.programs.generation.generation_record import Departure, TextRun
from golow.programs.generation.replays import MadeTexts
from golow.programs.generation.timing import Entrant
from golow.records.comparison import Check, Quantity, VerdictName
from golow.records.errors import GolowError, Unsupported, WorkerFailure
from golow.worker.text_client import TextWorker


class Standing:
    """One level. free: its free text. entrant: in the race."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.check: Check | None = None
        self.free: MadeTexts | None = None
        self.entrant: Entrant | None = None
        self.departure: Departure | None = None
        self.timed = TextFigures()
        self.replayed, self.worst = 0, 0.0
        self._worker: TextWorker | None = None
        self._failure: tuple[VerdictName, str] | None = None
        self._figures: list[Quantity] = []
        self._log = ""

    @property
    def stands(self) -> bool:
        """True unless an error was found so far."""
        return self._failure is None and (self.check is None or self.check.verdict == "match")

    @property
    def verdict(self) -> VerdictName:
        """The verdict as it is recorded."""
        if self._failure is not None:
            return self._failure[0]
        return "unavailable" if self.check is None else self.check.verdict

    @property
    def reason(self) -> str:
        """The reason of the verdict; empty if all is well."""
        if self._failure is not None:
            return self._failure[1]
        return (
            "the run ended before this level was checked" if not self.check else self.check.reason
        )

    @property
    def made(self) -> list[MadeTexts]:
        """All texts that it generated."""
        timed = [] if self.entrant is None else self.entrant.made
        return [*([] if self.free is None else [self.free]), *timed]

    def begin_loading(self, worker: TextWorker, bundle: Path) -> None:
        """Let the worker load."""
        self._worker = worker
        worker.begin_loading(bundle)

    def finish_loading(self) -> None:
        """Wait until it has loaded; the time counts from the start of its process."""
        worker = self.worker_of()
        report = worker.finish_loading()
        seconds = {"start": time.perf_counter() - worker.started, **report.phases}
        self._figures += [Quantity(name=n, unit="s", value=s) for n, s in seconds.items()]

    def worker_of(self) -> TextWorker:
        """Its worker; raises `WorkerFailure` if it has none."""
        if self._worker is None:
            raise WorkerFailure("not started", "its worker was not started")
        return self._worker

    def read_memory(self, card: Card | None) -> None:
        """Add its memory to the figures. card: the GPU, None on a CPU."""
        with self.recorded():
            found = self.worker_of().resident_bytes()
            held = None if card is None else card.process_bytes(self.worker_of().pid)
            found |= {} if held is None else {"device": held}
            self._figures += [Quantity(name=n, unit="B", value=v) for n, v in found.items()]

    def read_energy(self, generate: Callable[[TextWorker], MadeTexts], card: Card | None) -> None:
        """Add the energy of a token of all texts, measured over one more text, if processor and GPU
        report it. card: the GPU, None on a CPU."""
        if self.entrant is None or not list(Joules(card).spent()):
            return
        with self.recorded():
            joules = Joules(card)
            made = generate(self.worker_of())
            spent = list(joules.spent())
            self.entrant.made.append(made)
            count = len(made.tokens[0])
            self._figures += [
                Quantity(name=one.name, unit="J", value=one.value / count) for one in spent
            ]

    def refute(self, reason: str) -> None:
        """Set the verdict ``differs``."""
        self._failure = "differs", reason

    def fail(self, failure: WorkerFailure) -> None:
        """Set the verdict ``failed``."""
        self._failure, self._log = ("failed", failure.message), failure.log

    @contextmanager
    def recorded(self) -> Iterator[None]:
        """Turn an error in the block into the level's verdict."""
        try:
            yield
        except Unsupported as error:
            self._failure = "unavailable", error.words
        except GolowError as error:
            self._failure = "failed", f"{error.message} {error.hint}".strip()
        except WorkerFailure as failure:
            self.fail(failure)
        except Exception as error:  # an error in the level's own code is a result too
            reason = f"{type(error).__name__}: {error}"
            self.fail(WorkerFailure("failed", reason, traceback.format_exc()))

    def record(self) -> TextRun:
        """The record of this level, as far as it was measured."""
        timed = self.timed if self.verdict == "match" else TextFigures()
        check = self.check and msgspec.structs.replace(self.check, tensors=())
        return TextRun(
            level=self.name,
            verdict=self.verdict,
            reason=self.reason,
            check=check,
            texts=self.free.tokens if self.free else (),
            departure=self.departure,
            replayed=self.replayed,
            worst=min(self.worst, 1e300),
            first_token=timed.first_token,
            token=timed.token,
            slow_token=timed.slow_token,
            ratio=timed.ratio,
            first_ratio=timed.first_ratio,
            figures=tuple(self._figures),
            blocks=timed.blocks,
            log=self._log,
        )
