"""Report on each graph that the backend received: the record, and its table. Imports no torch, so
that a program can read it before it compiles anything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

WIDTHS = (20, 10, 6, 8, 8)
HEADER = ("graph", "operations", "plans", "by plan", "by torch")
FIRST_CALLS = "only to compare the first call of each plan"


@dataclass
class GraphRun:
    """One graph. name: its number and kind: ``inference``, ``forward`` or ``backward`` of
    AOTAutograd, ``whole`` for a graph of Dynamo that was left unchanged. operations: number of
    operations in its fx graph. plans: number of plans built. by_plan, by_torch: calls; those of a
    ``whole`` graph are not counted, nor those of a backward pass once PyTorch also runs the forward
    pass. reasons: why there is no plan, or why a call did not use it, each with its count."""

    name: str
    operations: int
    plans: int = 0
    by_plan: int = 0
    by_torch: int = 0
    reasons: Counter[str] = field(default_factory=Counter)

    def note(self, reason: str) -> None:
        """Count a reason."""
        self.reasons[reason] += 1


@dataclass(frozen=True, repr=False)
class BackendReport:
    """Result of `golow.backend_report`. graphs: in the order in which torch passed them."""

    graphs: Sequence[GraphRun]

    @property
    def reasons(self) -> Counter[str]:
        """Reasons why graphs ran in PyTorch, with the number of graphs."""
        return Counter(reason for graph in self.graphs for reason in graph.reasons)

    def __repr__(self) -> str:
        return str(self)

    def __str__(self) -> str:
        if not self.graphs:
            return 'no graph yet: torch.compile(model, backend="golow") builds them when it runs'
        lines = ["  ".join([_row(HEADER), "why in torch"])]
        for graph in self.graphs:
            numbers = (graph.operations, graph.plans, graph.by_plan, graph.by_torch)
            counted = [f"{why} ({n})" if n > 1 else why for why, n in graph.reasons.items()]
            why = "; ".join(counted) or (FIRST_CALLS if graph.by_torch else "")
            lines.append("  ".join([_row((graph.name, *numbers)), why]).rstrip())
        planned = sum(graph.plans > 0 for graph in self.graphs)
        lines.append(f"{planned} of {len(self.graphs)} graphs have plans")
        return "\n".join(lines)


def _row(items: Sequence[object]) -> str:
    first, *rest = zip(items, WIDTHS, strict=True)
    cells = [f"{first[0]:<{first[1]}}", *(f"{item:>{width}}" for item, width in rest)]
    return " ".join(cells)


_graphs: list[GraphRun] = []


def opened(kind: str, operations: int) -> GraphRun:
    """Add a graph to the report of this process."""
    _graphs.append(GraphRun(f"{len(_graphs)} {kind}", operations))
    return _graphs[-1]


def backend_report() -> BackendReport:
    """Return what ``torch.compile(model, backend="golow")`` did with each graph in this process:
    whether a plan runs it, how often it ran, and why not. ``print`` shows it as a table.
    """
    return BackendReport(tuple(_graphs))
