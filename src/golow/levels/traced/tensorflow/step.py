"""The training step around a forward function: a gradient tape, and the update in plain
TensorFlow."""

from __future__ import annotations

from golow.levels.traced.updates import update_source
from golow.records.workload import Optimizer

STEP = '''
def step(state, batch, rate, active):
    """One training step, which changes the state: the loss, the outputs and the gradients."""
    parameters, buffers = state["parameter"], state["buffer"]
    key = state["key"].assign_add([0, 1])
    with tf.GradientTape() as tape:
        loss, (outputs, changed) = forward(parameters, buffers, batch, key, active)
    outputs = tuple(map(tf.identity, outputs))  # as they are before the update
    gradients = tape.gradient(
        loss, parameters, unconnected_gradients=tf.UnconnectedGradients.ZERO
    )
    # That of an embedding names rows; the update needs all of them.
    gradients = {{name: tf.convert_to_tensor(each) for name, each in gradients.items()}}
{clip}    steps = state["steps"].assign_add(1.0)
    for name, parameter in parameters.items():
        kept = {{kind: state[kind][name] for kind in {kept}}}
        for kind, value in update(kept, parameter, gradients[name], rate, steps).items():
            state[kind][name].assign(value)
    for name, buffer in buffers.items():
        if changed[name] is not buffer:
            buffer.assign(changed[name])
    return loss, outputs, gradients
'''

CLIP = """    norm = tf.linalg.global_norm(list(gradients.values()))
    factor = tf.minimum({clip} / (norm + 1e-6), 1.0)
    gradients = {{name: each * factor for name, each in gradients.items()}}
"""


def step_source(settings: Optimizer) -> str:
    """The source of ``update`` and ``step``."""
    clip = "" if settings.clip is None else CLIP.format(clip=settings.clip)
    step = STEP.format(clip=clip, kept=settings.keeps)
    return f"{update_source(settings, 'tf.math')}\n{step}"
