"""Check of the logits: every level reads the same drawn tokens, and its logits are compared with
those of the step module in float64."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from safetensors.torch import load_file, save_file
from torch import Tensor

from golow.check.rounding import BF16, FLOAT32, FP16, TF32, Rounding
from golow.check.rule import Reference, check, may_be_rounding, recheck
from golow.check.trust import trusted
from golow.programs.generation.drawn_tokens import Drawn
from golow.records.comparison import Check
from golow.records.text import TextPrecision, TextWorkload
from golow.worker.text_client import TextWorker
from golow.worker.text_program import Moved

SHORT = 24  # tokens of the text of which every position is looked at
POSITIONS = 16  # of the long text
DRAWS = 3  # of the reference, moved by roundings
WORKING: dict[TextPrecision, Rounding] = {
    "default": FLOAT32, "tf32": TF32, "bf16": BF16, "fp16": FP16
}  # fmt: skip
OF_ONE_LOGIT = 3.0
"""Factor between the limit of a single logit and the limit of all. The latter is at least twice the
root mean square effect of rounding; the former is six times that effect."""


class ForcedTexts:
    """The tokens that are forced: a short text from its first token on, and a whole one after a
    prompt. If an encoder reads prompts, both begin with one of full length. Each level's logits
    become one file."""

    def __init__(self, workload: TextWorkload, drawn: Drawn, folder: Path) -> None:
        self._folder, self._files = folder, 0
        begin = workload.prompt if workload.encoder else 1
        short = min(begin - 1 + SHORT, workload.longest)
        places = drawn.positions(workload.prompt - 1, workload.longest - 1, POSITIONS)
        self._texts = (
            (drawn.texts(short), begin, list(range(begin - 1, short))),
            (drawn.texts(workload.longest), workload.prompt, places),
        )

    def outputs(self, worker: TextWorker) -> Path:
        """The file of the worker's logits, ``TEXT/output/POSITION``."""
        tensors: dict[str, Tensor] = {}
        for number, (tokens, prompt, positions) in enumerate(self._texts):
            part = self._folder / "part.safetensors"
            worker.force(tokens, prompt, positions, part)
            tensors |= {f"{number}/{name}": value for name, value in load_file(part).items()}
            part.unlink()
        self._files += 1
        file = self._folder / f"{self._files}.safetensors"
        save_file(tensors, file)
        return file


class TextStandard:
    """The reference's logits, and the check of a level's. error_limit: of single logits, up to
    which rounding explains the choice of another token."""

    def __init__(
        self, workload: TextWorkload, forced: ForcedTexts, reference: TextWorker, baseline: Path
    ) -> None:
        """baseline: the logits of the step module in the working precision."""
        self._working = WORKING[workload.precision]
        self._forced, self._worker = forced, reference
        found = Reference(forced.outputs(reference), baseline, self._working)
        believed = trusted(found, self._draws)
        self._reference, self._wider = believed.reference, believed.wider

    @property
    def error_limit(self) -> float:
        """The largest error of a single logit that rounding explains."""
        reference = self._wider or self._reference
        return OF_ONE_LOGIT * max(map(reference.limit, reference.expected))

    def judge(self, file: Path) -> Check:
        """The verdict on a level's logits."""
        found = check(self._reference, file)
        if may_be_rounding(found):
            if self._wider is None:
                self._wider = self._reference.widened(self._draws(rounded=False))
            found = recheck(self._wider, found)
        return found

    def _draws(self, *, rounded: bool) -> Iterator[Path]:
        """The reference's logits with weights that are perturbed by a few roundings."""
        grid = self._working.grid
        for seed in range(DRAWS):
            moved = Moved(
                seed=seed,
                share=self._working.move,
                digits=grid.digits if rounded else 0,
                least=grid.least,
            )
            self._worker.move(moved)
            yield self._forced.outputs(self._worker)
        self._worker.move(None)
