"""Check of texts under load: every token of every answer is replayed in float64, as in `golow
generate`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Self

from golow.levels.generation.table import BASELINE, REFERENCE, chosen
from golow.levels.level import python_worker
from golow.programs.generation.drawn_tokens import Drawn
from golow.programs.generation.error_limit import ErrorLimit
from golow.programs.generation.forced import ForcedTexts, TextStandard
from golow.programs.generation.replays import MadeTexts, Replays
from golow.programs.load.asked_texts import AskedTexts
from golow.programs.load.coming_texts import tokens_in
from golow.programs.load.missing_answers import missing
from golow.records.comparison import Check
from golow.records.errors import GolowError, WorkerFailure
from golow.worker.text_client import TextWorker
from golow.worker.time_limits import Limits
from golow.workload.generation.text_bundle import TextBundle


class TextProof:
    """Judges answers with a reference, whose process ends when the ``with`` block is left.

    Raises `GolowError` if the reference or the step module cannot run, because nothing can be
    proved then.
    """

    def __init__(self, bundle: TextBundle, asked: AskedTexts, folder: Path, limits: Limits) -> None:
        """folder: for temporary files during construction."""
        self._workload, self._asked = bundle.workload, asked
        self._reference = self._worker("reference", python_worker(REFERENCE, ""), limits)
        try:
            self._reference.load(bundle.folder)
            limit = self._error_limit(bundle, folder, limits)
        except WorkerFailure as failure:
            self._reference.__exit__()
            raise GolowError(
                f"the float64 reference failed, so nothing can be proved: {failure.message}",
                "generate shorter texts if memory is short.",
            ) from failure
        self._replays = Replays(self._reference, limit)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self._reference.__exit__()

    def judge(self, answers: Sequence[tuple[int, bytes]]) -> Check:
        """Judge answers, by the index of their sample: each must be present and correct."""
        return missing(answers, len(self._asked.prompts)) or self.judge_some(answers)

    def judge_some(self, answers: Sequence[tuple[int, bytes]]) -> Check:
        """Judge only these answers."""
        made = []
        for index, content in answers:
            tokens = tokens_in(content)
            if wrong := self._not_a_text(tokens):
                return Check(verdict="differs", reason=f"the answer to sample {index} {wrong}")
            made.append((index, MadeTexts([self._asked.prompts[index]], [], (tokens,))))
        self._learn([one for _, one in made])
        for index, one in made:
            if wrong := self._replays.refuted(one, "sample", index):
                return Check(verdict="differs", reason=wrong)
        return Check(verdict="match")

    # ------------------------------------------------------------ implementation

    def _worker(self, name: str, command: Sequence[str], limits: Limits) -> TextWorker:
        return TextWorker(name, command, threads=self._workload.threads, limits=limits)

    def _error_limit(self, bundle: TextBundle, folder: Path, limits: Limits) -> ErrorLimit:
        """Return the error of single logits that rounding explains, measured with the step module
        in the working precision on forced texts."""
        (level,) = chosen([], self._workload.device)
        forced = ForcedTexts(self._workload, Drawn(self._workload), folder)
        with self._worker(BASELINE, level.command, limits) as baseline:
            baseline.load(bundle.folder)
            plain = forced.outputs(baseline)
        return TextStandard(self._workload, forced, self._reference, plain).error_limit

    def _not_a_text(self, tokens: Sequence[int]) -> str:
        """Return why these are not tokens of the model; empty if they are."""
        if len(tokens) != self._asked.tokens:
            return f"has {len(tokens)} tokens, not {self._asked.tokens}"
        unknown = next((token for token in tokens if token >= self._workload.vocabulary), None)
        return "" if unknown is None else f"has the token {unknown}, which the model does not know"

    def _learn(self, made: Sequence[MadeTexts]) -> None:
        """Replay texts, grouped by the length of their prompts."""

        def length(one: MadeTexts) -> int:
            return len(one.prompt[0])

        try:
            for _, alike in groupby(sorted(made, key=length), key=length):
                self._replays.learn(alike)
        except WorkerFailure as failure:  # not the level's
            reason = f"the float64 reference: {failure.message}"
            raise WorkerFailure(failure.kind, reason, failure.log) from failure
