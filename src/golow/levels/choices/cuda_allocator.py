"""How PyTorch takes memory from the GPU: its own cache and that cache's settings, CUDA's pool, or
each tensor from the driver."""

from __future__ import annotations

from typing import Any

from golow.levels.choices.choice import IN_PYTORCH, WITH_TORCH, Alternative, Choice

SETTINGS = "PYTORCH_ALLOC_CONF"  # goes before its older name, PYTORCH_CUDA_ALLOC_CONF
NO_CACHE = "PYTORCH_NO_CUDA_MEMORY_CACHING"
COLLECT = "garbage_collection_threshold:0.8"
SHARE = 0.99  # of the GPU's memory; PyTorch collects only if a share is set
LIMITED = f", at most {SHARE:.0%} of the memory"
CACHED, UNCACHED, POOL = "cached", "not cached", "CUDA's pool (cudaMallocAsync)"


def read(program: Any) -> str:
    """The back end, whether it keeps anything, and the settings that it has parsed."""
    import torch

    if torch.cuda.get_allocator_backend() == "cudaMallocAsync":
        return POOL
    # The weights are on the device: a cache that holds no memory is none.
    if torch.cuda.memory_reserved() == 0:
        return UNCACHED
    settings = _settings()
    segments = torch.cuda.memory_snapshot()  # type: ignore[no-untyped-call]
    expandable = any(segment.get("is_expandable") for segment in segments)
    if expandable != ("expandable_segments:True" in settings):
        settings += " (segments are expandable)" if expandable else " (segments are fixed)"
    share = torch.cuda.get_per_process_memory_fraction()
    if share < 1:
        settings += f", at most {share:.0%} of the memory"
    return f"{CACHED}, {settings}" if settings else CACHED


def _settings() -> str:
    """The settings as PyTorch has parsed them."""
    import torch

    if hasattr(torch._C, "_accelerator_getAllocatorSettings"):
        return str(torch._C._accelerator_getAllocatorSettings())
    # torch 2.11 shows them in the record of its memory alone.
    snapshot = torch.cuda.memory._snapshot()
    return str(snapshot["allocator_settings"]["PYTORCH_CUDA_ALLOC_CONF"])


def _share(program: Any) -> None:
    import torch

    torch.cuda.set_per_process_memory_fraction(SHARE)


def _with(name: str, summary: str, settings: str, value: str = "") -> Alternative:
    return Alternative(
        name=name,
        summary=summary,
        value=value or f"{CACHED}, {settings}",
        environment={SETTINGS: settings},
        shell=f"{SETTINGS}={settings}",
    )


CHOICES = (
    Choice(
        name="cuda_allocator",
        summary="how PyTorch allocates memory on the GPU",
        made_by="PyTorch",
        where="c10/core/AllocatorConfig.h; PyTorch's notes on CUDA, Optimizing memory usage",
        levels=WITH_TORCH,
        devices=("cuda",),
        read=read,
        alternatives=(
            _with(
                "expandable_segments",
                "segments that grow, so that memory fragments less",
                "expandable_segments:True",
            ),
            _with(
                "cuda_malloc_async",
                "CUDA's memory pool instead of PyTorch's cache",
                "backend:cudaMallocAsync",
                POOL,
            ),
            _with(
                "max_split_128",
                "blocks of more than 128 MiB are never split",
                "max_split_size_mb:128",
            ),
            Alternative(
                name="collect_at_80_percent",
                summary="unused blocks are returned when 80% of the memory is in use",
                value=f"{CACHED}, {COLLECT}{LIMITED}",
                environment={SETTINGS: COLLECT},
                call=_share,
                levels=IN_PYTORCH,
                shell=f"{SETTINGS}={COLLECT}",
                python=f"torch.cuda.set_per_process_memory_fraction({SHARE})",
            ),
            Alternative(
                name="no_cuda_cache",
                summary="every tensor by cudaMalloc and cudaFree, which wait for the GPU",
                value=UNCACHED,
                environment={NO_CACHE: "1"},
                shell=f"{NO_CACHE}=1",
                levels=("eager", "torchscript", "libtorch"),  # a CUDA graph needs a cache
            ),
        ),
    ),
)
