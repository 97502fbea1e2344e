"""The number to which `jax` commits on a GPU, against what every level gives."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from golow.levels.traced.jax import level as level
from golow.worker.results import weighted_sum, weights
from support.examples import examples

if not level.probe().available:
    pytest.skip("JAX is not installed", allow_module_level=True)

import jax
import jax.numpy as jnp

from golow.levels.traced.jax import weighing

SHAPES = ((), (1,), (7,), (0, 3), (3, 5), (2, 5, 3, 4), (1024,), (41, 53))


@examples(20)
@given(
    shapes=st.lists(st.sampled_from(SHAPES), min_size=1, max_size=3),
    dtype=st.sampled_from(["float32", "bfloat16", "int32", "bool"]),
    seed=st.integers(0, 99),
)
def test_it_is_the_sum_of_every_level(shapes: list[tuple[int, ...]], dtype: str, seed: int) -> None:
    drawn = np.random.default_rng(seed)
    outputs = tuple(
        jnp.asarray(10 * drawn.standard_normal(shape)).astype(dtype) for shape in shapes
    )
    found = float(weighing.compiled_weighing(outputs)(outputs))
    seen = [np.asarray(output).astype(np.float32) for output in outputs]
    size = np.sqrt(sum(np.square(each, dtype=np.float64).sum() for each in seen)) + 1e-30
    assert abs(found - weighted_sum(seen)) <= 1e-6 * size


@pytest.mark.parametrize("start", [0, 11, 2**31 - 9, 2**32 - 3])
def test_the_weights_are_those_of_numpy(start: int) -> None:
    found = np.asarray(jax.jit(weighing.weights, static_argnums=(0, 1))(start, 2048))
    count = min(found.size, 2**32 - start)
    assert np.array_equal(found[:count], weights(start, count))


def test_a_wrong_element_anywhere_is_noticed() -> None:
    outputs = (jnp.ones((8, 700)), jnp.ones(9))
    weigh = weighing.compiled_weighing(outputs)
    right = float(weigh(outputs))
    for place in ((0, 0), (4, 399), (7, 699)):
        wrong = float(weigh((outputs[0].at[place].set(2.0), outputs[1])))
        assert abs(wrong - right) > 1e-3
