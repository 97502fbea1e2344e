"""Which integers of the state only count the steps, so that one kernel can count all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from golow.levels.direct.cudnn.shared_kernels.counting import count
from golow.lower.analysis.liveness import state_outputs
from golow.lower.ir.graph import Graph, Ref
from golow.lower.ir.rewriting import Links
from golow.lower.operators.binary import Binary

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.build.builder import Builder


class Counters:
    """The counters of a graph. counted: buffers of those that the end of the step increments."""

    def __init__(self, graph: Graph) -> None:
        self._counter_of = counters(graph)
        self.counted: set[int] = set()

    def is_count(self, name: str) -> bool:
        """True if the value is the next content of a counter."""
        return name in self._counter_of

    def is_counter(self, name: str) -> bool:
        """True if the value, an input of the graph, is a counter."""
        return name in self._counter_of.values()

    def count(self, build: Builder, counter: Ref) -> None:
        """Define the current node's value: the counter, incremented at the end of the step."""
        tensor = build.inputs.state(counter)
        if tensor.buffer in self.counted:  # a layer that runs twice
            build.steps.kernel(count(1), [tensor], [])
        self.counted.add(tensor.buffer)
        build.values.define(0, tensor)


def counters(graph: Graph) -> dict[str, str]:
    """Maps each sum that is a counter's next value to the counter, an input of the graph. A layer
    that runs twice adds twice."""
    links, found = Links(graph), dict[str, str]()
    for new, counter in state_outputs(graph).items():
        sums = _sums(links, new, counter)
        if links.values[counter].dtype == "int64" and _are_read_by_one_another(links, sums):
            found |= dict.fromkeys(sums, counter)
    return found


def _sums(links: Links, new: str, counter: str) -> list[str]:
    """The values from the new content back to the old one, each one more than the next; none if the
    new content is not a count."""
    found = []
    while new != counter:
        maker = links.maker.get(new)
        plus = Binary.of(links.nodes[maker]) if maker is not None else None
        if plus is None or plus.function != "add" or type(plus.b) is not int or plus.b != 1:
            return []
        found.append(new)
        new = plus.a.name
    return found


def _are_read_by_one_another(links: Links, sums: list[str]) -> bool:
    """True if nothing else reads them: the count is made at the end of the step."""
    return not any(links.readers[name] for name in sums[:1]) and all(
        len(links.readers[name]) == 1 for name in sums[1:]
    )
