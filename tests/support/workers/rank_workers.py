"""The workers of all ranks of one level, which get every request together."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

from golow.worker.ranks import Place
from golow.workload.bundle import Bundle
from support.workers.conversation import Conversation, Subject

Answer = TypeVar("Answer")


class RankWorkers:
    """Conversations with the workers, by rank."""

    def __init__(self, workers: list[Conversation], pool: ThreadPoolExecutor) -> None:
        self.workers, self._pool = workers, pool

    def together(self, request: Callable[[Conversation], Answer]) -> list[Answer]:
        """Make a request of all at once; return their answers."""
        return list(self._pool.map(request, self.workers))

    def ask(self, **request: Any) -> list[dict[str, Any]]:
        """The answers to one request."""
        return self.together(lambda worker: worker.ask(**request))


@contextmanager
def rank_workers(subject: Subject) -> Iterator[RankWorkers]:
    """Start a worker for each rank of the subject's bundle."""
    bundle, ranks = subject.bundle, subject.bundle.workload.ranks
    with ExitStack() as stack:
        place = stack.enter_context(tempfile.TemporaryDirectory(prefix="golow-meeting-"))
        pool = stack.enter_context(ThreadPoolExecutor(ranks))
        workers = []
        for rank in range(ranks):
            own = Place(rank, ranks, Path(place)).variables()
            environment = {**subject.environment, **own}
            of_rank: Bundle = bundle.of_rank(rank)
            one = Subject(subject.command, environment, of_rank)
            workers.append(stack.enter_context(Conversation(one)))
        yield RankWorkers(workers, pool)
