"""The NVIDIA GPUs that this process may use, as the driver reports them."""

from __future__ import annotations

import os
from itertools import takewhile
from typing import NamedTuple

from golow.measure.gpu.nvml import first_visible, start_nvml


class CardFacts(NamedTuple):
    """A GPU: its UUID (which ``CUDA_VISIBLE_DEVICES`` accepts), its name, its memory in bytes."""

    uuid: str
    name: str
    memory_bytes: int


def visible_cards() -> list[CardFacts]:
    """The GPUs that ``CUDA_VISIBLE_DEVICES`` allows, in its order; empty if there is none or they
    cannot be listed (no driver, or no package ``nvidia-ml-py``)."""
    nvml = start_nvml()
    if nvml is None:
        return []
    try:
        handles = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
        cards = [
            CardFacts(
                uuid=str(nvml.nvmlDeviceGetUUID(handle)),
                name=str(nvml.nvmlDeviceGetName(handle)),
                memory_bytes=int(nvml.nvmlDeviceGetMemoryInfo(handle).total),
            )
            for handle in handles
        ]
    except nvml.NVMLError:
        return []
    finally:
        nvml.nvmlShutdown()
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is None:
        return cards
    uuids = [card.uuid for card in cards]
    places = (first_visible(name, uuids) for name in named.split(","))
    known = takewhile(lambda place: place is not None, places)  # as CUDA reads the variable
    return [cards[place] for place in known if place is not None]
