"""Counters of energy: of the GPU by NVML, and of the processor's packages by RAPL.

RAPL's files are readable for root only on most systems since 2020 (CVE-2020-8694), and missing in
most virtual machines. The whole GPU and the whole package count, whichever process uses them.
https://docs.kernel.org/power/powercap/powercap.html
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from golow.measure.gpu.nvml import Card
from golow.records.comparison import Quantity

POWERCAP = Path("/sys/class/powercap")


class Joules:
    """Energy spent since this object was constructed. card: the GPU, None on a CPU."""

    def __init__(self, card: Card | None, powercap: Path = POWERCAP) -> None:
        self._card = card
        self._zones = [zone for zone in sorted(powercap.glob("intel-rapl:*")) if _is_package(zone)]
        self._gpu = card.energy_joules() if card else None
        self._packages = [_number(zone / "energy_uj") for zone in self._zones]

    def spent(self) -> Iterator[Quantity]:
        """``gpu_energy`` and ``package_energy`` in joules, as far as they can be read."""
        now = self._card.energy_joules() if self._card else None
        if now is not None and self._gpu is not None:
            yield Quantity(name="gpu_energy", unit="J", value=now - self._gpu)
        used = [
            _since(zone, before) for zone, before in zip(self._zones, self._packages, strict=True)
        ]
        known = [joules for joules in used if joules is not None]
        if known and len(known) == len(used):
            yield Quantity(name="package_energy", unit="J", value=sum(known))


def _is_package(zone: Path) -> bool:
    """True if it is a processor's package; its cores and memory are separate zones in it."""
    try:
        return (zone / "name").read_text().startswith("package")
    except OSError:
        return False


def _since(zone: Path, before: int | None) -> float | None:
    """Joules since a reading; the counter starts again from 0 when it is full."""
    now, full = _number(zone / "energy_uj"), _number(zone / "max_energy_range_uj")
    if before is None or now is None or full is None:
        return None
    return ((now - before) % (full + 1) if full else now - before) / 1e6


def _number(file: Path) -> int | None:
    try:
        return int(file.read_text())
    except (OSError, ValueError):
        return None
