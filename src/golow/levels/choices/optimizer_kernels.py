"""Which of PyTorch's implementations of the optimizer updates the parameters."""

from __future__ import annotations

from typing import Any

from golow.levels.choices.choice import Alternative, Choice, never_redundant
from golow.records.workload import Workload

KINDS = {
    "for-loop": ("plain_sgd", "one parameter after another", "foreach=False, fused=False"),
    "foreach": ("foreach_sgd", "each operation on all parameters at once", "foreach=True"),
    "fused": ("fused_sgd", "all operations on all parameters in one kernel", "fused=True"),
}


def read(program: Any) -> str:
    """Which implementation ``step`` chooses now."""
    group = program.optimizer.param_groups[0]
    if group.get("fused"):  # RMSprop has no such kernels
        return "fused"
    if group["foreach"] is not None:
        return "foreach" if group["foreach"] else "for-loop"
    from torch.optim.optimizer import _default_to_fused_or_foreach

    _, foreach = _default_to_fused_or_foreach(group["params"], differentiable=False)
    return "foreach" if foreach else "for-loop"


def _without_fused(workload: Workload) -> str:
    return "RMSprop has no fused kernels" if workload.optimizer.name == "rmsprop" else ""


def _alternative(kind: str) -> Alternative:
    name, summary, arguments = KINDS[kind]

    def call(program: Any) -> None:
        program.habits.optimizer = kind

    return Alternative(
        name=name,
        summary=summary,
        value=kind,
        call=call,
        redundant=_without_fused if kind == "fused" else never_redundant,
        python=f"torch.optim.SGD(model.parameters(), ..., {arguments})",
    )


CHOICES = (
    Choice(
        name="optimizer_kernels",
        summary="which implementation of the optimizer runs",
        made_by="PyTorch",
        where="torch/optim/optimizer.py, _default_to_fused_or_foreach",
        levels=("eager", "torchscript", "compile"),
        modes=("train",),
        read=read,
        likely=True,
        changes_results=True,
        alternatives=tuple(map(_alternative, KINDS)),
    ),
)
