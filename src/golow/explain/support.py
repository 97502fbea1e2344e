"""Asks the levels which operations of a model they support, without building or running them.

The graph is captured once. Each level that starts from it lowers it with its own passes, and its
refusals are traced back to the calls of the captured graph, which are the same for all levels.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

import msgspec

from golow.explain.record import (
    FORMAT_VERSION,
    Answer,
    LevelSupport,
    OperatorSupport,
    Refusal,
    Support,
)
from golow.levels import ladder
from golow.levels.chosen import ChosenLevel
from golow.levels.probe import Probe
from golow.lower.graph import Graph
from golow.lower.passes import CLEAN_UP, apply
from golow.observer import Observer
from golow.record import Device, GolowError, Mode, Precision, Unsupported
from golow.workload.captured import capture
from golow.workload.prepare import Prepared, prepare
from golow.workload.request import Request
from golow.workload.trial import require_device, require_precision

THE_STEP = "(the step itself)"
"""The row of what no call of the captured graph is the reason for, such as SGD's update."""


def support(
    request: Request, levels: Sequence[str] | None, device: Device | None, observer: Observer
) -> Support:
    """Ask each level which operations of the request's model it can run.

    levels: names, or None for all levels of the mode and device. device: None for the one on which
    each level runs. Neither a GPU nor the levels' libraries are needed: the model is built, tried
    and captured on the CPU. Raises `GolowError` for what the caller can fix.
    """
    chosen = _chosen(levels, request.mode, device)
    main = device or chosen[0].devices[0]
    require_precision(main, request.precision)
    observer.stage("preparing the workload")
    prepared = prepare(replace(request, device="cpu", precision="default"))
    workload = msgspec.structs.replace(prepared.workload, device=main, precision=request.precision)
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
    if names is None:
        every = (ChosenLevel(level, "") for level in ladder.LADDER)
        return [c for c in every if mode in c.modes and device in (None, *c.devices)]
    found = [_named(name, mode, device) for name in names]
    if not found:
        raise GolowError("no level is named", "leave out --levels, or use `golow levels`.")
    return list({choice.name: choice for choice in found}.values())


def _named(name: str, mode: Mode, device: Device | None) -> ChosenLevel:
    """The level of that name, on the device or else on the first one that it has."""
    if device is not None:
        return ladder.choose(name, mode, device)
    try:
        return ladder.choose(name, mode, "cpu")
    except GolowError:
        return ladder.choose(name, mode, "cuda")


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
    probe = choice.level.probe()
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
    """The path of a layer that also says which node of the captured graph it was read from.

    Passes hand a node's path on to what they make of the node, and compare paths as texts, which
    they still are. So a refused node leads back to its call, whatever became of it on the way.
    """

    position: int


def _traceable(graph: Graph) -> Graph:
    """The graph with paths that say which node they belong to."""
    nodes = []
    for position, node in enumerate(graph.nodes):
        path = _Path(node.module)
        path.position = position
        nodes.append(msgspec.structs.replace(node, module=path))
    return msgspec.structs.replace(graph, nodes=tuple(nodes))


def _operators(graph: Graph, answers: dict[str, list[Unsupported]]) -> tuple[OperatorSupport, ...]:
    """One row an operation: what is missing first, then by number of calls, then by name."""
    calls = Counter(node.op for node in graph.nodes)
    refused: dict[str, list[Refusal]] = {}
    for level, refusals in answers.items():
        for operator, refusal in _summed(graph, level, refusals):
            refused.setdefault(operator, []).append(refusal)
    for refusal in refused.get(THE_STEP, ()):
        calls[THE_STEP] = max(calls[THE_STEP], refusal.calls)
    rows = (
        OperatorSupport(operator=name, calls=count, refusals=tuple(refused.get(name, ())))
        for name, count in calls.items()
    )
    return tuple(sorted(rows, key=lambda row: (not row.refusals, -row.calls, row.operator)))


def _summed(
    graph: Graph, level: str, refusals: Sequence[Unsupported]
) -> Iterator[tuple[str, Refusal]]:
    """A level's refusals of the same calls for the same reason as one, with the first of them."""
    first: dict[tuple[str, str], Unsupported] = {}
    calls: dict[tuple[str, str], set[int]] = {}
    for number, refusal in enumerate(refusals):
        operator, position = THE_STEP, -1 - number
        if isinstance(refusal.module, _Path):
            position = refusal.module.position
            operator = graph.nodes[position].op
        key = operator, refusal.reason
        first.setdefault(key, refusal)
        calls.setdefault(key, set()).add(position)
    for (operator, reason), refusal in first.items():
        yield (
            operator,
            Refusal(
                level=level,
                reason=reason,
                calls=len(calls[operator, reason]),
                node=refusal.node,
                module=str(refusal.module),
            ),
        )
