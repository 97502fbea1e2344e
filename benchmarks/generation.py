"""How near to the roof does text generation come, and who is before whom?

    python benchmarks/generation.py --device cuda           # records under runs/generation/
    python benchmarks/generation.py --device cpu --only gpt2_small
    python benchmarks/generation.py --page docs/use/generation.md RECORD ...

Each case is one `golow generate` of random weights; the table of the page has a row for each level
and case. A case whose record is there already is not run again.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import golow
from golow.api.generations import GenerationResult, load_generation
from golow.report.generation.facts import roof_share, title, tokens_per_second
from golow.storage.scratch import scratch_folder

sys.path.insert(0, str(Path(__file__).parent))
from page_part import put_into

LLAMA = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 128256,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-5,
}
CONFIGURATIONS = {
    "llama_1b": LLAMA
    | {"hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "head_dim": 64,
       "tie_word_embeddings": True},
    "llama_8b": LLAMA
    | {"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "head_dim": 128,
       "tie_word_embeddings": False},
    "llama_160m": LLAMA
    | {"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "head_dim": 64,
       "num_attention_heads": 12, "num_key_value_heads": 4, "vocab_size": 32000,
       "tie_word_embeddings": False},
}  # fmt: skip


class Case(NamedTuple):
    """One generation."""

    model: str
    prompt: int
    tokens: int
    batch: tuple[int, ...]
    precision: str

    @property
    def name(self) -> str:
        """The folder of its record."""
        return f"{self.model}-{self.prompt}-{self.precision}"


CASES = {
    "cuda": (
        Case("llama_1b", 1024, 64, (1, 8, 32), "bf16"),
        Case("llama_1b", 8192, 64, (1,), "bf16"),
        Case("llama_8b", 1024, 64, (1,), "bf16"),
    ),
    "cpu": (
        Case("gpt2_small", 128, 64, (1,), "default"),
        Case("gpt2_small", 128, 64, (1,), "bf16"),
        Case("llama_160m", 128, 64, (1,), "default"),
        Case("llama_160m", 128, 64, (1,), "bf16"),
    ),
}
COLUMNS = ("model", "tokens before", "batch", "level", "ms a token", "of the roof", "tokens/s",
           "first, ms")  # fmt: skip


def main() -> int:
    """Run the cases, or write the page's part from records."""
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("records", nargs="*", type=Path)
    parser.add_argument("--device", choices=CASES, default="cpu")
    parser.add_argument("--only", action="append", help="a model; may be repeated")
    parser.add_argument("--levels", help="comma-separated; all by default")
    parser.add_argument("--batch", help="instead of the cases' sizes, such as 1 or 1,8")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--out", type=Path, default=Path("runs/generation"))
    parser.add_argument("--page", type=Path)
    given = parser.parse_args()
    if given.page is not None:
        part = table([load_generation(record) for record in given.records])
        given.page.write_text(put_into(given.page.read_text(), "generation", part))
        return 0
    found = []
    for case in CASES[given.device]:
        if given.only and case.model not in given.only:
            continue
        if given.batch:
            case = case._replace(batch=tuple(int(size) for size in given.batch.split(",")))
        found.append(result_of(case, given))
        found[-1].table()
    print(table(found))
    return 0


def result_of(case: Case, given: Any) -> GenerationResult:
    """The record of a case, measured unless it is there."""
    folder = given.out / case.name
    kept = sorted(folder.glob("*/generation.json"))
    if kept:
        return load_generation(kept[0].parent)
    with scratch_folder() as scratch:
        model = case.model
        if model in CONFIGURATIONS:
            file = scratch / f"{model}.json"
            file.write_text(json.dumps(CONFIGURATIONS[model]))
            model = f"hf:{file}"
        result: GenerationResult = golow.generate(
            model,
            pretrained=False if model.startswith("hf:") else None,
            prompt=case.prompt,
            tokens=case.tokens,
            batch=case.batch,
            precision=case.precision,  # type: ignore[arg-type]
            device=given.device,
            levels=None if given.levels is None else given.levels.split(","),
            seconds=given.seconds,
        )
    result.save(folder)
    return result


def table(results: Sequence[GenerationResult]) -> str:
    """A row for each level of each record."""
    lines = [f"| {' | '.join(COLUMNS)} |", f"|{'---|' * len(COLUMNS)}"]
    for found in (result.generation for result in results):
        for case in found.cases:
            for run in case.runs:
                if run.token is None or run.first_token is None:
                    continue
                share, rate = roof_share(found, case, run), tokens_per_second(case, run)
                work = case.workload
                cells = (
                    f"{work.model}, {title(found).split(', ')[-1]}", work.prompt, work.batch,
                    f"`{run.level}`", f"{1e3 * run.token.value:.3f}",
                    "" if share is None else f"{share:.0%}", f"{rate or 0:.0f}",
                    f"{1e3 * run.first_token.value:.1f}",
                )  # fmt: skip
                lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
