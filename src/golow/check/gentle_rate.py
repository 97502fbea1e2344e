"""The learning rate of the check's training steps."""

from __future__ import annotations

from golow.check.rule import Reference


def gentle_rate(rate: float, reference: Reference) -> float:
    """The learning rate for the check's training steps, at most the workload's own.

    A step turns the rounding error of the gradients into an error of the weights, and a deep
    network amplifies that until its second step is meaningless. The rate returned keeps the error
    of every weight at or below half of what the check allows for anyway.
    """
    worst = 0.0
    for name, weight in reference.expected.items():
        kind, _, parameter = name.partition("/")[2].partition("/")
        if kind == "parameter":
            gradient = reference.expected[f"0/gradient/{parameter}"]
            size = max(weight.scale, weight.group_scale)
            worst = max(worst, rate * gradient.precision / size if size else 0.0)
    return rate * min(1.0, reference.working.move / 2 / worst) if worst > 0 else rate
