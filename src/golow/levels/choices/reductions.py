"""The precision in which cuBLAS adds up products of half precision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from golow.levels.choices.choice import WITH_TORCH, Alternative, Choice

ALLOWED, FULL, HALF = "may be reduced", "float32", "float16"
BUILT_BY = ("compile",)  # the key of Inductor's cache has these flags


def _reads(flag: str, on: str, off: str) -> Callable[[Any], str]:
    def read(program: Any) -> str:
        import torch

        return on if getattr(torch.backends.cuda.matmul, flag) else off

    return read


def _sets(flag: str, allowed: bool) -> Callable[[Any], None]:
    def call(program: Any) -> None:
        import torch

        setattr(torch.backends.cuda.matmul, flag, allowed)

    return call


def _reduction(dtype: str, name: str) -> Choice:
    flag = f"allow_{dtype}_reduced_precision_reduction"
    full = Alternative(
        name=f"full_{dtype}_reductions",
        summary=f"sums of {name} products entirely in float32",
        value=FULL,
        call=_sets(flag, False),
        rebuilds=True,
        built_by=BUILT_BY,
        python=f"torch.backends.cuda.matmul.{flag} = False",
        cpp=f"at::globalContext().setAllow{dtype.upper()}ReductionCuBLAS(false);",
    )
    return Choice(
        name=f"{dtype}_reductions",
        summary=f"whether partial sums of {name} products may be rounded to {name}",
        made_by="PyTorch",
        where=f"torch.backends.cuda.matmul.{flag}, on",
        levels=WITH_TORCH,
        devices=("cuda",),
        read=_reads(flag, ALLOWED, FULL),
        changes_results=True,
        alternatives=(full,),
    )


ACCUMULATION = "allow_fp16_accumulation"
CHOICES = (
    _reduction("bf16", "bfloat16"),
    _reduction("fp16", "float16"),
    Choice(
        name="fp16_accumulation",
        summary="the precision in which float16 matrix products are accumulated",
        made_by="PyTorch",
        where=f"torch.backends.cuda.matmul.{ACCUMULATION}, off",
        levels=WITH_TORCH,
        devices=("cuda",),
        read=_reads(ACCUMULATION, HALF, FULL),
        changes_results=True,
        costs="precision: sums are rounded to 10 bits of mantissa and may overflow",
        alternatives=(
            Alternative(
                name="fp16_accumulation",
                summary="float16 matrix products accumulated in float16",
                value=HALF,
                call=_sets(ACCUMULATION, True),
                rebuilds=True,
                built_by=BUILT_BY,
                python=f"torch.backends.cuda.matmul.{ACCUMULATION} = True",
                cpp="at::globalContext().setAllowFP16AccumulationCuBLAS(true);",
            ),
        ),
    ),
)
