"""The GPU is looked at in the background while something works on it."""

from __future__ import annotations

import time

import pytest
import torch

from golow.measure.gpu.nvml import Card, Reading
from golow.measure.gpu.sampling import LEAST_SECONDS, Sampling


class Told(Card):
    """A card whose answers are written down beforehand."""

    def __init__(self) -> None:
        super().__init__()
        self.joules = [1000.0, 1600.0]
        self.readings = 0

    def energy_joules(self) -> float | None:
        return self.joules.pop(0)

    def reading(self) -> Reading | None:
        self.readings += 1
        return Reading(1.0, 1980) if self.readings % 2 else Reading(0.5, 1980)


@pytest.mark.slow
def test_the_card_is_looked_at_while_the_block_lasts() -> None:
    card = Told()
    with Sampling(card) as sampling:
        time.sleep(LEAST_SECONDS)
    seen = card.readings
    found = {quantity.name: quantity for quantity in sampling.quantities()}
    assert 0.5 <= found["utilization"].value <= 1.0
    assert (found["clock"].value, found["clock"].unit) == (1980, "MHz")
    assert (found["energy"].value, found["energy"].unit) == (600.0, "J")
    assert found["power"].value > 0
    time.sleep(0.3)
    assert card.readings == seen  # not any more


def test_of_a_short_block_nothing_is_said() -> None:
    with Sampling(Told()) as sampling:
        time.sleep(0.25)
    assert list(sampling.quantities()) == []


def test_without_a_card_nothing_is_looked_at() -> None:
    with Sampling(None) as sampling:
        pass
    assert list(sampling.quantities()) == []


@pytest.mark.gpu
def test_a_real_card_tells() -> None:
    if not torch.cuda.is_available():
        pytest.skip("there is no GPU")
    a = torch.randn(4096, 4096, device="cuda")
    (a @ a).cpu()  # libraries load before the GPU is looked at
    with Card() as card, Sampling(card) as sampling:
        began = time.monotonic()
        while time.monotonic() - began < 2:
            a = (a @ a).clamp(-1, 1)
            torch.cuda.synchronize()
    found = {quantity.name: quantity.value for quantity in sampling.quantities()}
    assert found["utilization"] > 0.5
    assert found["energy"] > 0
