"""A graph of AOTAutograd as a callable: plans for the sizes it is called with, PyTorch otherwise."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn

from golow.compiled.dynamo.agreement import difference
from golow.compiled.dynamo.backend_report import GraphRun
from golow.compiled.dynamo.concrete_graph import ConcreteGraph, concrete
from golow.compiled.dynamo.plan_of_graph import PlanOfGraph
from golow.compiled.dynamo.watched_weights import is_watchable
from golow.compiled.dynamo.worth import why_not_read
from golow.levels.called.processor import Processor
from golow.records.errors import GolowError, Unsupported
from golow.records.workload import Mode

SIZES = 16  # sets of sizes that one graph has plans for; a further one runs in PyTorch
MODELS = 4  # that share a graph, each with its weights in plans of their own
RESTLESS = 3  # calls in a row with other weights, from which on they are inputs as any other


class PlannedGraph:
    """A graph as AOTAutograd calls it: from a list of inputs to its outputs.

    Plans are built when sizes are first seen, since only then there are numbers for sizes that
    Dynamo left open, and content to compare on. weights: places of the inputs that stay from call
    to call. Whatever cannot be built runs in PyTorch, and the record says why.
    """

    def __init__(
        self, traced: fx.GraphModule, mode: Mode, weights: Sequence[int], record: GraphRun
    ) -> None:
        self._traced, self._mode, self._weights, self._record = traced, mode, weights, record
        self._sizes: dict[object, _OneSize | None] = {}
        self._lock = threading.Lock()
        self._process = os.getpid()

    def __call__(self, *given: Any) -> Sequence[Any]:
        """Run it on the inputs of a call."""
        with self._lock:
            found = self._by_plan(given)
        if found is None:
            self._record.by_torch += 1
            return self._traced(*given)  # type: ignore[no-any-return]
        return found

    def _by_plan(self, given: Sequence[Any]) -> Sequence[Any] | None:
        """The outputs of a plan, or those of PyTorch that it was compared with. None: there is no
        plan."""
        form = _form(given)
        one = self._sizes.get(form)
        if one is None:
            if form in self._sizes or not (one := self._new(form, given)):
                return None
        if os.getpid() != self._process:
            self._record.note("a forked process: threads do not survive a fork")
            return None
        try:
            plan = one.plan(given)
        except Exception as error:
            return self._refused(form, reason_of(error))
        if plan.unchecked:
            return self._compared(form, plan, given)
        self._record.by_plan += 1
        return plan(given)

    def _new(self, form: object, given: Sequence[Any]) -> _OneSize | None:
        if len(self._sizes) >= SIZES:
            self._record.note(f"more than {SIZES} sets of sizes")
            return None
        self._sizes[form] = None
        for item in given:
            why = why_not_taken(item)
            if why:
                self._record.note(why)
                return None
        self._sizes[form] = _OneSize(self._traced, self._mode, self._weights, self._record)
        return self._sizes[form]

    def _compared(
        self, form: object, plan: PlanOfGraph, given: Sequence[Any]
    ) -> Sequence[Any] | None:
        wanted = self._traced(*given)
        try:
            found = plan(given)
            why = difference(found, wanted, self._traced, given)
        except Exception as error:
            why = reason_of(error)
        self._record.by_torch += 1
        if why:
            self._refused(form, f"differs: {why}")
        plan.unchecked -= 1
        return wanted  # type: ignore[no-any-return]

    def _refused(self, form: object, why: str) -> None:
        self._sizes[form] = None
        self._record.note(why)


class _OneSize:
    """The plans of a graph at one set of sizes: one for each model whose weights it was called
    with."""

    def __init__(
        self, traced: fx.GraphModule, mode: Mode, weights: Sequence[int], record: GraphRun
    ) -> None:
        self._traced, self._mode, self._weights, self._record = traced, mode, weights, record
        self._graph: ConcreteGraph | None = None
        self._kept: Sequence[int] = ()
        self._plans: list[PlanOfGraph] = []
        self._changes = 0

    def plan(self, given: Sequence[Any]) -> PlanOfGraph:
        """The plan that has the weights of this call. Raises whatever building it does."""
        for plan in self._plans:
            if plan.weights.change(given) == "none":
                self._changes = 0
                return plan
        with torch.inference_mode(False), torch.no_grad():
            return self._changed(given)

    def _changed(self, given: Sequence[Any]) -> PlanOfGraph:
        self._changes += bool(self._plans)
        if self._changes >= RESTLESS:
            self._record.note("weights change from call to call: read anew in each")
            self._weights, self._graph, self._plans, self._changes = (), None, [], 0
        for plan in self._plans:
            if plan.weights.change(given) == "content" or not plan.weights.are_in_use(given):
                plan.load(given)
                return plan
        if len(self._plans) >= MODELS:
            self._plans[0].load(given)
            self._plans.append(self._plans.pop(0))
            return self._plans[-1]
        return self._built(given)

    def _built(self, given: Sequence[Any]) -> PlanOfGraph:
        target = Processor(nn.Module(), "default", None, False)
        if self._graph is None:
            self._kept = [place for place in self._weights if is_watchable(given[place])]
            self._graph = concrete(
                self._record.name, self._mode, self._traced, given, self._kept, target
            )
        plan = PlanOfGraph(self._graph, given, self._kept, target)
        self._plans.append(plan)
        self._record.plans += 1
        return plan


def _form(given: Sequence[Any]) -> object:
    """Sizes, strides and numbers of a call's inputs."""
    return tuple(
        [(item.shape, item.stride()) if isinstance(item, Tensor) else item for item in given]
    )


def why_not_taken(item: Any) -> str:
    """The reason for which no plan takes an input; empty if one can."""
    if isinstance(item, Tensor):
        if why := why_not_read(item):
            return why
        if not item.numel():
            return "an input has no elements"
        return "an input is to be negated" if item.is_neg() else ""
    if item is None or isinstance(item, bool | int | float):
        return ""
    return f"an input is {type(item).__name__}"


def reason_of(error: Exception) -> str:
    """An error of building or running a plan, in a line."""
    if isinstance(error, Unsupported):
        return error.reason
    if isinstance(error, GolowError):
        return error.message
    first = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {first}"
