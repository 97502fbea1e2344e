"""The kinds of hostile inputs, and the cases that a seed makes of them."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from random import Random
from typing import NamedTuple

from hostile import api, arguments, datasets, models, records
from hostile.case import Case, Outcome, faults
from hostile.runner import Runner

Kind = Callable[[Random, Path], Case]

KINDS: Mapping[str, Kind] = {
    kind.__name__.replace("_", "-"): kind
    for kind in (
        records.comparison,
        records.two_comparisons,
        records.training,
        records.resumed_training,
        records.profile,
        records.life_cycle,
        records.audit,
        records.load_test,
        records.generation,
        records.study_folder,
        records.study_file,
        models.model_file,
        models.program,
        datasets.published,
        datasets.pictures,
        datasets.prepared,
        datasets.archive,
        arguments.arguments,
        arguments.comparing,
        api.call,
    )
}


class Taken(NamedTuple):
    """A case, how golow took it, and what is wrong with that."""

    name: str
    case: Case
    outcome: Outcome
    faults: list[str]


def run_kind(
    name: str, numbers: Iterable[int], seed: int, runner: Runner, scratch: Path, seconds: float
) -> Iterator[Taken]:
    """Make and run the cases of those numbers; the folders of those without fault are removed."""
    for number in numbers:
        folder = scratch / f"{name}-{number}"
        folder.mkdir()
        folder.chmod(0o777)
        random = Random(f"{seed} {name} {number}")  # noqa: S311
        case = KINDS[name](random, folder)
        outcome = runner.run(case, seconds)
        found = faults(case, outcome)
        if not found:
            shutil.rmtree(folder, ignore_errors=True)
        yield Taken(f"{name}-{number}", case, outcome, found)
