"""What the host pays for an iteration of the level `jax`, beside JAX written by hand.

    python benchmarks/jax_host_time.py                  # a CPU: 200 small weights
    python benchmarks/jax_host_time.py --device cuda    # ResNet-50 in bf16, 32 images of 32x32
    python benchmarks/jax_host_time.py --device cuda --model resnet18 --precision ieee

Every variant runs the source that golow wrote, on the workload's batches in turn: golow's own
iteration, in inference also that of ``jax:freezing``; ``jax.jit`` with the weights as a dict, as
most programs pass them, and as a tuple; and in inference as a tuple in the layouts that XLA
chooses, and as constants of the program. They alternate in one process without PyTorch; the minima
are printed, in microseconds.

On a CPU a call computes, too, and its time is that of the calling thread. On a GPU ``call`` is a
call that finds nothing enqueued, ``one of 20`` the share of 20 calls and one wait. XLA holds a call
back while 32 programs are enqueued; so the time of a call in a long loop is the device's.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

LAYERS, WIDTH = 100, 8
ROUNDS, CALLS, ENQUEUED = 100, 5, 20

Iterate = Callable[[], Any]


def main() -> None:
    """Prepare both modes and measure each in a worker's environment."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--model", default="resnet50", help="on a GPU")
    parser.add_argument("--precision", default="bf16", help="on a GPU")
    parser.add_argument("--measure", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure is not None:
        measure(*map(Path, given.measure))
        return
    with tempfile.TemporaryDirectory() as folder:
        for mode in ("infer", "train"):
            print(mode, flush=True)
            source, bundle, environment = prepared(request(given, mode), Path(folder) / mode)
            command = [sys.executable, __file__, "--measure", source, bundle]
            subprocess.run(command, env={**os.environ, **environment}, check=True)


def prepared(workload: Any, folder: Path) -> tuple[str, str, dict[str, str]]:
    """The folders of the written source and the bundle, and the worker's environment."""
    from golow.levels.traced.jax import level as jax
    from golow.lower.ir.clean_up import CLEAN_UP
    from golow.lower.ir.pass_runner import apply
    from golow.workload.bundle import write_bundle
    from golow.workload.graph_capture import capture
    from golow.workload.prepare import prepare

    bundle, whole = write_bundle(prepare(workload), folder)
    captured = capture(whole)
    bundle.write_graph(apply(captured.graph, CLEAN_UP), captured.constants)
    variant = "" if workload.mode == "train" else jax.FREEZING  # the environment of both
    launch = jax.prepare(bundle, variant, folder / "cache")
    return launch.command[4], str(bundle.folder), dict(launch.environment)


def request(given: argparse.Namespace, mode: Any) -> Any:
    """The workload: on a CPU layers beside one another, so that no gradient vanishes."""
    import torch
    from torch import nn

    from golow.workload.request import Request

    if given.device == "cuda":
        options = {"device": "cuda", "precision": given.precision}
        return Request(given.model, mode=mode, batch=32, resolution=32, **options)

    class Wide(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return sum((layer(x) for layer in self.layers), torch.zeros(()))

    loss = "mse_loss" if mode == "train" else None
    return Request(Wide(), torch.randn(4, WIDTH), mode=mode, loss=loss, threads=1)


# ---------------------------------------------------------------- in the process without PyTorch


def measure(source: Path, bundle: Path) -> None:
    """Print the variants' minima."""
    from golow.levels.traced.jax.program import Jax

    program = Jax("plain", source)
    program.load(bundle)
    variants = {"golow": partial(golows, program), **dict(others(program))}
    if not program.train:
        frozen = Jax("freezing", source)
        frozen.load(bundle)
        variants["golow, freezing"] = partial(golows, frozen)
    on_cpu = program.workload.device == "cpu"
    found: dict[str, dict[str, float]] = {}
    for iterate in variants.values():
        waited(iterate, 20)
    for _ in range(ROUNDS):
        for name, iterate in variants.items():
            for what, taken in samples(iterate, on_cpu):
                times = found.setdefault(name, {})
                times[what] = min(times.get(what, taken), taken)
    for name, times in found.items():
        print(f"  {name:24}", *(f"{what} {ns / 1e3:8.1f}" for what, ns in times.items()))
    print(json.dumps({"arrays": len(arrays(program))}), flush=True)


def samples(iterate: Iterate, on_cpu: bool) -> Iterator[tuple[str, float]]:
    """Nanoseconds of a call, some times; on a GPU also of one among many."""
    clock = time.thread_time_ns if on_cpu else time.perf_counter_ns
    for _ in range(CALLS):
        start = clock()
        result = iterate()
        if on_cpu:
            result.block_until_ready()
        yield "call", clock() - start
        result.block_until_ready()
    if not on_cpu:
        start = clock()
        waited(iterate, ENQUEUED)
        yield f"one of {ENQUEUED}", (clock() - start) / ENQUEUED


def waited(iterate: Iterate, calls: int) -> None:
    """Call so often, then wait for the last."""
    for _ in range(calls):
        result = iterate()
    result.block_until_ready()


def golows(program: Any) -> Any:
    """An iteration as golow times it; a result to wait for."""
    program.iterate()
    return program.execution.enqueued[0]


def arrays(program: Any) -> list[Any]:
    """What a program gets and keeps, beside the batch."""
    import jax

    execution = program.execution
    found: list[Any] = jax.tree.leaves(execution.state if program.train else execution.weights)
    return found


def others(program: Any) -> Iterator[tuple[str, Iterate]]:
    """What a JAX user would write around the same source."""
    import jax

    execution = program.execution
    jax.config.update("jax_default_matmul_precision", execution.module.PRECISION)
    batches = cycle([execution.put_batch(batch) for batch in program._arrays])
    by_hand = by_hand_in_training if program.train else by_hand_in_inference
    yield from by_hand(execution, batches)


def by_hand_in_inference(execution: Any, batches: Iterator[Any]) -> Iterator[tuple[str, Iterate]]:
    """In ordinary layouts, in those that XLA chooses for the weights, and as constants."""
    import jax
    from jax.experimental.layout import Format, Layout

    forward, batch = execution.module.forward, next(batches)
    weights = jax.device_put(jax.tree.map(jax.device_get, execution.weights))
    leaves, tree = jax.tree.flatten(weights)
    given = tuple(leaves)

    def flat(given: Any, batch: Any) -> Any:
        return forward(jax.tree.unflatten(tree, given), batch)

    as_dict, as_tuple = jax.jit(forward), jax.jit(flat)
    chosen = jax.jit(flat, in_shardings=(Format(Layout.AUTO), None)).lower(given, batch).compile()
    arranged = jax.device_put(given, chosen.input_formats[0][0])
    constant = jax.jit(lambda batch: forward(weights, batch))
    yield "jit, a dict", lambda: as_dict(weights, next(batches))[0]
    yield "jit, a tuple", lambda: as_tuple(given, next(batches))[0]
    yield "jit, chosen layouts", lambda: chosen(arranged, next(batches))[0]
    yield "jit, constants", lambda: constant(next(batches))[0]


def by_hand_in_training(execution: Any, batches: Iterator[Any]) -> Iterator[tuple[str, Iterate]]:
    """The state is donated, as golow does it; each variant trains a state of its own."""
    import jax

    def step(state: Any, batch: Any, rate: Any) -> Any:
        state, loss, _, _ = execution.module.step(state, batch, rate, True)
        return state, loss

    def flat_step(leaves: Any, batch: Any, rate: Any) -> Any:
        state, loss = step(jax.tree.unflatten(tree, leaves), batch, rate)
        return tuple(jax.tree.leaves(state)), loss

    copied = jax.jit(lambda state: jax.tree.map(lambda each: each.copy(), state))
    leaves, tree = jax.tree.flatten(copied(execution.state))
    as_dict = jax.jit(step, donate_argnums=0)
    as_tuple = jax.jit(flat_step, donate_argnums=0)
    yield "jit, a dict", stepping(as_dict, copied(execution.state), batches, execution.rate)
    yield "jit, a tuple", stepping(as_tuple, tuple(leaves), batches, execution.rate)


def stepping(step: Any, state: Any, batches: Iterator[Any], rate: Any) -> Iterate:
    """A loop that gives each step the state of the one before."""
    held = [state]

    def iterate() -> Any:
        held[0], loss = step(held[0], next(batches), rate)
        return loss

    return iterate


if __name__ == "__main__":
    main()
