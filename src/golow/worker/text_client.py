"""The parent's side of the requests for texts."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

from golow.records.comparison import Sample
from golow.worker.awaited_answer import AwaitedAnswer
from golow.worker.client import PATIENCE, Worker
from golow.worker.conversation import SETTLE_SECONDS
from golow.worker.protocol import LoadReport
from golow.worker.text_program import Draws, Moved, ReplayReport, TextReport, Tokens


class GeneratedTexts(NamedTuple):
    """Tokens [batch][count], and a sample whose first time is that of the prompt up to the first
    token, and whose others are those of the later tokens."""

    tokens: tuple[tuple[int, ...], ...]
    sample: Sample


class TextWorker(Worker):
    """A worker that generates texts."""

    _seconds_of_text = 0.0  # of the last one; unknown before

    def begin_loading(self, bundle: Path) -> None:
        """Let it load the bundle's workload, without waiting for it."""
        self.requests += 1
        self.send({"do": "load", "bundle": str(bundle)})
        self._loading = AwaitedAnswer(self, "load", self.limits.load, None, None)

    def finish_loading(self) -> LoadReport:
        """Wait until it has loaded."""
        return self._loaded(self.awaited(self._loading))

    def text(self, prompt: Tokens, tokens: int, draws: Draws = ()) -> GeneratedTexts:
        """Generate that many tokens after each prompt, chosen by the draws if there are any."""
        request = {"do": "text", "prompt": prompt, "tokens": tokens, "draws": draws}
        limit, expected = self.limits.iteration, None
        if self._seconds_of_text:
            expected = self._seconds_of_text
            limit = max(self.limits.block, PATIENCE * expected)
        before, start = self.meter.read(), time.perf_counter_ns()
        answer = self.ask(request, limit, expected=expected)
        wall, after = time.perf_counter_ns() - start, self.meter.read()
        time.sleep(SETTLE_SECONDS)  # its threads spin for a few milliseconds
        report = self.convert(answer, TextReport)
        self._require_whole(report, prompt, tokens)
        self._seconds_of_text = wall / 1e9
        sample = Sample(
            host_ns=(report.prefill_ns, *report.token_ns),
            device_ns=(),
            wait_share=self.meter.wait_share(before, after, wall),
            wall_ns=wall,
        )
        return GeneratedTexts(report.tokens, sample)

    def force(self, tokens: Tokens, prompt: int, positions: Sequence[int], file: Path) -> None:
        """Give the model these tokens and write the logits after these positions to the file."""
        request = {
            "do": "force",
            "tokens": tokens,
            "prompt": prompt,
            "positions": list(positions),
            "file": str(file),
        }
        self.ask(request, self.limits.outputs)
        self.require_written(file)

    def replay(self, tokens: Tokens, prompt: int, draws: Draws) -> tuple[tuple[float, ...], ...]:
        """The least errors of the reference's logits that explain the tokens after the prompt,
        [texts][count]; infinite if nothing does."""
        request = {"do": "replay", "tokens": tokens, "prompt": prompt, "draws": draws}
        report = self.convert(self.ask(request, self.limits.load), ReplayReport)
        return tuple(
            tuple(float("inf") if error is None else error for error in text)
            for text in report.errors
        )

    def move(self, moved: Moved | None) -> None:
        """Let the reference be moved from now on."""
        self.ask({"do": "move", "moved": msgspec.to_builtins(moved)}, self.limits.load)

    def _require_whole(self, report: TextReport, prompt: Tokens, tokens: int) -> None:
        """Fail unless the answer has a time and a token for each that was requested."""
        times = (report.prefill_ns, *report.token_ns)
        lengths = {len(text) for text in report.tokens}
        if len(times) != tokens or lengths != {tokens} or len(report.tokens) != len(prompt):
            self.fail(
                "protocol",
                f"the request was for {tokens} tokens of {len(prompt)} texts; it gave "
                f"{len(times)} times, and {len(report.tokens)} texts of {sorted(lengths)} tokens",
            )
        if min(times) <= 0:
            self.fail("protocol", "a token has a time that is not positive")
