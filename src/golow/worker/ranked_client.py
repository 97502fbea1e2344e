"""The parent's side of a level with several ranks: one process each, which behave as one worker."""

from __future__ import annotations

import os
import selectors
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

import msgspec
from safetensors.numpy import load_file, save_file

from golow.records.comparison import Sample
from golow.records.errors import Unsupported, WorkerFailure
from golow.records.workload import Mode
from golow.storage.scratch import scratch_folder
from golow.worker import cores, process
from golow.worker.awaited_answer import AwaitedAnswer
from golow.worker.client import Worker
from golow.worker.conversation import Conversation
from golow.worker.protocol import Challenge, LoadReport, line
from golow.worker.ranks import Place, join_files, joined, of_rank, rank_file
from golow.worker.scheduling import ContentionMeter, busy_ns
from golow.worker.time_limits import Limits

GRACE_SECONDS = 5.0
"""Seconds that the other ranks get after one rank's refusal: they may wait for it in a collective
operation forever, and one of them may have died, which is then the reason."""


class RankedWorker(Worker):
    """A level with several ranks. Every request goes to all of them, and their answers are
    combined: the slowest rank's time, the mean of the losses, the memory of all. This conversation
    is rank 0's; the others begin and end with it. If a rank dies, hangs or refuses, all of them
    end.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        ranks: int,
        threads: int,
        environment: Mapping[str, str] | None = None,
        limits: Limits | None = None,
        choices: Mapping[str, tuple[str, str]] | None = None,
    ) -> None:
        self._others: list[Conversation] = []
        self._has_trained, self._has_digests = False, True
        self._stack = ExitStack()
        self._folder = self._stack.enter_context(scratch_folder())
        meeting = self._folder / "meeting"
        meeting.mkdir(mode=0o700)
        self.cores = own_cores(ranks, threads)

        def own(rank: int) -> dict[str, str]:
            return {**(environment or {}), **Place(rank, ranks, meeting).variables()}

        try:
            super().__init__(
                name,
                command,
                threads=threads,
                affinity=self.cores[0],
                environment=own(0),
                limits=limits,
                choices=choices,
            )
            for rank in range(1, ranks):
                (self._folder / str(rank)).mkdir()
                other = Conversation(
                    name,
                    command,
                    threads=threads,
                    affinity=self.cores[rank],
                    environment=own(rank),
                    limits=limits,
                )
                self._others.append(other)
        except BaseException:
            if hasattr(self, "lines"):
                self.close()
            self._stack.close()
            raise
        self.meter = _MeterOfRanks(self.pids)

    # ------------------------------------------------------------ as one process

    def wake(self, mode: Mode) -> None:
        super().wake(mode)
        for other in self._others:
            with suppress(OSError):  # it has died: `load` reports how
                other.lines.write(line({"do": "wake", "mode": mode}))
            other.waiting = True

    def load(self, bundle: Path) -> LoadReport:
        self._has_trained = False
        return super().load(bundle)

    def time(
        self,
        iterations: int,
        warmup: int,
        cold: bool = False,
        challenge: Challenge | None = None,
        within: float | None = None,
    ) -> Sample:
        """As for one worker. Before the ranks return to the bundle's weights, the steps so far must
        have left the same parameters in all of them: ranks that diverge in one step stay
        different."""
        if challenge is not None and challenge.reset and self._has_trained:
            self._require_same_parameters()
        self._has_trained = True
        return super().time(iterations, warmup, cold, challenge, within)

    def outputs(self, batches: Sequence[int], learning_rate: float, file: Path) -> None:
        super().outputs(batches, learning_rate, file)
        self._join(file)

    def result(self, file: Path) -> None:
        super().result(file)
        self._join(file)

    def profile(self, iterations: int, file: Path) -> None:
        """As for one worker; the traces of the other ranks are beside that of rank 0
        (`rank_file`)."""
        super().profile(iterations, file)
        for rank in range(1, len(self._members)):
            shutil.move(self._file(rank, file), rank_file(file, rank))

    def save(self, file: Path) -> None:
        """As for one worker, with each rank's own running statistics in the file."""
        super().save(file)
        self._join(file)

    def restore(self, file: Path) -> None:
        """As for one worker; each rank gets its own running statistics if the file has them."""
        state = load_file(file)
        own = {rank: self._file(rank, file) for rank in range(1, len(self._members))}
        try:
            for rank, part in own.items():
                save_file(of_rank(state, rank), part)
            super().restore(file)
        finally:
            for part in own.values():
                part.unlink(missing_ok=True)

    @property
    def pids(self) -> list[int]:
        return [member.pid for member in self._members]

    def resident_bytes(self) -> dict[str, int]:
        """Process ids of all ranks; empty if one has ended."""
        found = [process.resident_bytes(pid) for pid in self.pids]
        names = set.intersection(*map(set, found))
        return {name: sum(each[name] for each in found) for name in names}

    def has_answered(self, seconds: float) -> bool:
        end = time.monotonic() + seconds
        others = (o.has_answered(max(0.0, end - time.monotonic())) for o in self._others)
        return super().has_answered(seconds) and all(others)

    def dismiss(self) -> None:
        for member in self._others:
            member.dismiss()
        super().dismiss()

    def close(self) -> None:
        try:
            self.dismiss()
            super().close()
        finally:
            for other in self._others:
                other.close()
            self._stack.close()

    # ------------------------------------------------------------ requests and answers

    def send(self, request: dict[str, Any]) -> None:
        for rank, other in enumerate(self._others, 1):
            with self._blamed(rank):
                other.send(self._of_rank(rank, request))
        with self._blamed(0):
            super().send(self._of_rank(0, request))

    def read(
        self,
        what: str,
        limit: float,
        *,
        gives_way: bool = False,
        expected: float | None = None,
        within: float | None = None,
    ) -> dict[str, Any]:
        """The answer of all ranks. gives_way: not possible, since ranks share no GPU with other
        comparisons."""
        awaited = [AwaitedAnswer(m, what, limit, expected, within) for m in self._members]
        while waiting := self._unanswered():
            if self._refuses():
                self._hear_out(waiting)
                break
            with self._blamed(*waiting):
                lefts = [awaited[rank].seconds_to_next_look() for rank in waiting]
            self._listen(waiting, min(lefts))
        answers = {r: m.take(what) for r, m in enumerate(self._members) if m.lines.is_whole}
        refused = [rank for rank, answer in answers.items() if answer.get("ok") is not True]
        if not refused:
            return joined(list(answers.values()))
        if len(refused) < len(self._members):
            self._refused_by(refused[0], answers[refused[0]])
        return answers[0]

    # ------------------------------------------------------------ implementation

    @property
    def _members(self) -> list[Conversation]:
        """All conversations, by rank."""
        return [self, *self._others]

    def _unanswered(self) -> list[int]:
        return [rank for rank, m in enumerate(self._members) if not m.lines.is_whole]

    def _refuses(self) -> bool:
        """True if a rank's answer is a refusal, or no answer at all."""
        return any(_is_refusal(m.lines.unread) for m in self._members if m.lines.is_whole)

    def _refused_by(self, rank: int, answer: dict[str, Any]) -> NoReturn:
        """End all ranks: the others may wait for this one forever."""
        message = str(answer.get("message", "it gave no reason"))
        if answer.get("error") == "unsupported":
            self._kill()
            raise Unsupported(self.name, f"rank {rank}: {message}")
        kind = "out of memory" if answer.get("error") == "out_of_memory" else "failed"
        try:
            raise self._members[rank].fail(kind, message)
        except WorkerFailure as failure:
            self._blame([rank], failure)

    def _hear_out(self, waiting: Sequence[int]) -> None:
        end = time.monotonic() + GRACE_SECONDS
        while waiting and (left := end - time.monotonic()) > 0:
            self._listen(waiting, left)
            waiting = self._unanswered()

    def _listen(self, waiting: Sequence[int], seconds: float) -> None:
        """Wait that long, in the kernel, for output of any of these ranks. Raises `WorkerFailure`
        if one of them has ended."""
        with selectors.DefaultSelector() as selector:
            for rank in waiting:
                selector.register(self._members[rank].lines, selectors.EVENT_READ, rank)
            ready = [key.data for key, _ in selector.select(seconds)]
        for rank in ready:
            with self._blamed(rank):
                self._members[rank].has_come(0)

    @contextmanager
    def _blamed(self, *ranks: int) -> Iterator[None]:
        """Name the ranks in their failure, and end the others with them."""
        try:
            yield
        except WorkerFailure as failure:
            self._blame(ranks, failure)

    def _blame(self, ranks: Sequence[int], failure: WorkerFailure) -> NoReturn:
        who = f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}"
        self._end_all(failure.kind, f"{who}: {failure.message}", failure.log)

    def _end_all(self, kind: str, message: str, log: str) -> NoReturn:
        self._kill()
        raise WorkerFailure(kind, message, log)

    def _kill(self) -> None:
        super()._kill()
        for other in self._others:
            other._kill()

    def _of_rank(self, rank: int, request: dict[str, Any]) -> dict[str, Any]:
        """The request with the rank's own bundle, file, checksum and marks."""
        own = dict(request)
        if "bundle" in own and rank:
            own["bundle"] = str(Path(own["bundle"]) / "ranks" / str(rank))
        if "file" in own:
            own["file"] = str(self._file(rank, Path(own["file"])))
        if isinstance(own.get("checksum"), Sequence):
            own["checksum"] = own["checksum"][rank]
        if (own.get("challenge") or {}).get("marks"):
            marks = own["challenge"]["marks"]
            own["challenge"] = {
                **own["challenge"],
                "marks": {**marks, "seed": (marks["seed"] + rank) % 2**32},
            }
        return own

    def _file(self, rank: int, file: Path) -> Path:
        """Return the rank's counterpart of rank 0's file."""
        return file if rank == 0 else self._folder / str(rank) / file.name

    def _join(self, file: Path) -> None:
        """Add the other ranks' tensors to the file; fail if ranks that must agree do not."""
        files = [self._file(rank, file) for rank in range(len(self._members))]
        try:
            for rank, member in enumerate(self._members):
                with self._blamed(rank):
                    member.require_written(files[rank])
            different = join_files(files)
        finally:
            for own in files[1:]:
                own.unlink(missing_ok=True)
        if different:
            self._end_all("differs", f"{different}, which their updates must keep equal", "")

    def _require_same_parameters(self) -> None:
        if not self._has_digests:
            return
        answer = self.answer({"do": "digest"}, self.limits.memory)
        if answer.get("error") in ("unsupported", "unknown_request"):
            self._has_digests = False
            return
        first, *others = self.require_success(answer)["digests"]
        for rank, digest in enumerate(others, 1):
            if digest != first:
                words = f"after timed steps, ranks 0 and {rank} do not hold the same parameters"
                self._end_all("differs", words, "")

    def _busy(self) -> int | None:
        found = [busy_ns(pid, self._counts_children) for pid in self.pids]
        known = [nanoseconds for nanoseconds in found if nanoseconds is not None]
        return sum(known) if len(known) == len(found) else None


class _MeterOfRanks(ContentionMeter):
    """The run-queue wait of all ranks: if one waits, all wait."""

    def __init__(self, pids: Sequence[int]) -> None:
        super().__init__(pids[0])
        self._each = [ContentionMeter(pid) for pid in pids]

    def read(self) -> int | None:
        waits = [wait for meter in self._each if (wait := meter.read()) is not None]
        return sum(waits) if len(waits) == len(self._each) else None


def own_cores(ranks: int, threads: int) -> list[tuple[int, ...]]:
    """The hardware threads to which each rank is pinned: its share of this process's; none if a
    share has fewer than the rank's threads."""
    shares = cores.shares(sorted(os.sched_getaffinity(0)), ranks)
    return shares if all(len(share) >= threads for share in shares) else [()] * ranks


def _is_refusal(unread: bytes) -> bool:
    try:
        answer = msgspec.json.decode(unread.partition(b"\n")[0], type=dict[str, Any])
    except msgspec.DecodeError:
        return True
    return answer.get("ok") is not True
