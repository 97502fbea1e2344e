"""How many examples of a property are tried: those that Hypothesis draws, and modes of networks.

`make test` and `make test-rest` draw a quarter of a test's examples, `make test-long` all, and
``pytest --hypothesis-profile deep`` twenty-five times as many, to look for what nobody has met yet.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings

# A training step has the operators of inference, and their gradients.
most_in_training = pytest.mark.parametrize(
    "mode", [pytest.param("infer", marks=pytest.mark.whole_network), "train"]
)

PERCENT = {"few": 25, "many": 100, "deep": 2500}


def examples(number: int, *, same: bool = False, **further: Any) -> settings:
    """Return the settings of a test that draws so many examples, or the profile's share of them.

    same: whether it draws the same ones each time, unless it looks deep. further: other settings.
    No example has a deadline: the first one may compile something.
    """
    percent = settings.default.max_examples
    return settings(
        max_examples=max(1, round(number * percent / 100)),
        deadline=None,
        derandomize=(same and percent <= PERCENT["many"]) or settings.default.derandomize,
        **further,
    )


def register_profiles() -> None:
    """Define the profiles, and begin with the fewest examples."""
    for name, percent in PERCENT.items():
        settings.register_profile(name, max_examples=percent)
    settings.load_profile("few")
