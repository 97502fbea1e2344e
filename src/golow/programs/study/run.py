"""A study in one function: axes -> cells, and a comparison for each cell without a record.

`run_study` is the table of contents: lay out the cells, find existing records, measure the rest.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from golow.programs.study.cells import cells
from golow.programs.study.file import built_in, read_study
from golow.programs.study.local import LocalExecutor
from golow.programs.study.loop import Executor, StudyRun
from golow.programs.study.observer import StudyObserver
from golow.programs.study.places import MOST_ON_A_CARD, places, require_places
from golow.programs.study.settings import StudySettings
from golow.programs.study.state import StudyState, read_state
from golow.programs.study.store import StudyFolder
from golow.programs.study.study_record import Study
from golow.records.errors import GolowError
from golow.records.workload import Device
from golow.storage.cache import open_cache
from golow.storage.files import is_file
from golow.storage.ownership import require_own
from golow.storage.shell_words import shell_word
from golow.workload.model_names import is_code

STUDIES = Path("runs/studies")


def run_study(
    study: Study, out: Path, settings: StudySettings, observer: StudyObserver
) -> StudyState:
    """Measure every cell of a study that has no record yet; an error in a cell becomes its record.

    out: the folder of studies, in which this one has its own. Call it again to continue: an
    interruption loses only the cells in progress. Raises `GolowError` for errors that the caller
    can fix, such as a full disk. With ``settings.refine``, cells with too few rounds are measured
    again too.
    """
    device = study.device if settings.ray is None else "cpu"  # the GPUs are on other machines
    require_places(device, settings.jobs, max(study.gpus))
    if settings.budget is not None and not settings.budget >= 0:  # nan too
        raise GolowError(
            f"--budget {settings.budget:g} is not a number of seconds", "use --budget 600 or so."
        )
    folder = StudyFolder(out / study.name)
    with folder.held():
        folder.write_study(study)
        with executor(study, folder, settings, observer) as chosen:
            order = cells(study, len(chosen.environment.affinity))
            run = StudyRun(study, order, folder, chosen, observer, settings.skip, settings.refine)
            run.run(settings.budget)
    return read_state(folder.path, run.environment)


def find_study(
    study: str | Path | Study, out: Path, device: Device | None = None, trust: bool = False
) -> Study:
    """The study with that name or file; the `GolowError` for an unknown one lists the studies.

    A study under ``out`` is a record: with code in it, it must be this user's own, or trusted. A
    file that the caller names is not asked whose it is.
    """
    if isinstance(study, Study):
        return study
    known = built_in()
    if str(study).endswith(".toml"):
        return _with_inputs(read_study(Path(study), device), Path(study))
    if str(study) in known:
        return read_study(known[str(study)], device)
    if is_file(out / study / "study.toml"):
        return recorded_study(out / study, device, trust)
    near = difflib.get_close_matches(str(study), known, n=1)
    raise GolowError(
        f"there is no study {str(study)!r}",
        (f"did you mean {near[0]}? " if near else "")
        + f"built-in studies are {', '.join(known)}; for another study, give a TOML file.",
    )


def _with_inputs(study: Study, file: Path) -> Study:
    """The study; raises `GolowError` if every cell of one of its models would fail without a
    size. Texts have none."""
    own = next((name for name in study.model if is_code(name)), None)
    sized = study.resolution or study.input or study.generation is not None
    if own is not None and not sized:
        raise GolowError(
            f"{file} states no size for the input of {own}",
            'add input = "3x224x224", the shape of one sample, or resolution = 224 for images '
            "with 3 channels.",
        )
    return study


def recorded_study(folder: Path, device: Device | None = None, trust: bool = False) -> Study:
    """The study in that folder, to be measured. trust: run it even if another user wrote it. Raises
    `GolowError`, with the models whose code it would run, for one that another user may have
    written."""
    file = StudyFolder(folder).file
    study = read_study(file, device)
    if not trust:
        code = [f"model: {model}" for model in study.model if is_code(model)]
        again = f"golow study resume {shell_word(folder)} --trust"
        require_own(folder, file.name, code, again)
    return study


@contextmanager
def executor(
    study: Study, folder: StudyFolder, settings: StudySettings, observer: StudyObserver
) -> Iterator[Executor]:
    """Executor of the cells: this machine, or a Ray cluster."""
    if settings.ray is not None:
        from golow.programs.study.cluster import RayExecutor

        if settings.jobs != 1:
            raise GolowError("--jobs applies only to this machine", "leave it out with --ray.")
        with RayExecutor(settings.ray, study, folder.draft, settings.program) as cluster:
            yield cluster
        return
    # A study of thread counts is about the cores: each cell gets all cores of its GPU.
    most_on_a_card = 1 if study.threads else MOST_ON_A_CARD
    with LocalExecutor(
        places(study.device, settings.jobs, most_on_a_card, max(study.gpus)),
        study.name,
        open_cache(),
        folder.draft,
        study.limits.cell_seconds,
        observer,
        settings.program,
    ) as local:
        yield local
