"""Where in the model something happened: the layer and the phase of any moment of a trace.

In the forward pass and the update, annotations say it. Autograd numbers its nodes: an operator of
the backward pass has the number of the operator in the forward pass that made its node, and so
belongs to the same layer. What accumulates a gradient has no number and follows the operator that
computed it. What runs on a device belongs to where the host launched it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from golow.programs.profiling.trace import ANNOTATION, OPERATOR, RUNTIME, Event, Trace, nested
from golow.worker.protocol import LAYER, PHASE, SITE

NODE = "autograd::engine::evaluate_function"
NUMBER = "Sequence number"


class Place(NamedTuple):
    """A layer, by the path of its module, and the phase; each is empty if it is not known."""

    layer: str = ""
    phase: str = ""


class Places:
    """Finds the place of a moment on a lane, and of what was launched."""

    def __init__(self, trace: Trace) -> None:
        marks = [event for event in trace.events if event.category == ANNOTATION]
        self._phases = Innermost([event for event in marks if event.name.startswith(PHASE)])
        self._layers = Innermost([event for event in marks if event.name.startswith(LAYER)])
        self._sites = Innermost([event for event in marks if event.name.startswith(SITE)])
        nodes = [e for e in trace.events if e.category == OPERATOR and e.name.startswith(NODE)]
        self._nodes = Innermost(nodes)
        self._makers = self._forward_operators(trace)
        self._launches = {
            int(event.details["correlation"]): event
            for event in trace.events
            if event.category in RUNTIME and "correlation" in event.details
        }

    def at(self, lane: str, moment: int) -> Place:
        """The place of what the host did on that lane at that moment."""
        phase = self._phases.on_any_lane(moment)
        maker = self._maker(lane, moment)
        layer = self._layers.at(lane, moment) if maker is None else self._around(maker)
        return Place(_rest(layer, LAYER), _rest(phase, PHASE))

    def of(self, event: Event) -> Place:
        """The place of an event: as the trace states, or, on a device, that of its launch."""
        if "layer" in event.details:
            return Place(str(event.details["layer"]), str(event.details.get("phase", "")))
        launch = self._launches.get(int(event.details.get("correlation", -1)))
        cause = event if launch is None else launch
        return self.at(cause.lane, cause.start)

    def site(self, event: Event) -> str:
        """The line of the user's code that an operator comes from, if it is marked."""
        cause = self._maker(event.lane, event.start) or event
        return _rest(self._sites.at(cause.lane, cause.start), SITE)

    # ------------------------------------------------------------ implementation

    def _maker(self, lane: str, moment: int) -> Event | None:
        """The operator of the forward pass that made autograd's node of that moment."""
        node = self._nodes.at(lane, moment)
        return None if node is None else self._makers.get(self._number(node))

    def _around(self, event: Event) -> Event | None:
        return self._layers.at(event.lane, event.start)

    def _forward_operators(self, trace: Trace) -> dict[int, Event]:
        """The operator for each of autograd's numbers. The last one with a number made the node:
        those before only saw which number comes next."""
        return {
            int(event.details[NUMBER]): event
            for event in trace.events
            if event.category == OPERATOR
            and NUMBER in event.details
            and self._nodes.at(event.lane, event.start) is None
        }

    def _number(self, node: Event) -> int:
        """The number of a node; one that accumulates a gradient has that of the node before."""
        if "AccumulateGrad" in node.name:
            before = self._nodes.before(node)
            while before is not None and "AccumulateGrad" in before.name:
                before = self._nodes.before(before)
            node = before or node
        return int(node.details.get(NUMBER, -1))


def _rest(event: Event | None, beginning: str) -> str:
    return "" if event is None else event.name.removeprefix(beginning)


class Innermost:
    """Finds the innermost event around a moment. events: in order of their start, the longer
    first."""

    def __init__(self, events: Sequence[Event]) -> None:
        self.events = events
        self._around = nested(events)
        self._on: dict[str, list[int]] = defaultdict(list)
        for position, event in enumerate(events):
            self._on[event.lane].append(position)

    def position(self, lane: str, moment: int) -> int | None:
        """Its position among the events; None if there is none."""
        positions = self._on.get(lane, [])
        place = bisect_right(positions, moment, key=lambda p: self.events[p].start) - 1
        found = positions[place] if place >= 0 else None
        while found is not None and self.events[found].end <= moment:
            found = self._around.get(found)
        return found

    def at(self, lane: str, moment: int) -> Event | None:
        """The event itself."""
        position = self.position(lane, moment)
        return None if position is None else self.events[position]

    def on_any_lane(self, moment: int) -> Event | None:
        """The innermost event around the moment on the first lane that has one."""
        return next((e for lane in self._on if (e := self.at(lane, moment)) is not None), None)

    def before(self, event: Event) -> Event | None:
        """The event that began before this one on its lane."""
        positions = self._on[event.lane]
        place = bisect_right(positions, event.start, key=lambda p: self.events[p].start) - 1
        return self.events[positions[place - 1]] if place > 0 else None

    def outside(self, position: int) -> int | None:
        """The position of the innermost event around the one at that position."""
        return self._around.get(position)

    def chain(self, position: int) -> Iterator[int]:
        """The event at that position and all around it."""
        place: int | None = position
        while place is not None:
            yield place
            place = self._around.get(place)
