"""One spelling over three dialects: the same words in all, every operator in one place, and the
text that each construct becomes. Needs no framework."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

from golow.levels.direct.implementation import Implementation, implementations
from golow.levels.traced import operators as shared
from golow.levels.traced.dialect import Dialect
from golow.levels.traced.jax import operators as of_jax
from golow.levels.traced.jax.dialect import JAX
from golow.levels.traced.jax.operators import pointwise as jax_pointwise
from golow.levels.traced.operators.activation import ACTIVATIONS, OWN
from golow.levels.traced.paddle import operators as of_paddle
from golow.levels.traced.paddle.dialect import PADDLE
from golow.levels.traced.paddle.operators import pointwise as paddle_pointwise
from golow.levels.traced.tensorflow import operators as of_tensorflow
from golow.levels.traced.tensorflow.dialect import TENSORFLOW
from golow.levels.traced.tensorflow.operators import pointwise as tensorflow_pointwise

TEXTS: dict[str, tuple[Callable[[Dialect], str], str, str]] = {
    "a whole number": (lambda d: d.number(2**40), "2147483647", "1099511627776"),
    "a truth": (lambda d: d.number(True), "True", "True"),
    "no number": (lambda d: d.number(float("nan")), "math.nan", "math.nan"),
    "infinite": (lambda d: d.number(-float("inf")), "-math.inf", "-math.inf"),
    "negative": (lambda d: d.operand(-2), "(-2)", "(-2)"),
    "cast to the same": (
        lambda d: d.cast("a + b", "int64", "int64"),
        "(a + b).astype(jnp.int32)",
        "a + b",
    ),
    "cast": (
        lambda d: d.cast("a + b", "int64", "float32"),
        "(a + b).astype(jnp.float32)",
        "tf.cast(a + b, tf.float32)",
    ),
    "filled with a truth": (
        lambda d: d.filled((2, 3), True, "bool"),
        "jnp.full((2, 3), True, jnp.bool_)",
        "tf.fill((2, 3), tf.constant(True, tf.bool))",
    ),
    "filled with a whole number": (
        lambda d: d.filled([2], 3.0, "int32"),
        "jnp.full((2,), 3, jnp.int32)",
        "tf.fill((2,), tf.constant(3, tf.int32))",
    ),
    "counted": (lambda d: d.counted(5, "int64"), "jnp.arange(5)", "tf.range(5, dtype=tf.int64)"),
    "transposed": (
        lambda d: d.transposed("x", [1, 0]),
        "jnp.transpose(x, (1, 0))",
        "tf.transpose(x, (1, 0))",
    ),
    "concatenated": (
        lambda d: d.concatenated(["a"], 1),
        "jnp.concatenate((a,), axis=1)",
        "tf.concat([a], axis=1)",
    ),
    "padded and cut": (
        lambda d: d.padded("x", "float32", [(4, 1, 0), (5, -1, 2)], 0.0),
        "lax.pad(x, jnp.array(0.0, x.dtype), ((1, 0, 0), (-1, 2, 0),))",
        "tf.pad(x[0:4, 1:5], ((1, 0), (0, 2)), constant_values=tf.constant(0.0, tf.float32))",
    ),
    "sliced": (
        lambda d: d.sliced("x", 1, 0, 4, 2),
        "lax.slice_in_dim(x, 0, 4, 2, axis=1)",
        "x[:, 0:4:2]",
    ),
    "reduced": (
        lambda d: d.reduced("mean", "x", (1,), keep=True),
        "jnp.mean(x, axis=(1,), keepdims=True)",
        "tf.reduce_mean(x, axis=(1,), keepdims=True)",
    ),
    "truths reduced": (
        lambda d: d.reduced("maximum", "x", (0, 1), False, "bool"),
        "jnp.max(x, axis=(0, 1))",
        "tf.reduce_any(x, axis=(0, 1))",
    ),
    "affine, of rows": (
        lambda d: d.affine("x", "w", "b", (4, 5), 7),
        "x @ w.T + b",
        "tf.nn.bias_add(tf.matmul(x, w, transpose_b=True), b)",
    ),
    "affine, of several axes": (
        lambda d: d.affine("x", "w", None, (2, 4, 5), 7),
        "x @ w.T",
        "tf.reshape(tf.matmul(tf.reshape(x, (-1, 5)), w, transpose_b=True), (2, 4, 7))",
    ),
    "the mean of windows": (
        lambda d: d.mean_of_windows("x", (2, 3)),
        "lax.reduce_window(x, 0.0, lax.add, (1, 2, 3, 1), (1, 2, 3, 1), "
        "((0, 0), (0, 0), (0, 0), (0, 0))) / 6",
        'tf.nn.avg_pool2d(x, (2, 3), (2, 3), "VALID")',
    ),
}

IMPORTED_ALONE = """
import sys
from golow.lower.ir.operator import modules_in
from golow.levels.traced import operators
from golow.levels.traced.jax import operators as of_jax
from golow.levels.traced.paddle import operators as of_paddle
from golow.levels.traced.tensorflow import operators as of_tensorflow
for package in (operators, of_jax, of_paddle, of_tensorflow):
    assert list(modules_in(package))
writers = {f"golow.levels.traced.{level}.writer" for level in ("jax", "paddle", "tensorflow")}
print(sorted(writers & sys.modules.keys()))
"""


@pytest.mark.parametrize("name", TEXTS)
def test_each_dialect_has_its_text(name: str) -> None:
    spelled, jax, tensorflow = TEXTS[name]
    assert spelled(JAX) == jax
    assert spelled(TENSORFLOW) == tensorflow


@pytest.mark.parametrize("dialect", [JAX, TENSORFLOW, PADDLE], ids=lambda dialect: dialect.level)
def test_a_dialect_has_the_activations_that_are_not_spelled_alike(dialect: Dialect) -> None:
    """What `refuse` lets through without asking the dialect."""
    assert set(dialect.activations) == OWN
    assert not ACTIVATIONS.keys() & OWN


def test_all_frameworks_have_the_same_functions_of_elements() -> None:
    assert jax_pointwise.FUNCTIONS.keys() == tensorflow_pointwise.FUNCTIONS.keys()
    assert jax_pointwise.FUNCTIONS.keys() == paddle_pointwise.FUNCTIONS.keys()


@pytest.mark.parametrize(
    ("spelled", "wanted"),
    [
        (PADDLE.reduced("mean", "x", (1,), True), "paddle.mean(x, axis=(1,), keepdim=True)"),
        (PADDLE.reduced("maximum", "x", (0, 1), False, "bool"), "paddle.any(x, axis=(0, 1))"),
        (PADDLE.reduced("maximum", "x", (0, 2), False, rank=4), "paddle.amax(x, axis=(0, 2))"),
        (
            PADDLE.reduced("maximum", "x", (0, 2), False, rank=5),
            "paddle.amax(paddle.amax(x, axis=2), axis=0)",
        ),
        (
            PADDLE.padded("x", "bool", [(4, 1, 0), (5, -1, 2)], 1),
            "paddle.cast(F.pad(paddle.cast(x[0:4, 1:5], paddle.int32), [1, 0, 0, 2], value=1), "
            "paddle.bool)",
        ),
        (
            PADDLE.affine("x", "w", "b", (2, 4, 5), 7),
            "paddle.matmul(x, w, transpose_y=True) + b",
        ),
        (PADDLE.layer_norm("x", (5,), "w", None, 1e-5), "F.layer_norm(x, (5,), w, None, 1e-05)"),
    ],
)
def test_paddle_has_its_text(spelled: str, wanted: str) -> None:
    assert spelled == wanted


def test_no_operator_is_spelled_twice() -> None:
    """A framework's own spelling would take the place of the shared one unseen."""
    for own in (of_jax, of_paddle, of_tensorflow):
        assert written_twice(implementations(shared), implementations(own)) == set()


def test_an_operator_that_is_spelled_twice_is_seen() -> None:
    found = implementations(shared)
    planted = implementations(of_jax) | {"golow.reshape": found["golow.reshape"]}
    assert written_twice(found, planted) == {"golow.reshape"}


def test_operators_do_not_load_what_lists_them() -> None:
    found = subprocess.run(
        [sys.executable, "-c", IMPORTED_ALONE], capture_output=True, text=True, check=True
    )
    assert found.stdout.strip() == "[]"


def written_twice(one: dict[str, Implementation], other: dict[str, Implementation]) -> set[str]:
    return one.keys() & other.keys()
