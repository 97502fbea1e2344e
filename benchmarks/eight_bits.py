"""How much faster than bf16 are linear layers of 8-bit numbers at `cudnn` on a GPU?

    python benchmarks/eight_bits.py
    python benchmarks/eight_bits.py --networks llama --rules fp8 --tune

The networks have random weights, and ranges from one batch; all else is bf16. All variants of a
network are compiled first, then timed in turn, in another order each round: milliseconds of a call
are the median over rounds, the ratio to bf16 is the median of the rounds' ratios, with its smallest
and largest. The distance is that of the outputs from the float32 module's, as a share of their
size: of bf16 from the original, of a rule from the network that it quantised.
"""

from __future__ import annotations

import argparse
import copy
import random
import sys
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn

import golow
from golow.models.bert import bert_base
from golow.models.llama import Llama, LlamaSizes
from golow.models.vision_transformer import vit_b_16
from golow.records.quantization import QuantizationRule, QuantizedLayer
from golow.workload.quantization.calibration import calibrated
from golow.workload.quantization.quantize import quantized_layer
from golow.workload.quantization.replacing import replace_layer, share_scales

ROUNDS, SECONDS = 30, 0.05  # of a variant's turn
Made = tuple[nn.Module, tuple[Tensor, ...]]


def bert() -> Made:
    """BERT-base, 32 texts of 128 tokens."""
    tokens = torch.randint(30_522, (32, 128), device="cuda")
    mask = torch.ones(32, 128, dtype=torch.bool, device="cuda")
    return bert_base(), (tokens, mask, torch.zeros_like(tokens))


def vit() -> Made:
    """ViT-B/16, 64 images."""
    return vit_b_16(), (torch.randn(64, 3, 224, 224, device="cuda"),)


def llama() -> Made:
    """Four layers of the sizes of Llama 3.1 8B, 2,048 tokens of a prompt."""
    sizes = LlamaSizes(
        vocabulary=32_000, positions=2048, width=4096, inner=14_336, layers=4, heads=32, groups=8
    )
    return Llama(sizes), (torch.randint(32_000, (1, 2048), device="cuda"),)


NETWORKS: dict[str, Callable[[], Made]] = {"bert": bert, "vit": vit, "llama": llama}


def main() -> int:
    """Race at each network."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--networks", type=lambda text: text.split(","), default=list(NETWORKS))
    parser.add_argument("--rules", type=lambda text: text.split(","), default=["fp8", "int8"])
    parser.add_argument("--tune", action="store_true", help="choose engines by timing them")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("torch sees no GPU", file=sys.stderr)
        return 2
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}", flush=True)
    for name in options.networks:
        raced(name, options)
    return 0


def raced(name: str, options: argparse.Namespace) -> None:
    """Compile the variants of a network, time them in turn, and print a line for each."""
    begun = time.monotonic()
    torch.manual_seed(0)
    module, inputs = NETWORKS[name]()
    module = module.eval().cuda()
    modules = {"bf16": module} | {rule: narrowed(module, rule, inputs) for rule in options.rules}
    calls: dict[str, Callable[[], Any]] = {}
    distances: dict[str, float] = {}
    for variant, made in modules.items():
        try:
            compiled = golow.compile(
                made, inputs, level="cudnn", precision="bf16", tune=options.tune, quiet=True
            )
        except golow.GolowError as error:
            print(f"{name} {variant}: {error}", flush=True)
            continue
        calls[variant] = lambda compiled=compiled: compiled(*inputs)
        distances[variant] = distance(compiled(*inputs), made(*inputs))
    times = race(calls)
    for variant, spent in times.items():
        ratios = [one / other for one, other in zip(spent, times["bf16"], strict=True)]
        print(
            f"{name} {variant}: {1e3 * median(spent):.3f} ms, {median(ratios):.3f} of bf16 "
            f"({min(ratios):.3f} to {max(ratios):.3f}), distance {distances[variant]:.2%}",
            flush=True,
        )
    print(f"[{name}: {time.monotonic() - begun:.0f} s]", flush=True)


@torch.no_grad()
def narrowed(module: nn.Module, rule: QuantizationRule, inputs: tuple[Tensor, ...]) -> nn.Module:
    """A copy with all linear layers quantised, and every weight the nearest number."""
    made = copy.deepcopy(module)
    paths = [path for path, layer in made.named_modules() if type(layer) is nn.Linear]
    layers = []
    for path, found in calibrated(made, paths, lambda: [inputs]).items():
        described = QuantizedLayer(path=path, rule=rule, signed=found.signed, like=found.like)
        original = made.get_submodule(path)
        replace_layer(made, original, quantized_layer(original, described, found.size))
        layers.append(described)
    share_scales(made, layers)
    return made


@torch.no_grad()
def distance(found: Any, wanted: Any) -> float:
    """Of the first output, as a share of its size."""
    one, other = (
        (item if isinstance(item, Tensor) else item[0]).double() for item in (found, wanted)
    )
    return float((one - other).norm() / other.norm())


def race(calls: dict[str, Callable[[], Any]]) -> dict[str, list[float]]:
    """Seconds of a call in each round."""
    repetitions = {name: max(1, int(SECONDS / timed(call, 3))) for name, call in calls.items()}
    spent: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name in random.sample(list(calls), len(calls)):
            spent[name].append(timed(calls[name], repetitions[name]))
    return spent


def timed(call: Callable[[], Any], times: int) -> float:
    """Seconds of a call, by the GPU's clock."""
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    call()
    first.record()
    for _ in range(times):
        call()
    last.record()
    torch.cuda.synchronize()
    return float(first.elapsed_time(last)) / 1e3 / times


if __name__ == "__main__":
    raise SystemExit(main())
