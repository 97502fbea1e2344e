"""A workload's precision in JAX's terms."""

from __future__ import annotations

from typing import NamedTuple

from golow.records.workload import Precision, Workload


class Products(NamedTuple):
    """JAX's precisions of matrix products and convolutions of float32 numbers on a GPU: ``highest``
    is IEEE float32, ``default`` TF32.

    Source: https://docs.jax.dev/en/latest/jax.lax.html#jax.lax.Precision
    """

    matrices: str
    convolutions: str


PRODUCTS: dict[Precision, Products] = {
    "default": Products("highest", "default"),  # PyTorch's own choice
    "ieee": Products("highest", "highest"),
    "tf32": Products("default", "default"),
    "bf16": Products("default", "default"),  # of numbers in half precision, there is no other
    "fp16": Products("default", "default"),
}


def products(workload: Workload) -> Products | None:
    """The workload's; None on a CPU, which has only one."""
    return PRODUCTS[workload.precision] if workload.device == "cuda" else None
