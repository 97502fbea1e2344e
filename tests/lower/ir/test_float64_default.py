"""The default type of the process, switched in several threads at once."""

from __future__ import annotations

import threading

import torch

from golow.lower.ir.float64_default import float64_by_default


def test_blocks_that_overlap_leave_the_default_type_as_it_was() -> None:
    """The second thread begins while the first one is in its block, and ends after it."""
    inside, asked = threading.Event(), threading.Event()
    seen: list[torch.dtype] = []

    def first() -> None:
        with float64_by_default():
            inside.set()
            asked.wait(5)
            seen.append(torch.tensor(1.0).dtype)

    def second() -> None:
        inside.wait(5)
        asked.set()
        with float64_by_default():
            seen.append(torch.tensor(1.0).dtype)

    threads = [threading.Thread(target=run) for run in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [torch.float64, torch.float64]
    assert torch.get_default_dtype() == torch.float32
