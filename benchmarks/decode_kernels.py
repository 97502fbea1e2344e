"""Where does the time of a decoding step go on a GPU?

    python benchmarks/decode_kernels.py [--model llama_1b] [--before 1024] [--tune]

Prints the time of a step at `cudnn` in bf16 beside a plain read of as many bytes, with kernels that
begin early and without; for each kind of kernel its time alone, over all layers, and what it adds
to a step, each against its bytes; and with ``--tune`` the times of other tilings.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from transformers import AutoModelForCausalLM, LlamaConfig

import golow
from golow.levels.called import gpu as called_gpu
from golow.levels.direct.cudnn.bindings import device
from golow.levels.direct.cudnn.operators import row_product
from golow.levels.direct.cudnn.steps.built_plan import KernelCall

MODELS = {
    "llama_1b": LlamaConfig(
        hidden_size=2048, intermediate_size=8192, num_hidden_layers=16, num_attention_heads=32,
        num_key_value_heads=8, head_dim=64, vocab_size=128256, tie_word_embeddings=True,
        max_position_embeddings=131072,
    ),
    "llama_8b": LlamaConfig(
        hidden_size=4096, intermediate_size=14336, num_hidden_layers=32, num_attention_heads=32,
        num_key_value_heads=8, head_dim=128, vocab_size=128256, tie_word_embeddings=False,
        max_position_embeddings=131072,
    ),
}  # fmt: skip
NOMINAL = 4.8e12  # bytes per second of an H200's memory, as its data sheet states
RUNS = 30


class Kind(NamedTuple):
    """Calls of one kernel in a step, and the bytes that each reads and writes."""

    name: str
    calls: list[KernelCall]
    bytes: int


def main() -> int:
    """Build, time, print."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--model", choices=MODELS, default="llama_1b")
    parser.add_argument("--before", type=int, default=1024)
    parser.add_argument("--longest", type=int, default=2048)
    parser.add_argument("--tune", action="store_true")
    given = parser.parse_args()
    torch.manual_seed(0)
    with torch.device("cuda"):
        model = AutoModelForCausalLM.from_config(MODELS[given.model], dtype=torch.bfloat16).eval()
    wanted = sum(p.nbytes for p in {id(p): p for p in model.parameters()}.values())
    if not model.config.tie_word_embeddings:
        wanted -= model.model.embed_tokens.weight.nbytes
    sizes = model.config
    wanted += (
        4 * sizes.num_hidden_layers * sizes.num_key_value_heads * sizes.head_dim * given.before
    )
    rate = read_rate()
    print(f"{torch.cuda.get_device_name()}, {given.model}, {given.before} tokens before")
    print(f"a step reads {wanted / 1e9:.3f} GB; a plain read: {rate / 1e12:.3f} TB/s, "
          f"{1e6 * wanted / rate:.0f} us; at 4.8 TB/s {1e6 * wanted / NOMINAL:.0f} us")  # fmt: skip
    late = device.FIRST_ARCHITECTURE
    for early in (False, True):
        device.FIRST_ARCHITECTURE = late if early else 1000
        called_gpu._gpu.cache_clear()  # it decides once for all plans of the process
        made = generator(model, given.longest)
        spent = step_seconds(made, given.before)
        word = "begin early" if early else "wait"
        print(
            f"kernels {word}: {1e6 * spent:.1f} us a step, {wanted / rate / spent:.1%} of the read"
        )
        if not early:
            made.close()
    report(made, given.before)
    loop(made, given.before)
    if given.tune:
        tune(made)
    made.close()
    return 0


def read_rate() -> float:
    """Bytes per second of a sum over 8 GiB."""
    array = torch.ones(1 << 31, dtype=torch.float32, device="cuda")
    best = min(timed(lambda: array.sum(), 1) for _ in range(10))
    return array.nbytes / best


def timed(run: Callable[[], object], times: int) -> float:
    """Seconds of a run, by the GPU's clock."""
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    first.record()
    for _ in range(times):
        run()
    last.record()
    torch.cuda.synchronize()
    return float(first.elapsed_time(last)) / 1e3 / times


def generator(model: Any, longest: int) -> golow.Generator:
    """The compiled model."""
    made: golow.Generator = golow.compile(
        model, generation=golow.Generation(longest=longest, batch=1, chunk=64), quiet=True
    )
    return made


def step_seconds(made: golow.Generator, before: int) -> float:
    """Seconds of a launched step, the median of several series."""
    made.reset()
    made.prefill(torch.randint(made.vocabulary, (1, before), device="cuda"))
    made._position.fill_(before)
    series = [timed(lambda: made._runs[1](*made._at[1]), 20) for _ in range(RUNS)]
    return statistics.median(series)


def kinds(made: golow.Generator) -> Iterator[Kind]:
    """The kernels of a step that need no input."""
    built = made._parts.plans[1].built
    found: dict[str, list[tuple[KernelCall, int]]] = defaultdict(list)
    for call, step in zip(built.calls, built.plan.steps, strict=True):
        if step.once or not isinstance(call, KernelCall) or step.operation == "fetch":
            continue
        moved = sum(operand.bytes for operand in (*step.reads, *step.writes))
        grid = "x".join(map(str, call.kernel.grid))
        found[f"{step.operation} {call.kernel.expression} {grid}"].append((call, moved))
    for name, calls in found.items():
        yield Kind(name, [call for call, _ in calls], calls[0][1])


def report(made: golow.Generator, before: int) -> None:
    """Each kind of kernel alone, and within a step."""
    adds = in_a_step(made)
    print("\nus alone, us added in a step, MB, TB/s alone and in a step, number, kernel")
    for kind in kinds(made):
        alone = alone_seconds(made, kind.calls)
        added = adds.get(symbol(kind.calls[0]), [0.0])
        step = statistics.fmean(added) * 1e-6
        rates = [f"{kind.bytes / s / 1e12 if s else 0:6.2f}" for s in (alone, step)]
        print(f"{1e6 * alone:7.2f} {1e6 * step:7.2f} {kind.bytes / 1e6:8.2f} {' '.join(rates)} "
              f"{len(kind.calls):4d}  {kind.name}")  # fmt: skip


def symbol(call: KernelCall) -> str:
    """The name of a kernel in a trace, without its parameters."""
    return call.kernel.expression.split("(")[0].replace(" ", "")


def alone_seconds(made: golow.Generator, calls: Sequence[KernelCall]) -> float:
    """Seconds of a call, all of a step after one another, three times."""
    execution = made._runs[1].__self__._execution
    gpu = execution.gpu
    gpu.compile(call.kernel for call in calls)

    def enqueue() -> None:
        for call in [*calls] * 3:
            at = [execution.address(t) if t else 0 for t in call.arguments]
            gpu.launch(call.kernel, at)

    enqueue()
    gpu.synchronize()
    return float(gpu.time(enqueue, 10)) * 1e-9 / (3 * len(calls))


def in_a_step(made: golow.Generator) -> dict[str, list[float]]:
    """Microseconds from the end of the kernel before to its own end, by name."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        for _ in range(5):
            made._runs[1](*made._at[1])
        torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "trace.json"
        seen.export_chrome_trace(str(file))
        events = json.loads(file.read_text())["traceEvents"]
    found = [e for e in events if e.get("cat") == "kernel"]
    ends = sorted((e["ts"] + e["dur"], e["ts"], e["name"]) for e in found)
    adds: dict[str, list[float]] = defaultdict(list)
    last, order = None, []
    for end, start, name in ends:
        short = name.removeprefix("void ").split("(")[0].replace(" ", "")
        if last is not None:
            adds[short].append(end - last)
        last = end
        order.append((short[:70], start, end))
    if order:
        print(f"\nfirst kernels of a traced step (of {len(order) // 5}): start, end, us")
        begin = order[len(order) // 5 * 2][1]
        for name, start, end in order[len(order) // 5 * 2 :][:24]:
            print(f"{start - begin:9.2f} {end - begin:9.2f}  {name}")
    return adds


def loop(made: golow.Generator, before: int) -> None:
    """Tokens as a program gets them."""
    prompt = torch.randint(made.vocabulary, (1, before), device="cuda")
    made.reset()
    made.generate(prompt, tokens=8)
    made.reset()
    first = timed(lambda: made.prefill(prompt), 1)
    made.reset()
    whole = timed(lambda: made.generate(prompt, tokens=129), 1)
    print(f"\nprefill {1e3 * first:.2f} ms; generate: {1e6 * (whole - first) / 128:.1f} us a token")


def tune(made: golow.Generator) -> None:
    """Other tilings of the products."""
    print("\nother tilings of the products: us a call, (together, pieces, shares), depth, blocks")
    for kind in kinds(made):
        if not kind.name.startswith("row_product"):
            continue
        for together in (1, 2, 4, 8):
            for pieces in (1, 2, 4):
                for depth in (2, 3, 4, 6):
                    for blocks in (132, 264):
                        tried(made, kind, together, pieces, depth, blocks)


def tried(
    made: golow.Generator, kind: Kind, together: int, pieces: int, depth: int, blocks: int
) -> None:
    """Time and print the product with such tiles, if they fit its shape."""
    old = kind.calls[0].kernel
    inside = [item.strip() for item in old.expression.split("<")[1].rstrip(">").split(",")]
    rows, inner, flags = inside[1], int(inside[6]), inside[7:]
    shares = max(1, inner // (8 * row_product.LANES * pieces))
    own = together * (2 if flags[1] == "true" else 1)
    shared = depth * own * 16 * row_product.LANES * row_product.WARPS
    whole = shares * 8 * row_product.LANES * pieces == inner and row_product.WARPS % shares == 0
    if not whole or own > 8 or not 32 << 10 <= shared <= 112 << 10:
        return
    tiles = row_product.Tiling(together, pieces, shares)
    parameters = (inside[0], rows, *tiles, depth, inner, *flags)
    outputs = int(old.scalars[1])
    kernel = old._replace(
        expression=f"row_product<{', '.join(map(str, parameters))}>",
        grid=(min(blocks, -(-outputs // tiles.outputs)), 1, 1),
        shared=shared,
    )
    spent = alone_seconds(made, [call._replace(kernel=kernel) for call in kind.calls])
    print(f"{1e6 * spent:7.2f}  {tuple(tiles)} {depth} {blocks}  {kind.name}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
