"""Numbers as text with their units, to as many digits as are useful."""

from __future__ import annotations

from golow.records.comparison import Quantity

MISSING = "-"
TOP = "(top)"  # the layer of what the model's own forward does, outside its children


def seconds_text(seconds: float | None) -> str:
    """Three digits with a fitting unit: ``41.2 ms``, ``2.10 s``, ``3.5 min``, ``4.2 h``."""
    if seconds is None:
        return MISSING
    if seconds >= 7200:
        return f"{seconds / 3600:.1f} h"
    if seconds >= 120:
        return f"{seconds / 60:.1f} min"
    for factor, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if seconds >= factor:
            return f"{_three_digits(seconds / factor)} {unit}"
    return f"{seconds * 1e9:.0f} ns"


def change_text(seconds: float) -> str:
    """Like `seconds_text` with a sign: ``+41.2 ms``, ``-3.10 us``; ``0`` for no change."""
    if not seconds:
        return "0"
    return f"{'+' if seconds > 0 else '-'}{seconds_text(abs(seconds))}"


def milliseconds_text(seconds: float) -> str:
    """Three digits in milliseconds without the unit, for a column: ``0.461``, ``12.3``."""
    number = seconds * 1e3
    if 0 < number < 0.001:
        return "<0.001"
    if number < 1:
        return f"{number:.3f}"
    return _three_digits(number)


def interval_text(quantity: Quantity) -> str:
    """Low and high end in the unit of the value: ``40.9-41.6``."""
    if quantity.low is None or quantity.high is None:
        return "no interval"
    for factor in (1.0, 1e-3, 1e-6):
        if quantity.value >= factor:
            return f"{_three_digits(quantity.low / factor)}-{_three_digits(quantity.high / factor)}"
    return f"{quantity.low * 1e9:.0f}-{quantity.high * 1e9:.0f}"


def bytes_text(size: float | None) -> str:
    """Three digits with a binary unit: ``531 MiB``."""
    if size is None:
        return MISSING
    for factor, unit in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if size >= factor:
            return f"{_three_digits(size / factor)} {unit}"
    return f"{size:.0f} B"


def bytes_change_text(size: float | None) -> str:
    """Like `bytes_text` with a sign: ``+12.0 MiB``, ``-531 KiB``; ``0`` for no change."""
    if not size:
        return MISSING if size is None else "0"
    return f"{'+' if size > 0 else '-'}{bytes_text(abs(size))}"


def decimal_text(number: float | None, unit: str) -> str:
    """Three digits with a decimal prefix: ``1.23 TFLOP/s``, ``30.5 GB/s``."""
    if number is None:
        return MISSING
    for factor, prefix in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= factor:
            return f"{_three_digits(number / factor)} {prefix}{unit}"
    return f"{_three_digits(number)} {unit}"


def rate_text(rate: float) -> str:
    """A number of things per second: ``3,120``, ``41.2``, ``1.20 M``."""
    if rate >= 1e6:
        return f"{_three_digits(rate / 1e6)} M"
    return f"{rate:,.0f}" if rate >= 1000 else _three_digits(rate)


def joules_text(joules: float | None) -> str:
    """Three digits with a fitting unit: ``12.3 J``, ``41.0 mJ``, ``8.20 uJ``."""
    if joules is None:
        return MISSING
    for factor, unit in ((1.0, "J"), (1e-3, "mJ")):
        if joules >= factor:
            return f"{_three_digits(joules / factor)} {unit}"
    return f"{_three_digits(joules / 1e-6)} uJ"


def watts_text(watts: float | None) -> str:
    """Whole watts: ``431 W``."""
    return MISSING if watts is None else f"{watts:.0f} W"


def share_text(share: float | None) -> str:
    """A share in whole percent: ``93%``; a positive share that rounds to 0 is ``<1%``."""
    if share is None:
        return MISSING
    return "<1%" if 0 < share < 0.005 else f"{share:.0%}"


def ratio_text(ratio: float) -> str:
    """Three decimals: ``0.912``; ``2.0e+09`` for what they cannot tell."""
    return f"{ratio:.3f}" if 0.001 <= ratio < 1000 else f"{ratio:.1e}"


def count_text(count: float) -> str:
    """A count of iterations: ``12``, ``3,400``, ``1.2 M``."""
    if count >= 1e6:
        return f"{count / 1e6:.1f} M"
    digits = 10 ** max(0, len(f"{count:.0f}") - 2)
    return f"{round(count / digits) * digits:,}"


def batch_text(batch: int, ranks: int) -> str:
    """Samples of a step: ``batch 32``, or ``2 ranks, batch 16 per rank, 32 in total``."""
    if ranks == 1:
        return f"batch {batch}"
    return f"{ranks} ranks, batch {batch} per rank, {ranks * batch} in total"


def _three_digits(number: float) -> str:
    return (
        f"{number:.0f}" if number >= 100 else f"{number:.1f}" if number >= 10 else f"{number:.2f}"
    )
