"""Asks the levels which operations of a model they support, without building or running them.

The graph is captured once. Each level that starts from it lowers it with its own passes, and its
refusals are traced back to the calls of the captured graph, which are the same for all levels.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import msgspec

from golow.levels import ladder
from golow.levels.named_level import ChosenLevel
from golow.levels.probe import Probe
from golow.lower.ir.clean_up import CLEAN_UP
from golow.lower.ir.graph import Graph
from golow.lower.ir.pass_runner import apply
from golow.observer import Observer
from golow.programs.explain.explain_record import (
    FORMAT_VERSION,
    Answer,
    LevelSupport,
    OperatorSupport,
    Refusal,
    Support,
)
from golow.records.errors import GolowError, Unsupported
from golow.records.workload import Device, Mode, Precision
from golow.workload.graph_capture import capture
from golow.workload.prepare import Prepared, prepare_for_absent
from golow.workload.request import Request
from golow.workload.trial import require_device

THE_STEP = "(the step itself)"
"""The row of what no call of the captured graph is the reason for, such as SGD's update."""


def support(
    request: Request, *, levels: Sequence[str] | None, device: Device | None, observer: Observer
) -> Support:
    """Ask each level which operations of the request's model it can run.

    levels: names, or None for all levels of the mode and device. device: None for the one on which
    each level runs. Neither a GPU nor the levels' libraries are needed: the model is built, tried
    and captured on the CPU. Raises `GolowError` for errors that the caller can fix.
    """
    chosen = _chosen(levels, request.mode, device)
    main = device or chosen[0].devices[0]
    observer.stage("preparing the workload")
    prepared = prepare_for_absent(replace(request, device=main))
    workload = prepared.workload
    graph, not_captured = None, ""
    if any(choice.level.refusals is not None for choice in chosen):
        observer.stage("capturing the graph")
        graph, not_captured = _captured(prepared)
    answers: dict[str, list[Unsupported]] = {}
    for choice in chosen:
        if choice.level.refusals is not None and graph is not None:
            observer.stage(f"asking {choice.name}")
            here = msgspec.structs.replace(workload, device=device or choice.devices[0])
            answers[choice.name] = list(choice.level.refusals(_traceable(graph), here))
    return Support(
        format_version=FORMAT_VERSION,
        workload=workload,
        levels=tuple(
            _level(c, device or c.devices[0], request.precision, answers.get(c.name))
            for c in chosen
        ),
        operators=() if graph is None else _operators(graph, answers),
        not_captured=not_captured,
    )


def _chosen(names: Sequence[str] | None, mode: Mode, device: Device | None) -> list[ChosenLevel]:
    """The named levels, or all that have this mode and device, without variants."""
    named = ladder.listed(names)
    if named is None:
        every = (ChosenLevel(level, "") for level in ladder.LADDER)
        single = (choice for choice in every if choice.level.ranked != "only")
        return [c for c in single if mode in c.modes and device in (None, *c.devices)]
    found = [_named(name, mode, device) for name in named]
    if not found:
        raise GolowError("no level is named", "leave out --levels, or use `golow levels`.")
    return list({choice.name: choice for choice in found}.values())


def _named(name: str, mode: Mode, device: Device | None) -> ChosenLevel:
    """The level of that name, on the device or else on the first one that it has."""
    return ladder.choose(name, mode, device or _first_device(name))


def _first_device(name: str) -> Device:
    """The CPU for an alias, and for a name that no level has, which `ladder.choose` refuses."""
    level_name, _, variant = name.partition("+")[0].partition(":")
    for level in ladder.LADDER:
        if level.name == level_name and variant in ("", *level.variants):
            return ChosenLevel(level, variant).devices[0]
    return "cpu"


def _captured(prepared: Prepared) -> tuple[Graph | None, str]:
    """The graph as every level receives it, or why there is none."""
    try:
        return apply(capture(prepared).graph, CLEAN_UP), ""
    except GolowError as error:
        return None, error.message


def _level(
    choice: ChosenLevel,
    device: Device,
    precision: Precision,
    refusals: Sequence[Unsupported] | None,
) -> LevelSupport:
    probe = choice.level.probe_on(device)
    if probe.available:
        try:
            require_device(device, precision)
        except GolowError as error:
            probe = Probe(False, error.message, error.hint)
    return LevelSupport(
        level=choice.name,
        device=device,
        answer=_answer(choice, refusals),
        missing=probe.missing,
        fix=probe.fix,
    )


def _answer(choice: ChosenLevel, refusals: Sequence[Unsupported] | None) -> Answer:
    if choice.level.refusals is None:
        return "unknown" if choice.level.exports else "module"
    return "lacks" if refusals or refusals is None else "runs"


# ---------------------------------------------------------------- from refusals back to calls


class _Path(str):
    """The path of a layer that also states which node of the captured graph it was read from.

    Passes hand a node's path on to what they make of the node, and compare paths as texts, which
    they still are. So a refused node leads back to its call, whatever became of it on the way.
    """

    position: int


def _traceable(graph: Graph) -> Graph:
    """The graph with paths that state which node they belong to."""
    nodes = []
    for position, node in enumerate(graph.nodes):
        path = _Path(node.module)
        path.position = position
        nodes.append(msgspec.structs.replace(node, module=path))
    return msgspec.structs.replace(graph, nodes=tuple(nodes))


class _Refused(NamedTuple):
    """A refusal, and the call that it is about: the operation, and a separate number."""

    operator: str
    call: int
    refusal: Unsupported


def _operators(graph: Graph, answers: dict[str, list[Unsupported]]) -> tuple[OperatorSupport, ...]:
    """One row per operation: what is missing first, then by number of calls, then by name."""
    refused = {level: _calls_of(graph, refusals) for level, refusals in answers.items()}
    calls = Counter(node.op for node in graph.nodes)
    beyond = [_number(THE_STEP, found) for found in refused.values()]
    if any(beyond):
        calls[THE_STEP] = max(beyond)
    rows = (_operator(name, count, refused) for name, count in calls.items())
    return tuple(sorted(rows, key=lambda row: (not row.refusals, -row.calls, row.operator)))


def _calls_of(graph: Graph, refusals: Sequence[Unsupported]) -> list[_Refused]:
    """The refusals with the calls of the captured graph that they lead back to."""
    found = []
    for number, refusal in enumerate(refusals):
        if isinstance(refusal.module, _Path):
            position = refusal.module.position
            found.append(_Refused(graph.nodes[position].op, position, refusal))
        else:
            found.append(_Refused(THE_STEP, number, refusal))
    return found


def _operator(name: str, calls: int, refused: dict[str, list[_Refused]]) -> OperatorSupport:
    numbers = {level: _number(name, found) for level, found in refused.items()}
    return OperatorSupport(
        operator=name,
        calls=calls,
        refused={level: number for level, number in numbers.items() if number},
        refusals=tuple(r for level, found in refused.items() for r in _summed(name, level, found)),
    )


def _number(operator: str, refused: Sequence[_Refused]) -> int:
    """How many calls of the operation are refused."""
    return len({item.call for item in refused if item.operator == operator})


def _summed(operator: str, level: str, refused: Sequence[_Refused]) -> Iterator[Refusal]:
    """A level's refusals of one operation: one for each reason, with the first call."""
    by_reason: dict[str, list[_Refused]] = {}
    for item in refused:
        if item.operator == operator:
            by_reason.setdefault(item.refusal.reason, []).append(item)
    for reason, items in by_reason.items():
        first = items[0].refusal
        yield Refusal(
            level=level,
            reason=reason,
            calls=_number(operator, items),
            node=first.node,
            module=str(first.module),
        )
