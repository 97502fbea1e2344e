"""Is it JAX that the level `jax` measures? ResNet-50 beside one that was written in JAX by hand.

    python benchmarks/jax_by_hand.py                    # a CPU: two small points
    python benchmarks/jax_by_hand.py --device cuda      # seven points in tf32 and bf16

By hand: one jitted program, images and filters with the channels last, in inference the batch norms
folded into the convolutions; the weights are an argument, and in inference also constants. golow:
the source that it wrote for the same network, precision and size, as it iterates it. All alternate
in one process without PyTorch. Printed are milliseconds an iteration, the median of blocks of
enqueued calls with one wait each, and golow's over that by hand, the median over rounds.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from itertools import cycle
from pathlib import Path
from time import perf_counter_ns
from typing import Any

from jax_host_time import golows, prepared, waited

POINTS = {
    "cuda": (
        ("infer", "bf16", 32, 32), ("infer", "bf16", 256, 224), ("infer", "tf32", 256, 224),
        ("train", "bf16", 32, 224), ("train", "bf16", 256, 224),
        ("train", "tf32", 32, 224), ("train", "tf32", 256, 224),
    ),
    "cpu": (("infer", "default", 2, 64), ("train", "default", 2, 64)),
}  # fmt: skip
ROUNDS, BLOCK_SECONDS = 15, 0.2
STAGES = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))
EPSILON, MOMENTUM, RATE = 1e-5, 0.9, 0.01

Iterate = Callable[[], Any]


def main() -> None:
    """Prepare each point, and measure it in a worker's environment."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", choices=tuple(POINTS), default="cpu")
    parser.add_argument("--measure", nargs=5, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure is not None:
        source, bundle, precision, batch, size = given.measure
        measure(Path(source), Path(bundle), precision, int(batch), int(size))
        return
    from golow.workload.request import Request

    for mode, precision, batch, size in POINTS[given.device]:
        print(f"{mode} {precision} {batch}x{size}", flush=True)
        options: dict[str, Any] = {"device": given.device, "precision": precision, "mode": mode}
        workload = Request("resnet50", batch=batch, resolution=size, **options)
        with tempfile.TemporaryDirectory() as folder:
            source, bundle, environment = prepared(workload, Path(folder))
            point = [source, bundle, precision, str(batch), str(size)]
            command = [sys.executable, __file__, "--measure", *point]
            subprocess.run(command, env={**os.environ, **environment}, check=True)


# ---------------------------------------------------------------- in the process without PyTorch


def measure(source: Path, bundle: Path, precision: str, batch: int, size: int) -> None:
    """Print the variants' times."""
    import jax

    from golow.levels.traced.jax.program import Jax

    program = Jax("plain", source)
    program.load(bundle)
    jax.config.update("jax_default_matmul_precision", program.execution.module.PRECISION)
    variants = {"golow": partial(golows, program)}
    if program.train:
        variants["by hand"] = training(batch, size, precision)
    else:
        frozen = Jax("freezing", source)
        frozen.load(bundle)
        variants["golow, freezing"] = partial(golows, frozen)
        variants |= inference(batch, size, precision)
    report(variants)


def report(variants: dict[str, Iterate]) -> None:
    """Blocks of all variants in turn."""
    calls, times = {}, {name: [] for name in variants}
    for name, iterate in variants.items():
        waited(iterate, 10)
        calls[name] = max(1, round(BLOCK_SECONDS / block(iterate, 5)))
    for _ in range(ROUNDS):
        for name, iterate in variants.items():
            times[name].append(block(iterate, calls[name]))
    for name, taken in times.items():
        print(f"  {name:20} {statistics.median(taken) * 1e3:9.3f} ms", flush=True)
    for ours, theirs in (("golow", "by hand"), ("golow, freezing", "by hand, constants")):
        if ours in times:
            ratios = sorted(a / b for a, b in zip(times[ours], times[theirs], strict=True))
            spread = f"{ratios[0]:.3f} to {ratios[-1]:.3f}"
            print(f"  {ours} / {theirs}: {statistics.median(ratios):.3f} ({spread})", flush=True)


def block(iterate: Iterate, calls: int) -> float:
    """Seconds of one of so many calls."""
    start = perf_counter_ns()
    waited(iterate, calls)
    return (perf_counter_ns() - start) / calls / 1e9


# ---------------------------------------------------------------- ResNet-50 by hand


def inference(batch: int, size: int, precision: str) -> dict[str, Iterate]:
    """The weights as an argument, and as constants."""
    import jax

    kind = storage(precision)
    weights = jax.tree.map(lambda each: each.astype(kind), drawn(norms=False))
    images = batches(batch, size, kind)
    program = jax.jit(lambda weights, image: network(weights, image, folded))
    constant = jax.jit(lambda image: network(weights, image, folded))
    return {
        "by hand": lambda: program(weights, next(images)),
        "by hand, constants": lambda: constant(next(images)),
    }


def training(batch: int, size: int, precision: str) -> Iterate:
    """Steps of SGD with momentum; weights in float32, convolutions in the precision."""
    import jax
    import jax.numpy as jnp

    kind = storage(precision)
    images = batches(batch, size, jnp.float32)
    labels = jnp.arange(batch) % 1000

    def loss_of(weights: Any, running: Any, image: Any) -> Any:
        updated: list[Any] = []
        layer = partial(normalized, kind=kind, running=iter(running), updated=updated)
        scores = jax.nn.log_softmax(network(weights, image.astype(kind), layer).astype("float32"))
        return -scores[jnp.arange(batch), labels].mean(), updated

    def step(state: Any, image: Any) -> Any:
        weights, momentum, running = state
        gradient = jax.value_and_grad(loss_of, has_aux=True)
        (loss, running), slope = gradient(weights, running, image)
        momentum = jax.tree.map(lambda m, g: MOMENTUM * m + g, momentum, slope)
        weights = jax.tree.map(lambda w, m: w - RATE * m, weights, momentum)
        return (weights, momentum, running), loss

    weights = drawn(norms=True)
    momentum = jax.tree.map(jnp.zeros_like, weights)
    running = [(jnp.zeros(n), jnp.ones(n)) for n in channels()]
    program = jax.jit(step, donate_argnums=0)
    held = [(weights, momentum, running)]

    def iterate() -> Any:
        held[0], loss = program(held[0], next(images))
        return loss

    return iterate


def storage(precision: str) -> Any:
    """What convolutions read."""
    import jax.numpy as jnp

    return jnp.bfloat16 if precision == "bf16" else jnp.float32


def batches(batch: int, size: int, kind: Any) -> Iterator[Any]:
    """Two batches in turn, on the device, channels last."""
    import jax

    keys = jax.random.split(jax.random.key(1))
    return cycle([jax.random.normal(key, (batch, size, size, 3)).astype(kind) for key in keys])


def layers() -> Iterator[tuple[int, int, int]]:
    """(side of the filter, inputs, outputs) of every convolution, in the order of `network`."""
    yield 7, 3, 64
    width = 64
    for inner, blocks, _ in STAGES:
        for number in range(blocks):
            if number == 0:
                yield 1, width, 4 * inner
            yield from ((1, width, inner), (3, inner, inner), (1, inner, 4 * inner))
            width = 4 * inner


def channels() -> Iterator[int]:
    """Outputs of every convolution."""
    return (outputs for _, _, outputs in layers())


def drawn(norms: bool) -> Any:
    """Weights: a filter and a shift, or a filter, scale and shift, of each layer; and the head."""
    import jax
    import jax.numpy as jnp

    keys = iter(jax.random.split(jax.random.key(0), 64))

    def filters(side: int, inputs: int, outputs: int) -> Any:
        gain = (2 / (side * side * inputs)) ** 0.5
        return gain * jax.random.normal(next(keys), (side, side, inputs, outputs))

    def layer(side: int, inputs: int, outputs: int) -> Any:
        scale = (jnp.ones(outputs),) if norms else ()
        return (filters(side, inputs, outputs), *scale, jnp.zeros(outputs))

    head = (jax.random.normal(next(keys), (2048, 1000)) / 45, jnp.zeros(1000))
    return [layer(*each) for each in layers()], head


def network(weights: Any, image: Any, layer: Callable[..., Any]) -> Any:
    """Scores of the 1,000 classes; stride on the 3x3 convolution, as torchvision's."""
    import jax
    import jax.numpy as jnp

    rest, (matrix, bias) = iter(weights[0]), weights[1]
    x = jax.nn.relu(layer(next(rest), image, 2))
    corners = ((0, 0), (1, 1), (1, 1), (0, 0))
    x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 3, 3, 1), (1, 2, 2, 1), corners)
    for _, blocks, first in STAGES:
        for number in range(blocks):
            stride = 1 if number else first
            short = x if number else layer(next(rest), x, stride)
            y = jax.nn.relu(layer(next(rest), x, 1))
            y = jax.nn.relu(layer(next(rest), y, stride))
            x = jax.nn.relu(layer(next(rest), y, 1) + short)
    return x.mean((1, 2)) @ matrix.astype(x.dtype) + bias.astype(x.dtype)


def convolved(x: Any, filters: Any, stride: int) -> Any:
    """Padding as PyTorch's."""
    import jax

    before = filters.shape[0] // 2
    padding = [(before, before)] * 2
    order = ("NHWC", "HWIO", "NHWC")
    return jax.lax.conv_general_dilated(
        x, filters, (stride, stride), padding, dimension_numbers=order
    )


def folded(weights: Any, x: Any, stride: int) -> Any:
    """A convolution whose batch norm is in its weights."""
    filters, shift = weights
    return convolved(x, filters, stride) + shift


def normalized(
    weights: Any, x: Any, stride: int, *, kind: Any, running: Iterator[Any], updated: list[Any]
) -> Any:
    """A convolution and its batch norm over this batch, computed in float32."""
    import jax

    filters, scale, shift = weights
    y = convolved(x, filters.astype(kind), stride).astype("float32")
    mean = y.mean((0, 1, 2))
    variance = (y * y).mean((0, 1, 2)) - mean * mean
    old_mean, old_variance = next(running)
    updated.append((0.9 * old_mean + 0.1 * mean, 0.9 * old_variance + 0.1 * variance))
    factor = scale * jax.lax.rsqrt(variance + EPSILON)
    return ((y - mean) * factor + shift).astype(kind)


if __name__ == "__main__":
    main()
