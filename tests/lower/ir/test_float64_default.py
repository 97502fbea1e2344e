"""The default type of the process, switched in several threads at once."""

from __future__ import annotations

from threading import Event, Thread

import torch

from golow.lower.ir.float64_default import float64_by_default


def test_blocks_that_overlap_leave_the_default_type_as_it_was() -> None:
    """The second thread comes to its block while the first one is in its own, and leaves it last.
    If it entered meanwhile, it would find float64 and put that back."""
    inside, entered, left = Event(), Event(), Event()
    seen: list[torch.dtype] = []

    def first() -> None:
        with float64_by_default():
            inside.set()
            entered.wait(0.5)
            seen.append(torch.tensor(1.0).dtype)
        left.set()

    def second() -> None:
        inside.wait(5)
        with float64_by_default():
            entered.set()
            left.wait(5)
            seen.append(torch.tensor(1.0).dtype)

    threads = [Thread(target=run) for run in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    try:
        assert seen == [torch.float64, torch.float64]
        assert torch.get_default_dtype() == torch.float32
    finally:
        torch.set_default_dtype(torch.float32)
