"""The graphs that AOTAutograd creates from one of Dynamo's, and the fallback if all are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from golow.compiled.dynamo.backend_report import GraphRun

LAST = ("inference", "backward")  # with one of them AOTAutograd has made all


class Parts:
    """The graphs of one inference, or those of a forward and a backward pass."""

    def __init__(self) -> None:
        self._refused: dict[str, Callable[[], bool]] = {}
        self._records: list[GraphRun] = []

    def add(self, kind: str, record: GraphRun, is_refused: Callable[[], bool]) -> None:
        """Add a graph. is_refused: whether it was called and has no plan."""
        self._refused[kind] = is_refused
        self._records.append(record)

    def unless_refused(
        self, compiled: Callable[..., Any], recorded: Callable[..., Any]
    ) -> Callable[..., Any]:
        """Callable that runs the compiled graphs until all of them are refused, and from then on
        the graph as Dynamo recorded it: with the operations of eager, some of which AOTAutograd
        unfolds, such as cuDNN's batch norm and fused attention."""

        def run(*given: Any) -> Any:
            if not self._all_refused():
                return compiled(*given)
            self._records[0].by_torch += 1
            return recorded(*given)

        return run

    def _all_refused(self) -> bool:
        whole = any(kind in self._refused for kind in LAST)
        return whole and all(is_refused() for is_refused in list(self._refused.values()))
