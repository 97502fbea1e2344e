"""A graph of AOTAutograd as a callable: plans for the sizes of its calls, or PyTorch."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, fx

from golow.compiled.dynamo.agreement import difference
from golow.compiled.dynamo.backend_report import GraphRun
from golow.compiled.dynamo.concrete_graph import ConcreteGraph, concrete
from golow.compiled.dynamo.device import in_tf32, random_state, set_random_state, target_on
from golow.compiled.dynamo.draws import Drawing
from golow.compiled.dynamo.plan_of_graph import PlanOfGraph
from golow.compiled.dynamo.watched_weights import is_watchable
from golow.compiled.dynamo.worth import why_not_read
from golow.records.errors import GolowError, Unsupported
from golow.records.workload import Mode

SIZES = 16  # sets of sizes that one graph has plans for; a further one runs in PyTorch
MODELS = 4  # that share a graph, each with its weights in separate plans
RESTLESS = 3  # calls in a row with other weights, from which on they are inputs as any other


class PlannedGraph:
    """A graph as AOTAutograd calls it: from a list of inputs to its outputs.

    Plans are built when sizes are first seen, since only then there are numbers for sizes that
    Dynamo left open, and content to compare on. weights: places of the inputs that stay from call
    to call. drawing: the graph without its random numbers, if it draws some. device: of tensors.
    Whatever cannot be built runs in PyTorch, and the record states why.
    """

    def __init__(
        self,
        traced: fx.GraphModule,
        drawing: Drawing | None,
        mode: Mode,
        weights: Sequence[int],
        device: torch.device,
        record: GraphRun,
    ) -> None:
        self._traced, self._drawing, self._record = traced, drawing, record
        self._device = device
        self._planned = traced if drawing is None else drawing.rest
        self._mode, self._weights = mode, weights
        self._sizes: dict[object, _OneSize | None] = {}
        self._lock = threading.Lock()
        self._process = os.getpid()

    def __call__(self, *given: Any) -> Sequence[Any]:
        """Run it on the inputs of a call."""
        found = None
        if os.getpid() == self._process:
            form = _form(given)
            with self._lock:
                try:
                    found = self._by_plan(form, given)
                except Exception as error:  # of golow, the library or PyTorch
                    self._refused(form, reason_of(error))
        else:
            self._record.note("a forked process: the plan's threads do not survive a fork")
        if found is None:
            self._record.by_torch += 1
            return self._traced.forward(*given)  # type: ignore[no-any-return]
        return found

    def is_refused(self) -> bool:
        """True if it was called, and has a plan for none of its sizes."""
        known = list(self._sizes.values())
        return bool(known) and not any(known)

    def _by_plan(self, form: object, given: Sequence[Any]) -> Sequence[Any] | None:
        """The outputs of a plan, or those of PyTorch that it was compared with. None: there is
        no plan."""
        one = self._sizes.get(form)
        if one is None and (form in self._sizes or not (one := self._new(form, given))):
            return None
        before = None if self._drawing is None else random_state(self._device)
        whole = given if self._drawing is None else (*given, *self._drawing.draw())
        try:
            plan = one.plan(whole)
            if not plan.unchecked:
                found = plan(whole)
                self._record.by_plan += 1
                return found
        except Exception:
            self._draw_from(before)
            raise
        self._draw_from(before)
        return self._compared(form, plan, given, whole)

    def _new(self, form: object, given: Sequence[Any]) -> _OneSize | None:
        if len(self._sizes) >= SIZES:
            self._record.note(f"more than {SIZES} sets of sizes")
            return None
        self._sizes[form] = None
        for item in given:
            why = why_not_taken(item, self._device)
            if why:
                self._record.note(why)
                return None
        self._sizes[form] = _OneSize(
            self._planned, self._mode, self._weights, self._device, self._record
        )
        return self._sizes[form]

    def _draw_from(self, state: Tensor | None) -> None:
        if state is not None:
            set_random_state(self._device, state)

    def _compared(
        self, form: object, plan: PlanOfGraph, given: Sequence[Any], whole: Sequence[Any]
    ) -> Sequence[Any] | None:
        """The outputs of PyTorch; a plan that gives others is not called again. None if PyTorch
        refuses the inputs. whole: the inputs, and the random numbers that PyTorch will draw."""
        try:
            wanted: Sequence[Any] = self._traced.forward(*given)
        except Exception:  # such as an index beyond a table; it is raised again for the caller
            return None
        why = difference(plan(whole), wanted, self._planned, whole, in_tf32(self._device))
        self._record.by_torch += 1
        plan.unchecked -= 1
        if why:
            self._refused(form, f"differs: {why}")
        return wanted

    def _refused(self, form: object, why: str) -> None:
        self._sizes[form] = None
        self._record.note(why)


class _OneSize:
    """The plans of a graph at one set of sizes: one for each model whose weights it was called
    with."""

    def __init__(
        self,
        traced: fx.GraphModule,
        mode: Mode,
        weights: Sequence[int],
        device: torch.device,
        record: GraphRun,
    ) -> None:
        self._traced, self._mode, self._weights, self._record = traced, mode, weights, record
        self._device = device
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
        for plan in self._plans:
            if plan.weights.change(given) == "content" or not plan.weights.are_in_use(given):
                return self._loaded(plan, given)
        if len(self._plans) < MODELS:
            return self._built(given)
        return self._loaded(self._plans[0], given)

    def _loaded(self, plan: PlanOfGraph, given: Sequence[Any]) -> PlanOfGraph:
        """The plan with the weights of this call. Those that change again and again are not worth
        to be laid out anew."""
        self._changes += 1
        if self._changes >= RESTLESS:
            self._record.note("weights change from call to call: read again in each")
            self._weights, self._graph, self._plans = (), None, []
            return self._built(given)
        plan.load(given)
        self._plans.remove(plan)  # the one that was loaded last is the last to be taken away
        self._plans.append(plan)
        return plan

    def _built(self, given: Sequence[Any]) -> PlanOfGraph:
        target = target_on(self._device)
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
        [  # 1, 1.0 and True are equal
            (item.shape, item.stride()) if isinstance(item, Tensor) else (type(item), item)
            for item in given
        ]
    )


def why_not_taken(item: Any, device: torch.device) -> str:
    """The reason for which no plan on this device takes an input; empty if one can."""
    if isinstance(item, Tensor):
        if why := why_not_read(item, device):
            return why
        return "an input is a negated view" if item.is_neg() else ""
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
