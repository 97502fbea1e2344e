"""The lives of all levels: measured in the order of the schedule, each failure as its level's
result."""

from __future__ import annotations

import shutil
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from golow.levels.ladder import Launch
from golow.levels.level_selection import choices
from golow.levels.starter import Starter
from golow.measure.gpu.nvml import Card
from golow.observer import Observer
from golow.programs.life.life_record import LevelLife, Life, LifeCycle
from golow.programs.life.mitigations import TRIED
from golow.programs.life.one_life import Judge, Subject
from golow.programs.life.other_batch import OtherBatch
from golow.programs.life.schedule import Forecast, Measurement, schedule
from golow.programs.life.settings import LifeSettings
from golow.records.errors import GolowError, Unsupported, WorkerFailure
from golow.storage.cache import open_cache
from golow.worker.time_limits import Limits
from golow.workload.bundle import Bundle


class Lives:
    """The lives of all levels, as they are measured."""

    def __init__(
        self,
        found: LifeCycle,
        settings: LifeSettings,
        bundle: Bundle,
        judge: Judge,
        changed: OtherBatch | None,
        starter: Starter,
        card: Card | None,
    ) -> None:
        """judge: the check of the workload. changed: with another batch size; None leaves it out.
        card: the GPU, None on a CPU."""
        self._settings, self._bundle, self._changed = settings, bundle, changed
        self._judge, self._workload = judge, found.workload
        self._levels = {level.level: level for level in found.levels}
        chosen = choices(
            settings.levels, settings.workers, self._workload.mode, self._workload.device
        )
        self._subjects = {
            choice.name: Subject(
                choice,
                starter,
                settings.limits or Limits(),
                card=card,
                iteration=_iteration(self._levels[choice.name]),
            )
            for choice in chosen
            if self._levels[choice.name].verdict == "match"
        }
        self._launches: dict[str, Launch] = {}

    def levels(self) -> tuple[LevelLife, ...]:
        """All levels with the results so far, in the ladder's order."""
        return tuple(self._levels.values())

    def run(self, folder: Path, observer: Observer) -> None:
        """Measure everything, round by round."""
        planned = schedule(
            list(self._subjects),
            self._settings.rounds,
            self._workload.seed,
            cold=self._settings.cold,
            settings=TRIED[self._workload.device],
        )
        forecast = Forecast()
        for number, one in enumerate(planned):
            if self._is_over(one):
                continue
            left = forecast.left([later for later in planned[number:] if not self._is_over(later)])
            rest = f", about {left:.0f} s left" if left is not None else ""
            observer.stage(f"{one.level}: {_words(one)} ({number + 1} of {len(planned)}{rest})")
            began = time.perf_counter()
            with self._recorded(one):
                self._measure(one, folder / f"cache-{one.level.replace(':', '-')}")
            forecast.add(one, time.perf_counter() - began)

    def _is_over(self, one: Measurement) -> bool:
        """True if the level has failed before in a way that would repeat."""
        level = self._levels[one.level]
        missing = {"change": level.change_missing, "tried": level.setting_missing}
        return bool(level.failed or missing.get(one.kind))

    def _measure(self, one: Measurement, cache: Path) -> None:
        subject = self._subjects[one.level]
        if one.kind == "cold":
            shutil.rmtree(cache, ignore_errors=True)
            cache.mkdir(mode=0o700)
            life, launch = subject.cold(self._bundle, cache, one.round, self._judge)
            self._launches[one.level] = launch
            self._add(one.level, life)
        elif one.kind == "change":
            self._change(one, cache)
        else:
            if one.level not in self._launches:
                self._launches[one.level] = subject.built(
                    self._bundle, open_cache(self._settings.cache)
                )
            launch = self._launches[one.level]
            self._add(
                one.level,
                subject.warm(self._bundle, launch, one.round, self._judge, one.setting),
            )

    def _change(self, one: Measurement, cache: Path) -> None:
        level, new = self._levels[one.level], self._changed
        if new is None or new.bundle is None or new.judge is None:
            missing = new.missing if new is not None else ""
            self._levels[one.level] = msgspec.structs.replace(level, change_missing=missing)
            return
        change = self._subjects[one.level].changed(
            self._bundle, self._launches[one.level], new.bundle, cache, one.round, new.judge
        )
        self._levels[one.level] = msgspec.structs.replace(level, changes=(*level.changes, change))

    def _add(self, name: str, life: Life) -> None:
        level = self._levels[name]
        self._levels[name] = msgspec.structs.replace(level, lives=(*level.lives, life))

    @contextmanager
    def _recorded(self, one: Measurement) -> Iterator[None]:
        """Turn an error of the level into its row's reason. A setting or batch size that it cannot
        take leaves its lives as they are."""
        try:
            yield
            return
        except Unsupported as error:
            reason, log = error.words, ""
        except GolowError as error:
            reason, log = f"{error.message} {error.hint}".strip(), ""
        except WorkerFailure as error:
            reason, log = str(error), error.log
        except Exception as error:  # an error in the level's own code is a result too
            reason, log = f"{type(error).__name__}: {error}", traceback.format_exc()
        level, stage = self._levels[one.level], self._subjects[one.level].stages.now
        told = f"{_words(one)}, {stage.replace('_', ' ')}: {reason}"
        missing = {"change": "change_missing", "tried": "setting_missing"}.get(one.kind)
        which = {missing: told} if missing else {"failed": told, "log": log}
        self._levels[one.level] = msgspec.structs.replace(level, **which)


def _words(one: Measurement) -> str:
    words = {
        "cold": "cold life",
        "warm": "warm life",
        "tried": f"life with {one.setting}",
        "change": "other batch size",
    }
    return words[one.kind]


def _iteration(level: LevelLife) -> float | None:
    return level.time.value if level.time else None
