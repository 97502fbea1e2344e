"""The progress of a running study; the command line draws it."""

from __future__ import annotations

from typing import Protocol

from golow.programs.study.forecast import Outlook
from golow.programs.study.study_record import Cell, CellRecord


class StudyObserver(Protocol):
    """Receives the progress of a study."""

    def outlook(self, outlook: Outlook) -> None:
        """Receives the remaining work, before the first cell."""

    def waiting(self, device: str, holder: str) -> None:
        """Another study measures on the device."""

    def began(self, cell: Cell) -> None:
        """A cell is being measured."""

    def stage(self, cell: Cell, text: str) -> None:
        """A step of the cell begins."""

    def lost(self, cell: Cell, reason: str) -> None:
        """An attempt at the cell is lost for that reason; the cell is measured again."""

    def ended(self, record: CellRecord, outlook: Outlook) -> None:
        """A cell has its record. outlook: what remains to be done."""


class SilentStudy:
    """An observer that does nothing."""

    def outlook(self, outlook: Outlook) -> None:
        """Do nothing."""

    def waiting(self, device: str, holder: str) -> None:
        """Do nothing."""

    def began(self, cell: Cell) -> None:
        """Do nothing."""

    def stage(self, cell: Cell, text: str) -> None:
        """Do nothing."""

    def lost(self, cell: Cell, reason: str) -> None:
        """Do nothing."""

    def ended(self, record: CellRecord, outlook: Outlook) -> None:
        """Do nothing."""
