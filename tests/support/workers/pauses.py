"""golow's pauses after each block, which the tests leave out."""

from __future__ import annotations

from golow.worker import client, text_client


def leave_out_pauses() -> None:
    """Let no block in this process wait for a worker's threads, which spin for some milliseconds:
    the workers of the tests have one thread, with few exceptions."""
    client.SETTLE_SECONDS = text_client.SETTLE_SECONDS = 0.0
