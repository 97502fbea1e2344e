"""The training step around a forward function: JAX's gradients, and the update in plain JAX."""

from __future__ import annotations

from golow.levels.sources.updates import update_source
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
        kept = {{kind: state[kind][name] for kind in {kept}}}
        changed = update(kept, parameter, gradients[name], rate, new["steps"])
        for kind, value in changed.items():
            new[kind] = {{**new[kind], name: value}}
    return new, loss, outputs, gradients
'''

CLIP = """    norm = jnp.sqrt(sum(jnp.sum(jnp.square(each)) for each in gradients.values()))
    factor = jnp.minimum({clip} / (norm + 1e-6), 1.0)
    gradients = {{name: each * factor for name, each in gradients.items()}}
"""

COUNT = '    new["steps"] = state["steps"] + 1\n'


def step_source(settings: Optimizer) -> str:
    """The source of ``update`` and ``step``."""
    clip = "" if settings.clip is None else CLIP.format(clip=settings.clip)
    count = COUNT if settings.counts_steps else ""
    step = STEP.format(clip=clip, count=count, kept=settings.keeps)
    return f"{update_source(settings, 'jnp')}\n{step}"
