"""Finds the first operation whose result is off at a level that differs, by halving the graph.

The level is built again with some values of the captured graph among its outputs, as NVIDIA's
Polygraphy marks tensors of a network. Each build narrows the nodes from which the error may come. A
value that is returned cannot be fused away, so that a fault which is in a fusion may vanish: then
the last value before it is named.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import torch
from safetensors import safe_open
from torch import Tensor

from golow.check.checked_level import CheckedLevel
from golow.check.moved_bundle import working_rounding
from golow.levels.ladder import ChosenLevel
from golow.levels.starter import Starter
from golow.lower.ir.graph import Graph, GraphOutput, Node
from golow.lower.ir.rewriting import Links
from golow.lower.ir.verify import operation, run_node
from golow.records.comparison import Check, Located, TensorError
from golow.records.errors import GolowError
from golow.storage.scratch import scratch_folder
from golow.workload.bundle import Bundle

PROBES = 7
"""Values that one build returns: each build leaves an eighth of the nodes."""


CANCELS = 1e5
"""Multiple of the effect that a rounding of the inputs has on a value. A smaller value is the
remainder of terms that cancelled, and errors are compared with the size of these terms. It is so
large that a right value, which may be off by several such effects, stays below the limit of its own
size (2.4e-4 for a wrong result)."""


class Level(NamedTuple):
    """Everything needed to build a level again."""

    choice: ChosenLevel
    bundle: Bundle
    cache: Path
    starter: Starter


def locate(level: Level, check: Check) -> Located:
    """The first operation whose result is off. Raises `GolowError` where none can be found: a level
    that does not start from the captured graph, dropout, an error of a later training step."""
    graph = level.bundle.graph
    if not level.choice.level.from_graph or graph is None:
        raise GolowError(f"{level.choice.name} does not start from the captured graph")
    if level.bundle.workload.random_layers:
        raise GolowError("the model has layers that draw in every pass")
    worst = _worst(check)
    batch = int(worst.name.partition("/")[0])
    if graph.mode == "train" and batch > 0:
        raise GolowError("the first training step is right, and a later one begins with its state")
    share = worst.error / (worst.scale or worst.zero_scale or 1.0)
    limit = math.sqrt(working_rounding(level.bundle).size * share)
    return _Search(level, graph, batch, limit).found()


def _worst(check: Check) -> TensorError:
    """The tensor that is off by most of what it holds, in the first batch or step that has one."""
    failed = [item for item in check.tensors if not item.passed and math.isfinite(item.error)]
    if check.verdict != "differs" or not failed:
        raise GolowError("no tensor of the level is off by a finite error")
    first = min(item.name.partition("/")[0] for item in failed)
    return max(
        (item for item in failed if item.name.startswith(f"{first}/")),
        key=lambda item: item.error / (item.scale or item.zero_scale or 1.0),
    )


class _Search:
    """limit: the largest share of its size by which a right value is off: on a logarithmic scale
    halfway between one rounding and the error at the end."""

    def __init__(self, level: Level, graph: Graph, batch: int, limit: float) -> None:
        self.level, self.graph, self.batch, self.limit = level, graph, batch, limit
        self.errors: dict[int, float] = {}
        self.given = dict(_inputs(level.bundle, graph, batch))
        self.moved = dict(_moved(self.given))
        self.behind = _ancestors(graph)  # the places whose results each place depends on

    def found(self) -> Located:
        """Go back from the end to a wrong result that depends on right ones alone. A right result
        that leads to a wrong one clears what it depends on."""
        suspects = {p for p, node in enumerate(self.graph.nodes) if _is_seen(node)}
        wrong, builds = -1, 0
        while suspects:
            probes = _spread(sorted(suspects))
            self._measure(probes)
            builds += 1
            off = [place for place in probes if self.errors[place] > self.limit]
            if off:
                wrong = off[0]
                suspects &= self.behind[wrong]
            suspects -= {wrong, *probes}
            for place in set(probes) - set(off):
                if not off or place in self.behind[wrong]:
                    suspects -= self.behind[place]
        before = self._nearest(wrong)
        if wrong < 0:
            return Located(after=before, limit=self.limit, builds=builds)
        node = self.graph.nodes[wrong]
        return Located(
            operation=node.op,
            value=node.name,
            layer=node.module,
            after=before,
            error=self.errors[wrong],
            limit=self.limit,
            builds=builds,
        )

    def _nearest(self, wrong: int) -> str:
        """The last value that was seen to be right, of those that the wrong one depends on."""
        among = self.behind[wrong] if wrong >= 0 else set(self.errors)
        seen = [p for p in among if self.errors.get(p, math.inf) <= self.limit]
        return self.graph.nodes[max(seen)].name if seen else ""

    def _measure(self, places: Sequence[int]) -> None:
        """Build and run the level with the results of these nodes as further outputs."""
        taken = [item for item in self.graph.outputs if item.kind == "output"]
        more = [
            GraphOutput(name=_result(self.graph.nodes[place]), kind="output", target=str(number))
            for number, place in enumerate(places, start=len(taken))
        ]
        graph = msgspec.structs.replace(self.graph, outputs=(*self.graph.outputs, *more))
        with scratch_folder() as folder:
            bundle = _with_graph(self.level.bundle, graph, folder / "bundle")
            file = folder / "probed.safetensors"
            probed = CheckedLevel(self.level.choice, bundle, self.level.cache, self.level.starter)
            with probed:
                rate = bundle.workload.optimizer.learning_rate
                probed.outputs("locating")([self.batch], rate, file)
            wanted = self._interpreted(set(places), self.given)
            moved = self._interpreted(set(places), self.moved)
            with safe_open(file, "pt") as found:
                for place, item in zip(places, more, strict=True):
                    value = found.get_tensor(f"{self.batch}/output/{item.target}")
                    self.errors[place] = _share(value, wanted[place], moved[place])

    def _interpreted(self, places: set[int], given: dict[str, Tensor]) -> dict[int, Tensor]:
        """PyTorch's results of these nodes, one node after the other."""
        tensors, found = dict(given), {}
        last = {name: p for p, node in enumerate(self.graph.nodes) for name in node.references()}
        with torch.no_grad():
            for position, node in enumerate(self.graph.nodes):
                results = run_node(node, tensors)
                for value, tensor in zip(node.outputs, results, strict=True):
                    if value is not None:
                        tensors[value.name] = tensor
                if position in places:
                    found[position] = results[0].clone()
                for name in set(node.references()):
                    if last[name] == position and name not in self.given:
                        tensors.pop(name, None)
        return found


def _spread(places: Sequence[int]) -> list[int]:
    """At most `PROBES` of them, at equal distances."""
    step = -(-len(places) // (PROBES + 1))
    return list(places[step - 1 :: step][:PROBES])


def _ancestors(graph: Graph) -> list[set[int]]:
    """For each node, the earlier nodes that it depends on."""
    maker = Links(graph).maker
    found: list[set[int]] = []
    for node in graph.nodes:
        before = {maker[name] for name in node.references() if name in maker}
        found.append(before.union(*(found[place] for place in before)))
    return found


def _result(node: Node) -> str:
    value = node.outputs[0]
    return "" if value is None else value.name


def _is_seen(node: Node) -> bool:
    """True if its first result is a tensor of floats in separate memory: no view, and no new
    content."""
    value = node.outputs[0] if node.outputs else None
    if value is None or value.dtype != "float32" or 0 in value.shape:
        return False
    schema = getattr(operation(node.op), "_schema", None)
    return schema is not None and all(item.alias_info is None for item in schema.returns)


def _share(found: Tensor, wanted: Tensor, moved: Tensor) -> float:
    """The error over the size, both as root mean squares; infinite where a number is missing. A
    value that cancels is as large as what a rounding of the inputs moves it by, many times over."""
    if found.shape != wanted.shape:
        return math.inf
    wanted = wanted.double()
    spread = (moved.double() - wanted).norm().item()
    size, error = wanted.norm().item(), (found.double() - wanted).norm().item()
    if not math.isfinite(size):
        return 0.0
    if not math.isfinite(error):
        return math.inf
    largest = max(size, CANCELS * spread if math.isfinite(spread) else 0.0)
    return error / largest if largest else (0.0 if error == 0 else math.inf)


def _moved(given: dict[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    """Inputs with each number perturbed by about one rounding."""
    draw = torch.Generator().manual_seed(0)
    for name, tensor in given.items():
        if tensor.dtype == torch.float32:
            tensor = tensor * (1 + 2.0**-23 * torch.randn(tensor.shape, generator=draw))
        yield name, tensor


def _inputs(bundle: Bundle, graph: Graph, batch: int) -> Iterator[tuple[str, Tensor]]:
    """The values of the graph's inputs, by name."""
    files = {"input": "batches", "target": "batches", "constant": "constants"}
    for item in graph.inputs:
        name = files.get(item.kind, "weights")
        key = f"{batch}/{item.kind}/{item.target}" if name == "batches" else item.target
        with safe_open(bundle.file(f"{name}.safetensors"), "pt") as tensors:
            yield item.value.name, tensors.get_tensor(key)


def _with_graph(bundle: Bundle, graph: Graph, folder: Path) -> Bundle:
    """A copy of the bundle with another graph; its large files are linked, not copied."""
    folder.mkdir()
    for file in bundle.folder.iterdir():
        if file.name not in ("graph.json", "constants.safetensors") and file.is_file():
            (folder / file.name).symlink_to(file)
    made = Bundle(folder)
    with safe_open(bundle.file("constants.safetensors"), "pt") as tensors:
        constants = {key: tensors.get_tensor(key) for key in tensors.keys()}  # noqa: SIM118
    made.write_graph(graph, constants)
    return made
