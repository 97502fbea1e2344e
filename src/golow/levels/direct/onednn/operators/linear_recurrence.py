"""Linear recurrences and their gradients, by generated kernels or with NumPy."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from golow.levels.direct.implementation import Implementation
from golow.levels.direct.onednn.bindings.library import Descriptor
from golow.levels.direct.onednn.build.builder import Builder
from golow.levels.direct.onednn.kernels import linear_recurrence as kernels
from golow.levels.direct.onednn.steps.array_steps import of_arrays, result, results_of_arrays
from golow.levels.direct.refusing import refuse_integers
from golow.lower.operators.linear_recurrence import LinearRecurrence, LinearRecurrenceBackward


def linear_recurrence(build: Builder, arguments: LinearRecurrence) -> None:
    """The states of all steps."""
    if build.generates:
        read = [build.values.plain(item) for item in (arguments.decay, arguments.x)]
        made = result(build)
        kernel = kernels.forward(*_sizes(made.shape, arguments.axis))
        build.steps.kernel(kernel, read, [made])
        build.values.define(0, made)
        return
    axis = arguments.axis

    def run(decay: Any, x: Any, y: Any) -> None:
        factors, terms, states = (np.moveaxis(item, axis, 0) for item in (decay, x, y))
        states[0] = terms[0]
        for step in range(1, len(terms)):
            states[step] = factors[step] * states[step - 1] + terms[step]

    of_arrays(build, run, arguments.decay, arguments.x)


def linear_recurrence_backward(build: Builder, arguments: LinearRecurrenceBackward) -> None:
    """Both gradients, from the last step to the first."""
    axis, given = arguments.axis, (arguments.gradient, arguments.decay, arguments.states)
    if build.generates:
        read = [build.values.plain(item) for item in given]
        shape = read[0].shape
        plain = Descriptor.plain(shape)
        made = [build.memory.new(f"{build.current.name}.{i}", shape, plain) for i in range(2)]
        build.steps.kernel(kernels.backward(*_sizes(shape, axis)), read, made)
        for index, tensor in enumerate(made):
            build.values.define(index, tensor)
        return

    def run(gradient: Any, decay: Any, states: Any, of_decay: Any, of_x: Any) -> None:
        outer, factors, before = (np.moveaxis(i, axis, 0) for i in (gradient, decay, states))
        carried: Any = 0
        for step in range(len(outer) - 1, -1, -1):
            here = outer[step] + carried
            carried = here * factors[step]
            if of_x is not None:
                np.moveaxis(of_x, axis, 0)[step] = here
            if of_decay is not None:
                np.moveaxis(of_decay, axis, 0)[step] = here * before[step - 1] if step else 0

    results_of_arrays(build, run, given)


def _sizes(shape: tuple[int, ...], axis: int) -> tuple[int, int, int]:
    return math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :])


IMPLEMENTATIONS = (
    Implementation(LinearRecurrence, linear_recurrence, refuse_integers),
    Implementation(LinearRecurrenceBackward, linear_recurrence_backward),
)
