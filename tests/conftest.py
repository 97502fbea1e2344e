"""Tests run side by side: in each of their processes PyTorch computes on one thread. Several would
wait for cores that the other tests use, spinning. The window that tests of pages share is here."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from browser import Browser, browser

torch.set_num_threads(1)


@pytest.fixture(scope="module")
def window() -> Iterator[Browser]:
    """A window of an installed browser."""
    with browser() as one:
        yield one
