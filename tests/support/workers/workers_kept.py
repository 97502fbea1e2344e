"""What the tests of several kinds of workers do with the conformance suite."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from support.workers.conformance_timing import threads_at_work
from support.workers.conversation import Conversation, Subject


@contextmanager
def kept_loaded(subject: Subject) -> Iterator[Callable[[], Conversation]]:
    """One process for many checks, and another once that has ended."""
    conversations: list[Conversation] = []

    def conversation() -> Conversation:
        if not conversations or conversations[-1].process.poll() is not None:
            conversations.append(Conversation(subject))
            conversations[-1].load()
        return conversations[-1]

    try:
        yield conversation
    finally:
        for ended in conversations:
            ended.__exit__(None, None, None)


def require_threads(subject: Subject, threads: int, iterations: int) -> None:
    """Not the setting is looked at but the threads that got a core.

    Where another program has the second core meanwhile, the first thread may do all the work: then
    it is looked at again, for a while.
    """
    with Conversation(subject) as worker:
        worker.load()
        worker.time(30, 10)
        for _ in range(20):
            used = threads_at_work(worker, iterations=iterations)
            if used is None or used >= threads:
                break
    if used is None:
        pytest.skip("this system does not tell how long a thread ran")
    assert used == threads
