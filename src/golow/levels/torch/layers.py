"""Times an eager iteration layer by layer.

Hooks on every module follow the forward pass. The backward pass is followed node by node through
autograd's graph, because backward hooks on modules do not allow in-place operations. The hooks are
removed at the end of the request.
"""

from __future__ import annotations

import gc
import time
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from golow.levels.torch import device as torch_device
from golow.records.comparison import LayerTime
from golow.records.workload import LayerPhase

Iterate = Callable[["LayerClock"], None]


class Place(NamedTuple):
    """A layer in one phase of the iteration."""

    module: str
    phase: LayerPhase


TOP = Place("", "forward")
LOSS = Place("", "backward")
UPDATE = Place("", "update")


class Stretch(NamedTuple):
    """A stretch of an iteration at one place, between two readings of the clock."""

    place: Place
    start: Any
    end: Any


class LayerClock:
    """Assigns every nanosecond of an iteration to the place where it was spent.

    A module without children is a layer. Time between layers, such as a residual sum or the loss,
    belongs to the enclosing module. A device has its own clock: readings are events, and a layer's
    time includes the time that the device waits for the host.
    """

    def __init__(
        self, module: nn.Module, optimizer: torch.optim.Optimizer | None, on_device: bool = False
    ) -> None:
        self._on_device = on_device
        self._now = torch_device.mark if on_device else time.perf_counter_ns
        self._module = module
        self._operations = {path: type(child).__name__ for path, child in module.named_modules()}
        self._update = type(optimizer).__name__
        self._place = TOP
        self._entered: list[Place] = []
        # Autograd's sequence number at the start of each stretch of the forward pass.
        self._starts: list[int] = []
        self._stretches: list[str] = []
        self._iterations: list[dict[Place, int]] = []
        self._sequence: list[Place] = []
        self._spent: list[Stretch] = []
        self._followed: list[Any] = []
        self._since: Any = None

    def run(self, iterate: Iterate, iterations: int) -> tuple[LayerTime, ...]:
        """Time this many iterations without garbage collection, as when they are timed whole."""
        gc.collect()
        gc.disable()
        try:
            with self._hooked():
                for _ in range(iterations):
                    self._begin()
                    iterate(self)
                    self._move(TOP)
                    self._unfollow()
                    self._iterations.append(self._add_up())
        finally:
            self._unfollow()
            gc.enable()
        return tuple(self._layer_time(place) for place in self._order())

    def enter_forward(self) -> None:
        """The forward pass begins."""
        self._move_forward(TOP)

    def enter_backward(self, loss: Tensor) -> None:
        """The backward pass begins; follow it through the nodes that lead to the loss."""
        self._move(LOSS)
        for node in _nodes(loss):
            place = Place(self._stretch(node._sequence_nr()), "backward")
            self._followed.append(node.register_prehook(self._arrival(place)))
        self._since = self._now()

    def enter_update(self) -> None:
        """The optimizer begins."""
        self._move(UPDATE)

    # ------------------------------------------------------------ implementation

    def _move(self, to: Place) -> None:
        """Assign the time since the last move to the old place, and continue at the new one."""
        now = self._now()
        self._spent.append(Stretch(self._place, self._since, now))
        self._sequence.append(self._place)
        self._place = to
        self._since = self._now()  # the time of this method is not counted

    def _add_up(self) -> dict[Place, int]:
        """Nanoseconds of the iteration at each place."""
        if self._on_device:
            torch.cuda.synchronize()
        added: dict[Place, int] = {}
        for place, start, end in self._spent:
            ns = torch_device.elapsed_ns(start, end) if self._on_device else end - start
            added[place] = added.get(place, 0) + ns
        return added

    def _begin(self) -> None:
        self._spent.clear()
        self._entered.clear()
        self._starts, self._stretches = [torch.autograd._get_sequence_nr()], [""]  # type: ignore[attr-defined]
        self._place = TOP
        self._since = self._now()

    @contextmanager
    def _hooked(self) -> Iterator[None]:
        handles = []
        for path, module in self._module.named_modules():
            handles.append(module.register_forward_pre_hook(self._entry(path)))
            handles.append(module.register_forward_hook(self._exit))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _entry(self, path: str) -> Callable[..., None]:
        def enter(*_: object) -> None:
            self._entered.append(self._place)
            # A checkpointed layer runs again in the backward pass; that run counts as backward.
            self._move_forward(Place(path, self._place.phase))

        return enter

    def _exit(self, *_: object) -> None:
        self._move_forward(self._entered.pop())

    def _move_forward(self, to: Place) -> None:
        self._move(to)
        self._starts.append(torch.autograd._get_sequence_nr())  # type: ignore[attr-defined]
        self._stretches.append(to.module)
        self._since = self._now()

    def _arrival(self, place: Place) -> Callable[..., None]:
        def arrive(*_: object) -> None:
            self._move(place)

        return arrive

    def _unfollow(self) -> None:
        for handle in self._followed:
            handle.remove()
        self._followed.clear()

    def _stretch(self, number: int) -> str:
        """The layer whose forward pass made the node with this sequence number."""
        return self._stretches[max(0, bisect_right(self._starts, number) - 1)]

    def _order(self) -> list[Place]:
        """Every place once, ordered by when it was last left: a module follows its children."""
        return list(dict.fromkeys(reversed(self._sequence)))[::-1]

    def _layer_time(self, place: Place) -> LayerTime:
        operation = self._update if place == UPDATE else self._operations[place.module]
        return LayerTime(
            modules=(place.module,),
            phase=place.phase,
            operation=operation,
            ns=tuple(spent.get(place, 0) for spent in self._iterations),
        )


def _nodes(loss: Tensor) -> Iterator[Any]:
    """Every node of autograd's graph that leads to the loss, except those that accumulate
    gradients: they run directly after the node that feeds them and count as its time."""
    waiting: list[Any] = [loss.grad_fn]
    seen = set(waiting)
    while waiting:
        node = waiting.pop()
        if node is None or hasattr(node, "variable"):
            continue
        yield node
        following = {child for child, _ in node.next_functions} - seen
        seen |= following
        waiting.extend(following)
