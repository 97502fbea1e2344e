"""Runs the plan of the lowered graph by direct calls of oneDNN, without a framework."""

from __future__ import annotations

import hashlib
import platform
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from golow.levels.compiler import find_compiler
from golow.levels.level import IDLE_NUMPY, Launch, Level
from golow.levels.probe import Probe
from golow.lower.ir.graph import Graph, encode_graph
from golow.lower.plan.plan import Plan
from golow.records.errors import Unsupported
from golow.records.workload import Mode, Optimizer, Workload
from golow.storage.cache import read_sealed
from golow.storage.files import CACHE_HINT, write_whole, writing
from golow.workload.bundle import Bundle

if TYPE_CHECKING:
    from golow.levels.direct.onednn.steps.built_plan import Built
    from golow.lower.recognise.whole_attention import Kernels

PACKAGE = "onednn-cpu-gomp"
FEWEST_ROWS = 8
GRAPH, LAYOUTS, BUILT = "graph.json", "layouts.json", "built.json"  # in the cache folder


class Chosen(msgspec.Struct):
    """From the file of layouts: whether no other process used the cores while they were chosen."""

    clean: bool = True


def probe() -> Probe:
    """Look for an x86-64 CPU and the library, without loading it."""
    if platform.machine() not in ("x86_64", "AMD64"):
        return Probe(False, f"oneDNN's wheels are for x86-64, not {platform.machine()}", "")
    try:
        version(PACKAGE)
    except PackageNotFoundError:
        return Probe(False, f"{PACKAGE} is not installed", "pip install 'golow[onednn]'")
    return Probe(True)


def prepare(bundle: Bundle, variant: str, cache: Path) -> Launch:
    """Lower the graph, and the graph of an epoch's smaller last batch.

    The worker builds the plans from these graphs. On its first start it chooses layouts by
    measuring. Graphs and layouts are cached by graph, library, CPU and threads; layouts that were
    chosen on a busy machine are chosen again.
    """
    folders = [_write_lowered(part, cache) for part in (bundle, bundle.last) if part is not None]
    if not _read_choice(folders[0] / LAYOUTS).clean:
        for name in (BUILT, LAYOUTS):
            (folders[0] / name).unlink(missing_ok=True)
    return Launch(
        (sys.executable, "-m", "golow.levels.direct.onednn.run.program", *map(str, folders)),
        environment=IDLE_NUMPY,
        built_by_loading=folders[0] / BUILT,
        build_measures=True,
    )


def passes(workload: Workload) -> tuple[Callable[[Graph], Graph], ...]:
    """Return the passes that both vendor levels apply to the captured graph, and the level's
    own."""
    from golow.levels.direct.onednn.recurrences import keep_faster_recurrences

    return passes_with(workload.mode, workload.optimizer, keep_faster_recurrences)


def passes_with(
    mode: Mode, optimizer: Optimizer, recurrences: Callable[[Graph], Graph]
) -> tuple[Callable[[Graph], Graph], ...]:
    """Return the same. recurrences: the pass that says which recurrent layers stay whole."""
    from golow.lower.aten.attention_calls import drop_known_masks, share_heads
    from golow.lower.aten.complex_numbers import pair_complex_numbers
    from golow.lower.images.volumes import keep_volumes
    from golow.lower.recognise.group_norm import keep_group_norm
    from golow.lower.recognise.grouped_products import keep_grouped_products
    from golow.lower.recognise.resampling import keep_resampling
    from golow.lower.recognise.whole_attention import keep_attention
    from golow.lower.vendor import vendor_passes

    common = vendor_passes(mode, optimizer, own_passes(mode), recurrences)
    kept = (keep_attention(attention_kernels()), keep_volumes, keep_resampling, keep_group_norm)
    calls = (drop_known_masks, share_heads, keep_grouped_products())
    return (pair_complex_numbers, *calls, *kept, *common)


def own_passes(mode: Mode) -> tuple[Callable[[Graph], Graph], ...]:
    """Return the passes after the common fusions: what oneDNN's primitives can also absorb."""
    from golow.lower.fuse.epilogue_fusion import fuse_residual
    from golow.lower.fuse.norm_fusion import fuse_batch_norm_relu, fuse_inference_relu
    from golow.lower.fuse.pooling import pool_images
    from golow.lower.fuse.products import scale_products
    from golow.lower.recognise.attention_fusion import name_attention
    from golow.lower.views.row_permutations import order_rows_first

    if mode == "train":
        return (fuse_batch_norm_relu,)
    return (
        fuse_inference_relu,
        scale_products,
        name_attention(attention_kernels()),
        pool_images,
        order_rows_first,
        fuse_residual,
    )


def attention_kernels() -> Kernels:
    """Return which attention golow's kernel computes sooner than products around a softmax: not
    that of a few rows, of which it computes 16 in any case."""
    from golow.levels.direct.onednn.kernels.flash_attention import WIDEST
    from golow.lower.recognise.whole_attention import Kernels

    return Kernels(width=WIDEST, step=1, rows=FEWEST_ROWS)


def refusals(graph: Graph, workload: Workload) -> Iterator[Unsupported]:
    """Yield what the level cannot run of a captured graph, as far as this is known without
    library."""
    from golow.levels.direct.onednn.planning import refused_nodes
    from golow.lower.ir.passes import apply

    return refused_nodes(apply(graph, passes(workload)))


def plan(graph: Graph, workload: Workload, variant: str, cache: Path) -> Plan:
    """Return the plan of a lowered graph. Its layouts are those that an earlier start chose here,
    otherwise those that the library prefers."""
    return _built(graph, workload, cache).plan


def kernels(graph: Graph, workload: Workload, variant: str, cache: Path) -> tuple[str, ...]:
    """Return the generated kernels of that plan, each once."""
    return _built(graph, workload, cache).codes


def _built(graph: Graph, workload: Workload, cache: Path) -> Built:
    from golow.levels.direct.onednn.bindings.library import Engine
    from golow.levels.direct.onednn.planning import build_plan
    from golow.levels.direct.onednn.run import tuning
    from golow.levels.direct.onednn.steps.built_plan import Switches

    layouts = tuning.read(_write_graph(graph, workload, cache) / LAYOUTS, [])
    layouts = layouts or tuning.Layouts(positions={})
    generates = find_compiler() is not None
    return build_plan(graph, Engine(), layouts.tag, Switches(workload.seed), generates)


def _write_lowered(bundle: Bundle, cache: Path) -> Path:
    """Write the bundle's lowered graph and return its cache folder. Raises `Unsupported` for what
    the level cannot run, as far as this is known without its library."""
    from golow.levels.direct.onednn.planning import require_runnable
    from golow.lower.ir.passes import apply

    if bundle.graph is None:
        raise Unsupported("onednn", "the workload could not be captured as a graph")
    graph = apply(bundle.graph, passes(bundle.workload))
    require_runnable(graph)
    return _write_graph(graph, bundle.workload, cache)


def _write_graph(graph: Graph, workload: Workload, cache: Path) -> Path:
    """Write the graph into the cache folder for this graph, library, CPU and number of threads;
    return it."""
    data = encode_graph(msgspec.structs.replace(graph, history=()))
    compiler = find_compiler()  # without one, other steps are timed
    key = f"{version(PACKAGE)} {processor()} {workload.threads} {compiler}".encode()
    folder = cache / "onednn" / hashlib.sha256(data + key).hexdigest()[:32]
    with writing(f"the cache {cache}", CACHE_HINT):
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / GRAPH, data)
    return folder


def _read_choice(layouts: Path) -> Chosen:
    data = read_sealed(layouts, [])
    # If there is none yet, or a damaged one, the worker writes it.
    return Chosen() if data is None else msgspec.json.decode(data, type=Chosen)


def processor() -> str:
    """Return model and instruction sets of the CPU, by which the library chooses its code."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return " ".join(
        line for line in dict.fromkeys(lines) if line.startswith(("model name", "flags"))
    )


LEVEL = Level(
    name="onednn",
    summary="the plan, by direct oneDNN calls; no framework",
    needs="x86-64 CPU, onednn-cpu-gomp",
    probe=probe,
    prepare=prepare,
    from_graph=True,
    passes=passes,
    plan=plan,
    kernels=kernels,
    refusals=refusals,
)
