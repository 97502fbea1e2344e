"""Cross-entropy fusion: joins log softmax and the loss that selects from it, so that neither the
logarithms nor their gradient, each as large as the scores, reach memory."""

from __future__ import annotations

from typing import NamedTuple

from golow.lower.ir.graph import Graph, Node, Ref, Value
from golow.lower.ir.operator import Kind, written
from golow.lower.ir.rewriting import Links, Names, absorbing, result, rewritten
from golow.lower.operators.cross_entropy import CrossEntropy, CrossEntropyBackward
from golow.lower.operators.nll_loss import NllLoss, NllLossBackward
from golow.lower.operators.softmax import Softmax, SoftmaxBackward


def name_cross_entropy(graph: Graph) -> Graph:
    """Make log softmax over the rows of a matrix and the negative log likelihood one operator, and
    both of their gradients another one, where nothing else reads what is between them."""
    links, names = Links(graph), Names(graph)
    replaced: dict[int, tuple[Node, ...]] = {}
    for position, node in enumerate(graph.nodes):
        softmax = Softmax.of(node)
        if softmax is not None and softmax.log and softmax.axis == 1:
            found = _found(links, position)
            if found is not None:
                replaced |= _replaced(links, names, softmax.x, found)
    return rewritten(graph, replaced)


class _Found(NamedTuple):
    """Positions of the nodes: log softmax, the loss, and their gradients, if the graph has them."""

    softmax: int
    loss: int
    of_logs: int | None
    of_scores: int | None


def _found(links: Links, softmax: int) -> _Found | None:
    """Nodes that read the logarithms; None if there are other ones."""
    logs = result(links.nodes[softmax])
    readers = links.readers[logs]
    of_kind = [
        [position for position in readers if links.nodes[position].op == kind.op()]
        for kind in (NllLoss, NllLossBackward, SoftmaxBackward)
    ]
    losses, of_logs, of_scores = of_kind
    if logs in links.returned or len(losses) != 1 or sum(map(len, of_kind)) < len(readers):
        return None
    if not of_logs and not of_scores:
        return _Found(softmax, losses[0], None, None)
    if len(of_logs) != 1 or len(of_scores) != 1:
        return None
    found = _Found(softmax, losses[0], of_logs[0], of_scores[0])
    return found if _belong_together(links, found) else None


def _belong_together(links: Links, found: _Found) -> bool:
    """True if the gradients are those of this loss, one made from the other alone."""
    assert found.of_logs is not None and found.of_scores is not None  # noqa: S101 - the caller's
    softmax, loss = _at(links, found.softmax, Softmax), _at(links, found.loss, NllLoss)
    of_logs = _at(links, found.of_logs, NllLossBackward)
    of_scores = _at(links, found.of_scores, SoftmaxBackward)
    between = result(links.nodes[found.of_logs])
    alone = links.only_reader(between) == found.of_scores
    return (
        alone
        and of_scores.log
        and of_scores.axis == softmax.axis
        and of_scores.gradient == Ref(name=between)
        and of_scores.result == of_logs.logs == loss.logs
        and of_logs.target == loss.target
        and of_logs.total_weight == Ref(name=result(links.nodes[found.loss], 1))
        and (of_logs.reduction, of_logs.ignored) == (loss.reduction, loss.ignored)
    )


def _at(links: Links, position: int, kind: type[Kind]) -> Kind:
    record = kind.of(links.nodes[position])
    assert record is not None  # noqa: S101 - found by its name
    return record


def _replaced(links: Links, names: Names, x: Ref, found: _Found) -> dict[int, tuple[Node, ...]]:
    loss = _at(links, found.loss, NllLoss)
    node, softmax = links.nodes[found.loss], links.nodes[found.softmax]
    logs = links.values[result(softmax)]
    largest, logarithm = (
        Value(name=names.free(f"{logs.name}_{name}"), shape=logs.shape[:1], dtype=logs.dtype)
        for name in ("largest", "logarithm")
    )
    kept = (None, None) if found.of_scores is None else (largest, logarithm)
    operator = CrossEntropy(x=x, target=loss.target, reduction=loss.reduction, ignored=loss.ignored)
    outputs, absorbed = (*node.outputs, *kept), absorbing(node, softmax)
    replaced: dict[int, tuple[Node, ...]] = {
        found.softmax: (),
        found.loss: (written(node, operator, outputs=outputs, absorbed=absorbed),),
    }
    if found.of_logs is None or found.of_scores is None:
        return replaced
    of_logs = _at(links, found.of_logs, NllLossBackward)
    backward = CrossEntropyBackward(
        gradient=of_logs.gradient,
        x=x,
        target=loss.target,
        largest=Ref(name=largest.name),
        logarithm=Ref(name=logarithm.name),
        total_weight=of_logs.total_weight,
        reduction=loss.reduction,
        ignored=loss.ignored,
    )
    last = links.nodes[found.of_scores]
    absorbed = absorbing(last, links.nodes[found.of_logs])
    return replaced | {
        found.of_logs: (),
        found.of_scores: (written(last, backward, absorbed=absorbed),),
    }
