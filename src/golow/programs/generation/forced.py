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
from golow.programs.generation.error_limit import OF_ONE_LOGIT, ErrorLimit, moves
from golow.records.comparison import Check
from golow.records.text import TextPrecision, TextWorkload
from golow.worker.text_client import TextWorker

SHORT = 24  # tokens of the text of which every position is looked at
POSITIONS = 16  # of the long text
WORKING: dict[TextPrecision, Rounding] = {"tf32": TF32, "bf16": BF16, "fp16": FP16}
"""Every other precision computes in float32."""


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
    """The reference's logits, and the check of a level's."""

    def __init__(
        self, workload: TextWorkload, forced: ForcedTexts, reference: TextWorker, baseline: Path
    ) -> None:
        """baseline: the logits of the step module in the working precision."""
        self._working = WORKING.get(workload.precision, FLOAT32)
        self._forced, self._worker = forced, reference
        found = Reference(forced.outputs(reference), baseline, self._working)
        believed = trusted(found, self._draws)
        self._reference, self._wider = believed.reference, believed.wider

    @property
    def error_limit(self) -> ErrorLimit:
        """The largest error of a single logit that rounding explains."""
        reference = self._wider or self._reference
        everywhere = OF_ONE_LOGIT * max(map(reference.limit, reference.expected))
        return ErrorLimit(everywhere, self._working)

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
        for moved in moves(self._working, rounded=rounded):
            self._worker.move(moved)
            yield self._forced.outputs(self._worker)
        self._worker.move(None)
