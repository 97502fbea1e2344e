"""The training step around a forward function: JAX's gradients, and the update in plain JAX."""

from __future__ import annotations

from golow.levels.traced.updates import update_source
from golow.records.workload import Workload

STEP = '''
def step(state, batch, rate, active):
    """One training step: the new state, the loss, the outputs and the gradients."""
    key, draws = jax.random.split(state["key"])
{differentiate}{clip}    new = {{**state, "key": key, "buffer": buffers}}
{count}    for name, parameter in state["parameter"].items():
        kept = {{kind: state[kind][name] for kind in {kept}}}
        changed = update(kept, parameter, gradients[name], rate, new["steps"])
        for kind, value in changed.items():
            new[kind] = {{**new[kind], name: value}}
{rescale}    return new, loss, outputs, gradients
'''

DIFFERENTIATE = """    differentiated = jax.value_and_grad(forward, has_aux=True)
    (loss, (outputs, buffers)), gradients = differentiated(
        state["parameter"], state["buffer"], batch, draws, active
    )
"""

# Gradients in float16 vanish below 6e-8, so that the loss is scaled up.
DIFFERENTIATE_SCALED = """    scale = state["scale"]

    def scaled(parameters):
        loss, found = forward(parameters, state["buffer"], batch, draws, active)
        return loss * scale, (loss, found)

    differentiated = jax.value_and_grad(scaled, has_aux=True)
    (_, (loss, (outputs, buffers))), gradients = differentiated(state["parameter"])
    gradients = {name: each / scale for name, each in gradients.items()}
    finite = jnp.all(jnp.array([jnp.all(jnp.isfinite(each)) for each in gradients.values()]))
"""

# Loss scaling as torch.amp.GradScaler does it by default: a step whose gradients are not all finite
# changes no parameter and halves the scale; it doubles after 2000 others.
RESCALE = """    skipped = {**state, "key": key, "buffer": buffers}
    new = jax.tree.map(lambda one, other: jnp.where(finite, one, other), new, skipped)
    good = jnp.where(finite, state["good_steps"] + 1, 0)
    grown = jnp.where(good == 2000, scale * 2, scale)
    new["scale"] = jnp.where(finite, grown, scale / 2)
    new["good_steps"] = jnp.where(good == 2000, 0, good)
"""

CLIP = """    norm = jnp.sqrt(sum(jnp.sum(jnp.square(each)) for each in gradients.values()))
    factor = jnp.minimum({clip} / (norm + 1e-6), 1.0)
    gradients = {{name: each * factor for name, each in gradients.items()}}
"""

COUNT = '    new["steps"] = state["steps"] + 1\n'


def step_source(workload: Workload) -> str:
    """The source of ``update`` and ``step``."""
    settings = workload.optimizer
    scales = scales_loss(workload)
    step = STEP.format(
        differentiate=DIFFERENTIATE_SCALED if scales else DIFFERENTIATE,
        clip="" if settings.clip is None else CLIP.format(clip=settings.clip),
        count=COUNT if settings.counts_steps else "",
        kept=settings.keeps,
        rescale=RESCALE if scales else "",
    )
    return f"{update_source(settings, 'jnp')}\n{step}"


def scales_loss(workload: Workload) -> bool:
    """True if the loss is scaled, since gradients in half precision may vanish."""
    return workload.mode == "train" and workload.precision == "fp16"
