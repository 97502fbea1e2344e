"""Process of a level that generates texts: `served_level` with contexts that stream tokens.

``python -m golow.programs.load.served_texts``. The prompts of a batch have equal length, and its
texts begin and end together. The levels are those that `golow generate` times:
`golow.compile(generation=...)` and its rivals.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path

import torch

from golow.levels.called.sizes import next_size
from golow.levels.generation.table import TextLevel, chosen
from golow.programs.load import asked_texts, served_level
from golow.programs.load.asked_texts import AskedTexts
from golow.programs.load.batcher import Bucket
from golow.programs.load.coming_texts import END, TOKEN
from golow.records.errors import Unsupported
from golow.worker.text_program import GeneratingProgram
from golow.workload.generation.text_bundle import TextBundle
from golow.workload.import_path import module_command

COMMAND = module_command(__spec__.name if __spec__ else __name__)
COMPILED, MOST_COMPILED = "compile:", 8
"""Levels that compile for each length of a prompt, and the limit of torch.compile on shapes."""
WARMING = 3  # tokens of a text after which everything that later ones use exists

Prompts = list[tuple[int, ...]]


class TextContext:
    """Context of a level: one program per batch size, each with its own caches."""

    def __init__(self, level: TextLevel, bundles: Mapping[int, Path], asked: AskedTexts) -> None:
        self._level, self._bundles, self._asked = level, bundles, asked
        self._programs: dict[int, GeneratingProgram] = {}

    def warm_up(self) -> None:
        """Build every batch size in this thread, and begin a text after each length of prompt."""
        prompts = {len(prompt): prompt for prompt in self._asked.prompts}
        for size, bundle in self._bundles.items():
            program = import_module(self._level.served_by).program(self._level.variant)
            program.load(bundle)
            self._programs[size] = program
            for prompt in prompts.values():
                list(self._tokens([prompt] * size, min(WARMING, self._asked.tokens)))

    def group(self, index: int) -> int:
        """The length of the prompt."""
        return len(self._asked.prompts[index])

    def bucket(self, indices: Sequence[int]) -> Bucket:
        """Return the batch size, and the length of the complete texts."""
        length = self.group(indices[0]) + self._asked.tokens
        return Bucket(self._size(indices), length, len(indices) * length)

    def assemble(self, indices: Sequence[int]) -> Prompts:
        """Return the prompts; the last one is repeated to fill the batch."""
        rows = [*indices, *[indices[-1]] * (self._size(indices) - len(indices))]
        return [self._asked.prompts[index] for index in rows]

    def stream(self, batch: Prompts) -> Iterator[list[int]]:
        """Yield the next token of each text, and an empty list after the last."""
        yield from self._tokens(batch, self._asked.tokens)
        yield []

    def answers(self, outputs: list[int], indices: Sequence[int]) -> list[bytes]:
        """Return the token of each sample, or the end of its text after the last token."""
        if not outputs:
            return [END] * len(indices)
        return [TOKEN.pack(token) for token in outputs[: len(indices)]]

    def _tokens(self, batch: Prompts, count: int) -> Iterator[list[int]]:
        """Yield this many tokens of each text."""
        program = self._programs[len(batch)]
        with torch.no_grad():  # PyTorch's setting belongs to a thread
            program.prompt(batch, [])
            yield program.first()
            for _ in range(count - 1):
                yield program.following()

    def _size(self, indices: Sequence[int]) -> int:
        return next_size(len(indices), sorted(self._bundles))


def contexts(asked: served_level.LoadRequest) -> list[TextContext]:
    """Return the contexts of a level of text generation. Raises `Unsupported` for a level that
    cannot run here."""
    folder = Path(asked.bundle)
    texts = asked_texts.read(folder)
    bundles = {size: folder.with_name(f"batch-{size}") for size in asked.buckets}
    device = TextBundle(folder).workload.device
    level = next(one for one in chosen([asked.level], device) if one.name == asked.level)
    probe = level.probe()
    if not probe.available:
        raise Unsupported(level.name, f"{probe.missing}; {probe.fix}")
    shapes = len(bundles) * (1 + len(texts.lengths))
    if level.name.startswith(COMPILED) and shapes > MOST_COMPILED:
        raise Unsupported(
            level.name,
            f"it compiles for each batch size and length of a prompt, {shapes} shapes, but "
            f"torch.compile takes {MOST_COMPILED}: use one --prompt length, or a smaller "
            "--max-batch",
        )
    return [TextContext(level, bundles, texts) for _ in range(asked.contexts)]


if __name__ == "__main__":
    served_level.main(contexts)
