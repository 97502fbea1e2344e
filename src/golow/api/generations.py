"""Text generation for Python users."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from golow.api.frame import frame
from golow.api.line import line
from golow.api.partial import ErrorWithResult, InterruptedWithResult
from golow.api.progress import shown_progress
from golow.observer import Observer
from golow.programs.generation import store
from golow.programs.generation.generation_record import Generation, TextRun
from golow.records.errors import Unfinished
from golow.records.text import Sampling, TextPrecision
from golow.records.workload import Device
from golow.storage.scratch import scratch_folder
from golow.worker.cores import default_threads
from golow.worker.time_limits import Limits
from golow.workload.generation.request import TOKENS, TextRequest

if TYPE_CHECKING:
    import pandas
    from torch import nn


class GenerationResult(NamedTuple):
    """Result of `generate`: the record, with methods to print, plot and save it."""

    generation: Generation

    def table(self) -> None:
        """Print one table of levels per batch size, and the texts."""
        from golow.report.generation.table import render

        render(self.generation)

    def __repr__(self) -> str:
        from golow.report.generation.facts import title

        return line(self, title(self.generation))

    def _repr_html_(self) -> str:
        """HTML for a notebook."""
        from golow.report.generation.table import render
        from golow.report.notebook import as_html

        return as_html(lambda console: render(self.generation, console))

    def to_pandas(self) -> pandas.DataFrame:
        """One row per level and batch size; times in seconds, sizes in bytes. Needs ``pip install
        golow[pandas]``."""
        from golow.report.generation.export import rows

        return frame(rows(self.generation))

    def report(self, file: str | Path) -> Path:
        """Write one HTML page that shows everything and contains the record."""
        from golow.report.html_report import write_report

        with scratch_folder() as folder:
            return write_report([self.save(folder)], Path(file))

    def save(self, folder: str | Path) -> Path:
        """Write the record and its tables into a new folder under this one; returns that folder."""
        from golow.report.generation.export import write_tables

        saved = store.save(self.generation, Path(folder))
        write_tables(self.generation, saved)
        return saved

    def figures(self, folder: str | Path) -> list[Path]:
        """Draw the time of a token over the text length. Needs ``pip install golow[figures]``."""
        from golow.report.generation.figure import write_figures

        return write_figures(self.generation, Path(folder))

    def level(self, name: str, batch: int | None = None) -> TextRun:
        """Return the record of one level, at the first batch size unless another is given; raises
        KeyError if there is none."""
        for case in self.generation.cases:
            if batch in (None, case.workload.batch):
                for run in case.runs:
                    if run.level == name:
                        return run
        raise KeyError(name)


class GenerationInterrupted(InterruptedWithResult):
    """Raised after Ctrl-C; ``result`` has the partial results."""

    result: GenerationResult


def generate(
    model: str | nn.Module,
    *,
    text: str | Sequence[str] | None = None,
    prompt: int | None = None,
    tokens: int = TOKENS,
    batch: int | Sequence[int] = 1,
    levels: Sequence[str] | None = None,
    workers: Mapping[str, Sequence[str]] | None = None,
    precision: TextPrecision = "default",
    device: Device = "cpu",
    temperature: float = 0.0,
    top_k: int = 0,
    top_p: float = 1.0,
    seed: int = 0,
    calibrate: str | Path | None = None,
    weights: str | Path | None = None,
    classes: int | None = None,
    pretrained: bool | None = None,
    download: bool = False,
    threads: int | None = None,
    seconds: float = 20.0,
    cache: Path | None = None,
    limits: Limits | None = None,
    quiet: bool = False,
    observer: Observer | None = None,
) -> GenerationResult:
    """Generate texts at every level, prove them correct, and time the prompt and the tokens.

    model: ``gpt2_small``, ``hf:NAME``, the folder of a training of ``golow train``, or a step
    module (docs/use/generation.md). text: what the texts begin with; several are one batch, whose
    texts may differ in length. Without it prompts of ``prompt`` tokens are drawn. tokens: to
    generate. batch: texts together; several sizes are measured one after the other. temperature,
    top_k, top_p: how a token is chosen; temperature 0 takes the likeliest. precision: ``default``
    is float32; others are bf16, and on a GPU tf32 and fp16; on a CPU ``int8-weights``,
    ``int4-weights`` and ``fp8-weights`` quantise the weights of linear layers first, and every
    level is compared with the quantised network. calibrate: a UTF-8 file, or ``text`` for golow's
    own, for which the rounding errors of ``int4-weights`` and ``fp8-weights`` compensate one
    another. device: ``cpu`` or ``cuda``. workers: commands of your own levels, by name. seconds: of
    the race for each level.

    Raises `GolowError` for errors that the caller can fix, `ErrorWithResult` for one after a batch
    size was measured, and `GenerationInterrupted` with partial results on Ctrl-C. A failure of a
    level is recorded as its result.
    """
    from golow.programs.generation.generate import generate as run
    from golow.programs.generation.settings import GenerationSettings

    request = TextRequest(
        model,
        batch=tuple(batch) if isinstance(batch, Sequence) else (batch,),
        prompt=prompt,
        tokens=tokens,
        text=tuple(text) if isinstance(text, Sequence) and not isinstance(text, str) else text,
        precision=precision,
        device=device,
        sampling=Sampling(temperature=temperature, top_k=top_k, top_p=top_p, seed=seed),
        weights=weights,
        classes=classes,
        calibrate=calibrate,
        seed=seed,
        threads=default_threads() if threads is None else threads,
        pretrained=pretrained,
        download=download,
    )
    settings = GenerationSettings(
        levels=levels, workers=workers, seconds=seconds, cache=cache, limits=limits
    )
    with shown_progress("generation", observer, quiet) as display:
        try:
            result = GenerationResult(run(request, settings, display))
        except Unfinished as error:
            raise ErrorWithResult(error, GenerationResult(error.record)) from error
    if result.generation.interrupted:
        raise GenerationInterrupted(result)
    return result


def load_generation(place: str | Path) -> GenerationResult:
    """Load the result in a folder that ``golow generate`` wrote. Raises `GolowError` for any other
    folder."""
    return GenerationResult(store.load(Path(place)))
