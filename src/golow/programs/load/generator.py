"""LoadGen in its own process: one run against a level's process, over its socket.

``python -m golow.programs.load.generator`` takes one line of JSON, `GeneratorRequest`, and answers
with `GeneratorReport`. LoadGen writes its logs into a folder, which golow reads (`loadgen_logs`). A
level that no longer answers would keep LoadGen waiting forever: this process then reports the
answers so far, and ends.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, Literal, NoReturn

import msgspec

from golow.programs.load.coming_texts import TOKEN, ComingTexts
from golow.programs.load.load_record import Scenario
from golow.programs.load.wire import PIECE, Answers, Asked, requests, short_path
from golow.records.record import Record
from golow.worker.protocol import line
from golow.worker.refusals import refused
from golow.worker.serve import end_with_parent
from golow.workload.import_path import module_command

COMMAND = module_command(__spec__.name if __spec__ else __name__)
NAMES: dict[Scenario, str] = {
    "single-stream": "SingleStream",
    "multi-stream": "MultiStream",
    "server": "Server",
    "offline": "Offline",
}
Ending = Literal["complete", "silent", "died", "late"]


class GeneratorRequest(Record, frozen=True, kw_only=True):
    """A run of LoadGen.

    folder: for its logs. accuracy: every sample once, with all answers in the log; else `checked`
    answers are. rate: requests per second of the server scenario, and expected samples per second
    of the others. most_waiting: requests without an answer, beyond which the run ends. seconds,
    least: the shortest run, and the fewest requests. longest: seconds after which no more requests
    begin. patience: seconds without any answer after which a run is abandoned; drain: seconds to
    wait for answers after the last request. texts: whether answers are texts, token by token; ttft,
    tpot: their limits in seconds.
    """

    socket: str
    folder: str
    scenario: Scenario
    accuracy: bool = False
    samples: int
    rate: float
    latency: float
    percentile: float
    streams: int = 8
    seconds: float
    least: int = 1
    longest: float
    most_waiting: int = 0
    checked: int = 0
    seed: int = 0
    patience: float = 10.0
    drain: float = 30.0
    texts: bool = False
    ttft: float = 0.0
    tpot: float = 0.0


class GeneratorReport(Record, frozen=True, kw_only=True):
    """How a run ended: with all answers; after no answer for too long; when the level's process
    ended; or with too many answers still to come. answered, waiting: requests."""

    ending: Ending = "complete"
    answered: int = 0
    waiting: int = 0
    seconds: float = 0.0


End = Callable[[GeneratorReport], NoReturn]


class Exchange:
    """Passes LoadGen's requests to the level, and its answers back."""

    def __init__(self, asked: GeneratorRequest, loadgen: Any, end: End) -> None:
        self._asked, self._loadgen, self._end = asked, loadgen, end
        self._connection = socket.socket(socket.AF_UNIX)
        with short_path(asked.socket) as path:
            self._connection.connect(path)
        self._identities: dict[int, int] = {}  # of requests without an answer, by number
        self._number = self.answered = 0
        self._lock = threading.Lock()
        self._texts = ComingTexts() if asked.texts else None
        self.began = time.monotonic()

    def issue(self, identities: list[int], indices: list[int]) -> None:
        """Send requests for samples of these indices; LoadGen calls this."""
        asked = []
        with self._lock:
            for identity, index in zip(identities, indices, strict=True):
                self._identities[self._number] = identity
                asked.append(Asked(self._number, index))
                self._number += 1
        try:
            self._connection.sendall(requests(asked))
        except OSError:
            self._end(self.report("died"))

    def receive(self) -> None:
        """Receive answers until LoadGen has all; never returns, because the process ends with the
        run."""
        answers, heard = Answers(), time.monotonic()
        while True:
            ready = select.select([self._connection], [], [], self._asked.patience / 10)[0]
            now = time.monotonic()
            if ready:
                data = self._received()
                if not data:
                    self._end(self.report("died"))
                heard = now
                self._complete(list(answers.add(data)))
            elif not self._identities:
                heard = now
            elif now - heard > self._asked.patience:
                self._end(self.report("silent"))
            if now - self.began > self._asked.longest + self._asked.drain:
                self._end(self.report("late"))

    def _received(self) -> bytes:
        """Bytes of answers; none if the level's process is gone. One that ends with requests unread
        resets the connection."""
        try:
            return self._connection.recv(PIECE)
        except ConnectionError:
            return b""

    def _complete(self, found: list[tuple[int, bytes]]) -> None:
        """Pass answers to LoadGen, and first tokens of texts as soon as they arrive."""
        response = self._loadgen.QuerySampleResponse
        first: list[tuple[int, bytes]] = []
        if self._texts is not None:
            first, found = self._texts.add(found)
        with self._lock:
            begun = [
                response(self._identities[number], *_place(token))
                for number, token in first
                if number in self._identities
            ]
            done = [
                response(self._identities.pop(number), *_place(content), *self._tokens(content))
                for number, content in found
                if number in self._identities
            ]
            self.answered += len(done)
        if begun:
            self._loadgen.FirstTokenComplete(begun)
        if done:
            self._loadgen.QuerySamplesComplete(done)

    def _tokens(self, content: bytes) -> tuple[int, ...]:
        """How many tokens an answer has; nothing if it is not a text."""
        return () if self._texts is None else (len(content) // TOKEN.size,)

    def report(self, ending: Ending) -> GeneratorReport:
        """The run so far."""
        return GeneratorReport(
            ending=ending,
            answered=self.answered,
            waiting=len(self._identities),
            seconds=time.monotonic() - self.began,
        )


def _place(content: bytes) -> tuple[int, int]:
    """Where the bytes are, for as long as they are held, and how many."""
    return ctypes.cast(ctypes.c_char_p(content), ctypes.c_void_p).value or 0, len(content)


def settings_of(asked: GeneratorRequest, loadgen: Any) -> Any:
    """LoadGen's settings."""
    found = loadgen.TestSettings()
    found.scenario = getattr(loadgen.TestScenario, NAMES[asked.scenario])
    modes = loadgen.TestMode
    found.mode = modes.AccuracyOnly if asked.accuracy else modes.PerformanceOnly
    latency = int(asked.latency * 1e9)
    found.server_target_qps = found.offline_expected_qps = asked.rate
    found.server_target_latency_ns = latency
    found.server_target_latency_percentile = asked.percentile
    found.server_max_async_queries = asked.most_waiting
    found.single_stream_expected_latency_ns = int(1e9 / asked.rate)
    found.single_stream_target_latency_percentile = asked.percentile
    found.multi_stream_expected_latency_ns = int(1e9 / asked.rate)
    found.multi_stream_target_latency_percentile = asked.percentile
    found.multi_stream_samples_per_query = asked.streams
    found.min_duration_ms = int(asked.seconds * 1e3)
    found.max_duration_ms = int(asked.longest * 1e3)
    found.min_query_count = asked.least
    found.accuracy_log_sampling_target = 0 if asked.accuracy else asked.checked
    found.qsl_rng_seed = found.sample_index_rng_seed = found.schedule_rng_seed = asked.seed
    found.accuracy_log_rng_seed = asked.seed
    found.use_token_latencies = asked.texts
    found.ttft_latency, found.tpot_latency = int(asked.ttft * 1e9), int(asked.tpot * 1e9)
    return found


def run(asked: GeneratorRequest, end: End) -> GeneratorReport:
    """Run LoadGen; its logs are in the folder then. end: reports a run that cannot be completed,
    and ends the process."""
    import mlperf_loadgen as loadgen

    exchange = Exchange(asked, loadgen, end)
    threading.Thread(target=exchange.receive, daemon=True).start()
    logs = loadgen.LogSettings()
    logs.log_output.outdir = asked.folder
    logs.enable_trace = True  # each request's latency
    system = loadgen.ConstructFastSUT(exchange.issue, _nothing)
    library = loadgen.ConstructQSL(asked.samples, asked.samples, _ignore, _ignore)
    loadgen.StartTestWithLogSettings(system, library, settings_of(asked, loadgen), logs, "")
    loadgen.DestroyQSL(library)
    loadgen.DestroyFastSUT(system)
    return exchange.report("complete")


def _nothing() -> None:
    """All requests are sent when they are issued."""


def _ignore(samples: list[int]) -> None:
    """The level's process holds all samples from the start."""


def main() -> None:
    """Run once, report, and end."""
    end_with_parent()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)

    def tell(answer: dict[str, Any]) -> None:
        answers.write(line(answer))
        answers.flush()

    def end(found: GeneratorReport) -> NoReturn:
        tell({"ok": True, **msgspec.to_builtins(found)})
        os._exit(0)  # LoadGen's threads may wait for answers forever

    asked = msgspec.json.decode(sys.stdin.buffer.readline(), type=GeneratorRequest)
    try:
        end(run(asked, end))
    except Exception as error:
        tell(refused(error))


if __name__ == "__main__":
    main()
