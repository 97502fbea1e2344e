"""Progress of an audit: stages as in a comparison, with the time that is left."""

from __future__ import annotations

from golow.report.progress import ProgressDisplay
from golow.report.units import seconds_text


class AuditProgressDisplay(ProgressDisplay):
    """An observer of an audit."""

    def left(self, seconds: float) -> None:
        """Say how long the rest takes, above what comes next."""
        self._finish_stage()
        self._finish_race()
        rounded = 60 * round(seconds / 60) if seconds >= 120 else round(seconds)
        self._console.print(f"about {seconds_text(max(1, rounded))} left", highlight=False)
