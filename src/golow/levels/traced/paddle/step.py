"""The training step around a forward function: Paddle's gradients, and the update in plain
Paddle."""

from __future__ import annotations

from golow.levels.traced.updates import update_source
from golow.records.workload import Optimizer

STEP = '''
def step(state, batch, rate, active):
    """One training step: the new state, the loss, the outputs and the gradients."""
    parameters = state["parameter"]
    loss, (outputs, buffers) = forward(parameters, state["buffer"], batch, None, active)
    loss.backward()
    with paddle.no_grad():
        gradients = {{
            name: paddle.zeros_like(each) if each.grad is None else each.grad
            for name, each in parameters.items()
        }}
{clip}        new = {{**state, "buffer": buffers}}
{count}        for name, parameter in parameters.items():
            kept = {{kind: state[kind][name] for kind in {kept}}}
            changed = update(kept, parameter, gradients[name], rate, new["steps"])
            for kind, value in changed.items():
                new[kind] = {{**new[kind], name: value}}
    for parameter in new["parameter"].values():
        parameter.stop_gradient = False
    return new, loss, outputs, gradients
'''

CLIP = """        squares = sum(paddle.sum(paddle.square(each)) for each in gradients.values())
        factor = paddle.clip({clip} / (paddle.sqrt(squares) + 1e-6), max=1.0)
        gradients = {{name: each * factor for name, each in gradients.items()}}
"""

COUNT = '        new["steps"] = state["steps"] + 1\n'


def step_source(settings: Optimizer) -> str:
    """The source of ``update`` and ``step``."""
    step = STEP.format(
        clip="" if settings.clip is None else CLIP.format(clip=settings.clip),
        count=COUNT if settings.counts_steps else "",
        kept=settings.keeps,
    )
    return f"{update_source(settings, 'paddle')}\n{step}"
