"""The optimizers' update of one parameter, with PyTorch's formulas, as plain source."""

from __future__ import annotations

from golow.records.workload import Optimizer


def update_source(settings: Optimizer, module: str) -> str:
    """The source of ``update(kept, parameter, gradient, rate, steps)``, which returns the new
    parameter and what else the optimizer keeps of it, by kind.

    kept: that of before, by kind. steps: how many were made, this one included. module: the name of
    what has ``square``, ``sqrt`` and ``expm1``.
    """
    body = {"sgd": _sgd, "rmsprop": _rmsprop}.get(settings.name, _adam)(settings)
    lines = "".join(f"    {line}\n" for line in body).replace("MATH.", f"{module}.")
    return f'def update(kept, parameter, gradient, rate, steps):\n    """{settings}."""\n{lines}'


def _decay(settings: Optimizer) -> list[str]:
    decay = settings.weight_decay
    return [f"gradient = gradient + {decay!r} * parameter"] if decay else []


def _sgd(settings: Optimizer) -> list[str]:
    lines = _decay(settings)
    if not settings.momentum:
        return [*lines, 'return {"parameter": parameter - rate * gradient}']
    factor = repr(settings.momentum)
    lines += [f'momentum = {factor} * kept["momentum"] + gradient']
    change = f"(gradient + {factor} * momentum)" if settings.nesterov else "momentum"
    return [
        *lines,
        f'return {{"parameter": parameter - rate * {change}, "momentum": momentum}}',
    ]


def _rmsprop(settings: Optimizer) -> list[str]:
    smoothing = repr(settings.smoothing)
    lines = [
        *_decay(settings),
        f'square = {smoothing} * kept["square"]'
        f" + {1 - settings.smoothing!r} * MATH.square(gradient)",
        f"change = gradient / (MATH.sqrt(square) + {settings.epsilon!r})",
    ]
    if not settings.momentum:
        return [*lines, 'return {"parameter": parameter - rate * change, "square": square}']
    return [
        *lines,
        f'momentum = {settings.momentum!r} * kept["momentum"] + change',
        "moved = parameter - rate * momentum",
        'return {"parameter": moved, "square": square, "momentum": momentum}',
    ]


def _adam(settings: Optimizer) -> list[str]:
    """``expm1``: in 32 bits ``1 - beta ** 1`` has lost half of its digits."""
    first, second = settings.betas
    decay = settings.weight_decay
    lines = _decay(settings)
    if settings.name == "adamw":
        lines = [f"parameter = parameter * (1 - rate * {decay!r})"] if decay else []

    def correction(beta: float) -> str:
        return f"-MATH.expm1(steps * {_logarithm(beta)})"

    return [
        *lines,
        f'momentum = {first!r} * kept["momentum"] + {1 - first!r} * gradient',
        f'square = {second!r} * kept["square"] + {1 - second!r} * MATH.square(gradient)',
        f"mean = momentum / ({correction(first)})",
        f"root = MATH.sqrt(square) / MATH.sqrt({correction(second)})",
        f"moved = parameter - rate * mean / (root + {settings.epsilon!r})",
        'return {"parameter": moved, "momentum": momentum, "square": square}',
    ]


def _logarithm(beta: float) -> str:
    return f"math.log({beta!r})" if beta else "-math.inf"
