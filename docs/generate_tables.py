"""Writes the tables of figures into the pages of ``docs/results``, from the figures in the project:
the rows of two studies, and the records of `stored_tables`.

PYTHONPATH=benchmarks python docs/generate_tables.py
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from generate_figures import RESULTS, precision_rows
from generate_report_levental2020 import rows as levental2020_rows
from stored_tables import markdown as table
from stored_tables import pages, stored

from golow.report.study.rows import StudyRow
from page_part import put_into

MODES = ("train", "infer")
SIZES = tuple(2**power for power in range(3, 11))
NAMES = {
    "mlp": "MLP",
    "lenet5": "LeNet-5",
    "alexnet": "AlexNet",
    "vgg16": "VGG-16",
    "resnet50": "ResNet-50",
}
LEVELS = ("eager", "torchscript", "compile", "cudagraph", "libtorch", "cudnn")
Cell = Callable[[int, int], str]
"""The text of a cell by batch and resolution."""


def time_text(row: StudyRow | None) -> str:
    """Time per sample; ``memory`` for a cell that does not fit."""
    if row is None or row.sample_time is None:
        return "memory"
    seconds = row.sample_time
    return f"{seconds * 1e3:.3g} ms" if seconds >= 1e-3 else f"{seconds * 1e6:.3g} us"


def ratio_text(row: StudyRow | None, eager: StudyRow | None) -> str:
    """Time over eager's; it has no ratio in the study if there was one round."""
    if row is None or eager is None or not row.sample_time or not eager.sample_time:
        return "memory"
    if row.ratio is None:
        return f"{row.sample_time / eager.sample_time:.2f}, one round"
    return f"{row.ratio:.2f}"


# ---------------------------------------------------------------- the paper's grid


def levental2020_part(mode: str) -> str:
    """Time per sample of the lowest level and of eager, and their ratio, over the grid."""
    found = {(r.level, r.batch, r.resolution): r for r in levental2020_rows() if r.mode == mode}

    def grid(text: Cell) -> str:
        titles = ["batch", *(f"{size}x{size}" for size in SIZES)]
        rows = ([str(batch), *(text(batch, size) for size in SIZES)] for batch in SIZES)
        return table(titles, rows)

    def time(level: str) -> Cell:
        return lambda batch, size: time_text(found.get((level, batch, size)))

    def ratio(batch: int, size: int) -> str:
        return ratio_text(*(found.get((level, batch, size)) for level in ("cudnn", "eager")))

    parts = {
        "`cudnn`:": grid(time("cudnn")),
        "eager:": grid(time("eager")),
        "`cudnn` relative to eager:": grid(ratio),
    }
    return "\n\n".join(f"{said}\n\n{made}" for said, made in parts.items())


# ---------------------------------------------------------------- precisions


def precision_part(mode: str) -> str:
    """Times of eager and the lowest level, the gain of bf16, and the levels beside eager."""
    found = {(r.model, r.precision, r.level): r for r in precision_rows() if r.mode == mode}

    def times() -> Iterator[list[str]]:
        for model, name in NAMES.items():
            cells = (
                time_text(found[model, precision, level])
                for level in ("eager", "cudnn")
                for precision in ("default", "bf16", "fp16")
            )
            yield [name, *cells]

    def gains() -> Iterator[list[str]]:
        for model, name in NAMES.items():
            pairs = ((found[model, p, level].time for p in ("default", "bf16")) for level in LEVELS)
            yield [name, *(f"{plain / half:.2f}" for plain, half in pairs if plain and half)]

    def ratios() -> Iterator[list[str]]:
        for model, name in NAMES.items():
            cells = (
                ", ".join(
                    ratio_text(found[model, p, level], found[model, p, "eager"])
                    for p in ("default", "bf16")
                )
                for level in LEVELS[1:]
            )
            yield [name, *cells]

    levels = ["eager", *(f"`{level}`" for level in LEVELS[1:])]
    heads = ["eager, `default`", "`bf16`", "`fp16`", "`cudnn`, `default`", "`bf16`", "`fp16`"]
    parts = {
        "Time per sample:": table(["", *heads], times()),
        "Speed of `bf16` relative to `default` at the same level:": table(["", *levels], gains()),
        "Time relative to eager's in the same precision, `default` and `bf16`:": table(
            ["", *levels[1:]], ratios()
        ),
    }
    return "\n\n".join(f"{said}\n\n{made}" for said, made in parts.items())


# ---------------------------------------------------------------- pages

STUDIES = {"levental2020": levental2020_part, "precision": precision_part}


def parts(page: str) -> dict[str, str]:
    """The generated parts of a page by their marks."""
    if page in STUDIES:
        return {mode: STUDIES[page](mode) for mode in MODES}
    return {name: stored_table.markdown() for name, stored_table in stored(page).items()}


def written(page: str) -> str:
    """The page with its tables."""
    text = (RESULTS / f"{page}.md").read_text()
    for name, part in parts(page).items():
        text = put_into(text, name, part)
    return text


if __name__ == "__main__":
    for page in [*STUDIES, *pages()]:
        file = RESULTS / f"{page}.md"
        file.write_text(written(page))
        print(file)
