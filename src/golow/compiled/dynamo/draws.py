"""Random numbers of a graph: PyTorch draws them before the plan runs, which reads them as inputs.
With the same seed a layer therefore drops the same elements as in eager.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from operator import getitem
from typing import Any, NamedTuple

import torch
from torch import Tensor, fx
from torch.utils import _pytree as pytree

from golow.records.errors import Unsupported

ATEN = torch.ops.aten
OF_SHAPE = (
    ATEN.bernoulli.p, ATEN.rand_like.default, ATEN.randn_like.default, ATEN.randint_like.default,
    ATEN.rand.default, ATEN.randn.default, ATEN.randint.default, ATEN.randint.low,
    ATEN.uniform.default, ATEN.normal_functional.default,
)  # fmt: skip
"""Operations that read only the shape of their tensors."""
DROPOUT = ATEN.native_dropout.default


class Drawing(NamedTuple):
    """A graph without its random numbers. rest: takes them after its inputs. draw: gives them, in
    the graph's order."""

    rest: fx.GraphModule
    draw: Callable[[], list[Tensor]]


def apart(traced: fx.GraphModule) -> Drawing | None:
    """Move the draws out of a graph; None if it has none. Raises `Unsupported` for a draw that
    depends on more than known sizes."""
    if not any(map(_is_draw, traced.graph.nodes)):
        return None
    rest = copy.deepcopy(traced)
    draws: list[Callable[[], Tensor]] = []
    last = list(rest.graph.find_nodes(op="placeholder"))[-1:]
    for node in filter(_is_draw, list(rest.graph.nodes)):
        with rest.graph.inserting_after(*last):
            drawn = rest.graph.placeholder(f"drawn_{len(draws)}")
        last = [drawn]
        draws.append(_dropout(node, drawn) if node.target is DROPOUT else _of_shape(node, drawn))
        rest.graph.erase_node(node)
    rest.graph.eliminate_dead_code()
    rest.recompile()
    return Drawing(rest, lambda: [draw() for draw in draws])


def _is_draw(node: fx.Node) -> bool:
    """True if an operation draws. Attention and dropout do so only with a chance to drop."""
    if torch.Tag.nondeterministic_seeded not in getattr(node.target, "tags", ()):
        return False
    if node.target is DROPOUT:
        return node.args[2] is not False and bool(node.args[1])
    chance = _argument(node, "dropout_p")
    return not (isinstance(chance, float) and chance == 0)


def _argument(node: fx.Node, name: str) -> Any:
    """Return an argument of an operation, explicit or by default; None if it has none."""
    target: Any = node.target
    for place, argument in enumerate(target._schema.arguments):
        if argument.name == name:
            given = node.args[place] if place < len(node.args) else argument.default_value
            return node.kwargs.get(name, given)
    return None


def _of_shape(node: fx.Node, drawn: fx.Node) -> Callable[[], Tensor]:
    if node.target not in OF_SHAPE:
        raise Unsupported("onednn", f"{node.target} draws random numbers within")
    target: Any = node.target
    given = fx.map_arg((node.args, dict(node.kwargs)), _form)
    node.replace_all_uses_with(drawn)

    def draw() -> Tensor:
        args, kwargs = pytree.tree_map(lambda x: x() if isinstance(x, _Form) else x, given)
        found: Tensor = target(*args, **kwargs)
        return found

    return draw


def _dropout(node: fx.Node, drawn: fx.Node) -> Callable[[], Tensor]:
    """``x * mask * scale``, and the mask of booleans, drawn as the operation does."""
    x, chance = node.args[0], float(node.args[1])  # type: ignore[arg-type]
    form, kept = _form(x), 1 - chance
    graph = node.graph
    with graph.inserting_before(node):
        masked = graph.call_function(ATEN.mul.Tensor, (x, drawn))
        scaled = graph.call_function(ATEN.mul.Tensor, (masked, 0.0 if chance == 1 else 1 / kept))
    for user in list(node.users):
        if user.target is not getitem:
            raise Unsupported("onednn", "the result of dropout is used as a tuple")
        user.replace_all_uses_with(drawn if user.args[1] else scaled)
        graph.erase_node(user)
    if form.device.type == "cuda":  # its kernel draws otherwise than `bernoulli_`
        return lambda: DROPOUT(form(), chance, True)[1]
    return lambda: form(torch.bool).bernoulli_(kept)


class _Form:
    """Creates tensors like a value, without content: only its shape and its order in memory are
    read. It is called later, because AOTAutograd compiles with fake tensors."""

    def __init__(self, value: Tensor) -> None:
        self.shape, self.stride, self.dtype = tuple(value.shape), value.stride(), value.dtype
        self.device = value.device
        if not all(isinstance(size, int) for size in (*self.shape, *self.stride)):
            raise Unsupported("onednn", "random numbers of dynamic sizes")

    def __call__(self, dtype: torch.dtype | None = None) -> Tensor:
        kind = dtype or self.dtype
        return torch.empty_strided(self.shape, self.stride, dtype=kind, device=self.device)


def _form(node: Any) -> Any:
    return _Form(node.meta["val"])
