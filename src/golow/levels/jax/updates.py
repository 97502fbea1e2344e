"""The training step around a forward function: JAX's gradients, and the optimizer as optax has it,
with PyTorch's formulas, in plain JAX."""

from __future__ import annotations

from golow.record import Optimizer

STEP = '''
def step(state, batch, rate, active):
    """One training step: the new state, the loss, the outputs and the gradients."""
    key, draws = jax.random.split(state["key"])
    differentiated = jax.value_and_grad(forward, has_aux=True)
    (loss, (outputs, buffers)), gradients = differentiated(
        state["parameter"], state["buffer"], batch, draws, active
    )
{clip}    new = {{**state, "key": key, "buffer": buffers}}
{count}    for name, parameter in state["parameter"].items():
        changed = update(state, new, name, parameter, gradients[name], rate)
        for kind, value in changed.items():
            new[kind] = {{**new[kind], name: value}}
    return new, loss, outputs, gradients
'''

CLIP = """    norm = jnp.sqrt(sum(jnp.sum(jnp.square(each)) for each in gradients.values()))
    factor = jnp.minimum({clip} / (norm + 1e-6), 1.0)
    gradients = {{name: each * factor for name, each in gradients.items()}}
"""

COUNT = '    new["steps"] = state["steps"] + 1\n'


def update_source(settings: Optimizer) -> str:
    """The source of ``update`` and ``step``."""
    clip = "" if settings.clip is None else CLIP.format(clip=settings.clip)
    count = COUNT if settings.counts_steps else ""
    body = {"sgd": _sgd, "rmsprop": _rmsprop}.get(settings.name, _adam)(settings)
    lines = "".join(f"    {line}\n" for line in body)
    first = f'"""{settings}."""'
    head = f"def update(state, new, name, parameter, gradient, rate):\n    {first}\n"
    return f"{head}{lines}\n{STEP.format(clip=clip, count=count)}"


def _decay(settings: Optimizer) -> list[str]:
    decay = settings.weight_decay
    return [f"gradient = gradient + {decay!r} * parameter"] if decay else []


def _sgd(settings: Optimizer) -> list[str]:
    lines = _decay(settings)
    if not settings.momentum:
        return [*lines, 'return {"parameter": parameter - rate * gradient}']
    factor = repr(settings.momentum)
    lines += [f'momentum = {factor} * state["momentum"][name] + gradient']
    change = f"(gradient + {factor} * momentum)" if settings.nesterov else "momentum"
    return [
        *lines,
        f'return {{"parameter": parameter - rate * {change}, "momentum": momentum}}',
    ]


def _rmsprop(settings: Optimizer) -> list[str]:
    smoothing = repr(settings.smoothing)
    lines = [
        *_decay(settings),
        f'square = {smoothing} * state["square"][name]'
        f" + {1 - settings.smoothing!r} * jnp.square(gradient)",
        f"change = gradient / (jnp.sqrt(square) + {settings.epsilon!r})",
    ]
    if not settings.momentum:
        return [*lines, 'return {"parameter": parameter - rate * change, "square": square}']
    return [
        *lines,
        f'momentum = {settings.momentum!r} * state["momentum"][name] + change',
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
        return f'-jnp.expm1(new["steps"] * {_logarithm(beta)})'

    return [
        *lines,
        f'momentum = {first!r} * state["momentum"][name] + {1 - first!r} * gradient',
        f'square = {second!r} * state["square"][name] + {1 - second!r} * jnp.square(gradient)',
        f"mean = momentum / ({correction(first)})",
        f"root = jnp.sqrt(square) / jnp.sqrt({correction(second)})",
        f"moved = parameter - rate * mean / (root + {settings.epsilon!r})",
        'return {"parameter": moved, "momentum": momentum, "square": square}',
    ]


def _logarithm(beta: float) -> str:
    return f"math.log({beta!r})" if beta else "-math.inf"
