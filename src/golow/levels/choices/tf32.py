"""TF32: whether float32 products and convolutions may round their factors (10 bits of mantissa).

golow sets both from the workload's precision ``ieee`` or ``tf32`` and leaves PyTorch's defaults
otherwise. An alternative is set after that, so it wins; the check then decides whether the results
are still those of the workload.
"""

from __future__ import annotations

from typing import Any

from golow.levels.choices.choice import WITH_TORCH, Alternative, Choice

TF32, IEEE = "TF32", "float32"


def products(program: Any) -> str:
    """Report what cuBLAS may use in products of float32."""
    import torch

    return TF32 if torch.backends.cuda.matmul.allow_tf32 else IEEE


def convolutions(program: Any) -> str:
    """Report what cuDNN may use in convolutions of float32."""
    import torch

    return TF32 if torch.backends.cudnn.allow_tf32 else IEEE


def _alternatives(kind: str, flag: str, setter: str) -> tuple[Alternative, ...]:
    def alternative(allowed: bool) -> Alternative:
        def call(program: Any) -> None:
            setattr(program.habits, f"tf32_{kind}", allowed)

        value = TF32 if allowed else IEEE
        return Alternative(
            name=f"{'tf32' if allowed else 'ieee'}_{kind}",
            summary=f"{kind} in {value}",
            value=value,
            call=call,
            rebuilds=True,
            built_by=("compile",),  # Inductor picks kernels by these flags
            python=f"torch.backends.{flag}.allow_tf32 = {allowed}",
            cpp=f"at::globalContext().{setter}({str(allowed).lower()});",
        )

    return alternative(True), alternative(False)


CHOICES = (
    Choice(
        name="tf32_products",
        summary="whether float32 matrix products may be computed in TF32",
        made_by="PyTorch",
        where="torch.backends.cuda.matmul.allow_tf32, off since 1.12",
        levels=WITH_TORCH,
        devices=("cuda",),
        read=products,
        likely=True,
        changes_results=True,
        costs="precision: 10 bits of mantissa instead of 23",
        alternatives=_alternatives("products", "cuda.matmul", "setAllowTF32CuBLAS"),
    ),
    Choice(
        name="tf32_convolutions",
        summary="whether float32 convolutions may be computed in TF32",
        made_by="PyTorch",
        where="torch.backends.cudnn.allow_tf32, on",
        levels=WITH_TORCH,
        devices=("cuda",),
        read=convolutions,
        changes_results=True,
        costs="precision: 10 bits of mantissa instead of 23",
        alternatives=_alternatives("convolutions", "cudnn", "setAllowTF32CuDNN"),
    ),
)
