"""Runs the plan of the lowered graph by direct calls of cuDNN, cuBLASLt and golow's own kernels, in
one CUDA graph and without a framework."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from golow.levels import gpu
from golow.levels.level import IDLE_NUMPY, Launch, Level, Variant
from golow.levels.probe import Probe
from golow.lower.ir.graph import Graph, encode_graph
from golow.lower.plan.plan import Plan
from golow.records.errors import Unsupported
from golow.records.workload import Mode, Precision, Workload
from golow.storage.files import CACHE_HINT, write_whole, writing
from golow.workload.bundle import Bundle

if TYPE_CHECKING:
    from golow.levels.direct.cudnn.steps.built_plan import Built
    from golow.lower.recognise.whole_attention import Kernels

PACKAGES = ("nvidia-cudnn-frontend", "cuda-core", "cuda-bindings")
GRAPH = "graph.json"  # in the cache folder


def probe() -> Probe:
    """Look for a GPU and the packages, without loading any of them."""
    if not gpu.has_gpu():
        return Probe(False, "there is no NVIDIA GPU", "run it on a machine with one")
    for package in PACKAGES:
        try:
            version(package)
        except PackageNotFoundError:
            return Probe(False, f"{package} is not installed", "pip install 'golow[cudnn]'")
    return Probe(True)


def prepare(bundle: Bundle, variant: str, cache: Path) -> Launch:
    """Lower the graph, and the graph of an epoch's smaller last batch, whose engines are not timed.

    The worker builds the plans from these graphs. On its first start it compiles kernels and
    chooses engines, and caches both by source, shapes, GPU and library.
    """
    folders = [_write_lowered(bundle, variant, cache)]
    if bundle.last is not None:
        folders.append(_write_lowered(bundle.last, "", cache))
    arguments = (*variant.split(), *map(str, folders))
    return Launch(
        (sys.executable, "-m", "golow.levels.direct.cudnn.run.program", *arguments),
        environment=IDLE_NUMPY,
        built_by_loading=folders[0] / "built.json",
        build_measures=variant == "autotune",
    )


def passes(workload: Workload) -> tuple[Callable[[Graph], Graph], ...]:
    """Return the passes that both vendor levels apply to the captured graph, and the fusions that
    have kernels only on a GPU."""
    from golow.levels.direct.cudnn.operators.grouped_product import STEP
    from golow.levels.direct.cudnn.problems.precision import TYPES
    from golow.levels.direct.cudnn.recurrences import keep_faster_recurrences
    from golow.lower.aten.attention_calls import drop_known_masks, share_heads
    from golow.lower.aten.complex_numbers import pair_complex_numbers
    from golow.lower.fuse.common_subexpressions import merge_equal_nodes
    from golow.lower.fuse.epilogue_fusion import fuse_activation, fuse_residual
    from golow.lower.fuse.horizontal_fusion import join_linear_layers
    from golow.lower.fuse.norm_fusion import (
        compact_strided_gradients,
        fuse_batch_norm_activation,
        fuse_gradient_sum,
    )
    from golow.lower.fuse.products import scale_products
    from golow.lower.fuse.releasing import release_activations
    from golow.lower.fuse.tied_weights import add_rows_to_gradients
    from golow.lower.fuse.weight_folding import fold_batch_norm, fold_scale
    from golow.lower.images.plane_convolutions import convolve_side_by_side
    from golow.lower.images.plane_pooling import norm_by_planes, pool_by_planes
    from golow.lower.images.volumes import norm_all_volumes
    from golow.lower.ir.passes import eliminate_dead_code
    from golow.lower.recognise.attention_fusion import name_attention
    from golow.lower.recognise.cross_entropy import name_cross_entropy
    from golow.lower.recognise.group_norm import keep_group_norm
    from golow.lower.recognise.grouped_products import keep_grouped_products
    from golow.lower.recognise.resampling import keep_resampling
    from golow.lower.recognise.rms_norm import name_rms_norm
    from golow.lower.recognise.rolls import name_rolls
    from golow.lower.recognise.unit_norm import name_unit_norm
    from golow.lower.recognise.whole_attention import keep_attention
    from golow.lower.vendor import vendor_passes
    from golow.lower.views.interleaving import split_interleaved
    from golow.lower.views.joined_functions import compute_before_joining
    from golow.lower.views.row_permutations import order_rows_first
    from golow.lower.views.view_sinking import (
        activate_before_views,
        norm_before_views,
        scale_and_add_before_views,
    )

    kernels = attention_kernels(workload.mode, workload.precision)
    tensor_cores = TYPES[workload.precision].convolutions != "ieee"
    further: tuple[Callable[[Graph], Graph], ...] = (
        fuse_batch_norm_activation,
        fuse_gradient_sum,
        compact_strided_gradients,
        name_rms_norm,
        name_rolls,
        compute_before_joining,
        name_cross_entropy,
        add_rows_to_gradients,
    )
    if workload.mode == "infer":
        further = (
            norm_all_volumes,
            norm_before_views,
            fold_batch_norm,
            scale_and_add_before_views,
            fold_scale,
            scale_and_add_before_views,  # the sum that follows
            activate_before_views,
            fuse_activation,
            name_rms_norm,
            name_rolls,
            split_interleaved,
            compute_before_joining,
            eliminate_dead_code,
            order_rows_first,
            fuse_residual,
            scale_products,
            *((name_attention(kernels),) if kernels else ()),
            name_unit_norm,
            release_activations,
            merge_equal_nodes,
            join_linear_layers,
        )
    grouped = workload.mode == "infer" and TYPES[workload.precision].products != "ieee"
    return (
        pair_complex_numbers,
        drop_known_masks,
        share_heads,
        *((keep_grouped_products(STEP),) if grouped else ()),
        *((keep_attention(kernels),) if kernels else ()),
        keep_group_norm,  # instance norm is batch norm of one image in training
        convolve_side_by_side(tensor_cores),
        pool_by_planes,
        norm_by_planes,
        keep_resampling,
        *vendor_passes(workload.mode, workload.optimizer, further, keep_faster_recurrences),
    )


def attention_kernels(mode: Mode, precision: Precision) -> Kernels | None:
    """Return which attention has kernels: cuDNN's are of 16-bit tensors, golow's of float32 with
    tf32 products, whose gradients need a head's rows in registers. None computes in float32."""
    from golow.lower.recognise.whole_attention import CUDNN, CUDNN_IN_TRAINING, Kernels

    if precision in ("bf16", "fp16"):
        return CUDNN if mode == "infer" else CUDNN_IN_TRAINING
    if precision == "tf32":
        return Kernels(width=128 if mode == "infer" else 64)
    return None


def refusals(graph: Graph, workload: Workload) -> Iterator[Unsupported]:
    """Yield what the level cannot run of a captured graph, as far as this is known without
    libraries and GPU."""
    from golow.levels.direct.cudnn.planning import refused_nodes
    from golow.lower.ir.passes import apply

    return refused_nodes(apply(graph, passes(workload)))


def plan(graph: Graph, workload: Workload, variant: str, cache: Path) -> Plan:
    """Return the plan of a lowered graph. Its engines are those that an earlier start of this
    variant chose here; otherwise they are chosen now. Needs the GPU, since it decides which engines
    exist."""
    return _built(graph, workload, variant, cache).plan


def kernels(graph: Graph, workload: Workload, variant: str, cache: Path) -> tuple[str, ...]:
    """Return the generated kernels of that plan as text to read."""
    from golow.levels.direct.cudnn.run.kernel_listing import kernel_texts

    return kernel_texts(_built(graph, workload, variant, cache))


def _built(graph: Graph, workload: Workload, variant: str, cache: Path) -> Built:
    from golow.levels.direct.cudnn.bindings.device import Gpu
    from golow.levels.direct.cudnn.engines.engines import Engines
    from golow.levels.direct.cudnn.planning import build_plan
    from golow.levels.direct.cudnn.problems.precision import TYPES

    home = _write_graph(graph, workload, variant, cache).parent
    autotune = variant == "autotune"
    engines = Engines(Gpu(home / "kernels"), home / "engines", autotune=autotune)
    return build_plan(graph, engines, TYPES[workload.precision], workload.batches)


def _write_lowered(bundle: Bundle, variant: str, cache: Path) -> Path:
    """Write the bundle's lowered graph and return its cache folder. Raises `Unsupported` for what
    the level cannot run, as far as this is known without its libraries."""
    from golow.levels.direct.cudnn.planning import require_runnable
    from golow.lower.ir.passes import apply

    if bundle.graph is None:
        raise Unsupported("cudnn", "the workload could not be captured as a graph")
    workload = bundle.workload
    graph = apply(bundle.graph, passes(workload))
    require_runnable(graph)
    return _write_graph(graph, workload, variant, cache)


def _write_graph(graph: Graph, workload: Workload, variant: str, cache: Path) -> Path:
    """Write the graph into the cache folder for this graph, precision and variant; return it."""
    data = encode_graph(msgspec.structs.replace(graph, history=()))
    versions = " ".join(version(package) for package in PACKAGES)
    key = f"{versions} {workload.precision} {variant}".encode()
    folder = cache / "cudnn" / hashlib.sha256(data + key).hexdigest()[:32]
    with writing(f"the cache {cache}", CACHE_HINT):
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / GRAPH, data)
    return folder


LEVEL = Level(
    name="cudnn",
    summary="the plan, by direct cuDNN and cuBLASLt calls in one CUDA graph; no framework",
    needs="NVIDIA GPU, nvidia-cudnn-frontend, cuda-core",
    probe=probe,
    prepare=prepare,
    from_graph=True,
    passes=passes,
    plan=plan,
    kernels=kernels,
    refusals=refusals,
    devices=("cuda",),
    variants={
        "autotune": Variant("engines chosen by timing them instead of by the library's heuristics")
    },
)
