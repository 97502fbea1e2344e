"""Choices of PyTorch's levels that only a GPU has."""

from __future__ import annotations

from golow.levels.choices import all_choices

# What a call sets without a GPU.
FLAGS = (
    "cudnn_benchmark cudnn_deterministic cudnn_enabled tf32_products tf32_convolutions "
    "bf16_reductions fp16_reductions fp16_accumulation attention_kernel"
).split()


# The variables that the driver or cuBLAS reads and nobody returns.
VARIABLES = ("cuda_connections", "cublas_workspace")
OF_A_GPU = {
    *FLAGS,
    *VARIABLES,
    *"autocast_cache batch_source blas_library cuda_allocator cuda_modules cuda_launches".split(),
    *"cuda_stack gpu_persistence gpu_clocks".split(),
}
CHOICES = {choice.name: choice for choice in all_choices() if choice.name in OF_A_GPU}
