"""The parts of a life cycle that need no process: settling, the order of lives, energy."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from golow.levels.ladder import Launch
from golow.measure.gpu.joules import Joules
from golow.programs.life.one_life import require_match, same_program, with_setting
from golow.programs.life.other_batch import other_size
from golow.programs.life.schedule import Forecast, Measurement, schedule
from golow.programs.life.settling import LEAST, WINDOW, settle
from golow.records.comparison import Check
from golow.records.errors import WorkerFailure

TIMES = st.lists(st.integers(1, 10**9), min_size=LEAST, max_size=200)


@given(TIMES)
def test_settling_takes_at_least_the_first_iteration_and_at_most_half(times: list[int]) -> None:
    found = settle(times)
    assert min(times) / 1e9 <= found.steady * (1 + 1e-9)
    assert found.steady <= max(times) / 1e9 * (1 + 1e-9)
    assert found.after is None or 1 <= found.after <= len(times) // 2
    assert found.extra >= 0


@given(st.integers(1, 30), st.integers(10, 1000))
def test_slow_iterations_at_the_start_are_counted(slow: int, steady: int) -> None:
    """Ten times the steady time, then steady ones that vary by some percent."""
    noise = [steady * 1000 + 7 * (n % 5) for n in range(100)]
    found = settle([steady * 10_000] * slow + noise)
    # A window's median is steady once most of its iterations are.
    assert found.after is not None
    assert max(1, slow - WINDOW // 2) <= found.after <= slow + 1
    expected = 9 * steady * 1000 * (max(0, min(slow, found.after) - 1)) / 1e9
    assert found.extra == pytest.approx(expected, rel=0.02, abs=1e-9)


def test_a_single_slow_iteration_does_not_unsettle() -> None:
    times = [1000 + n % 7 for n in range(60)]
    times[20] = 10**6
    assert settle(times).after == 1


def test_what_keeps_changing_does_not_settle() -> None:
    assert settle([10**9 // (n + 1) for n in range(100)]).after is None


def test_too_few_iterations_are_refused() -> None:
    with pytest.raises(ValueError, match="too few to show"):
        settle([1] * (LEAST - 1))


# ---------------------------------------------------------------- order


@given(st.integers(1, 5), st.integers(0, 99), st.booleans())
def test_every_level_comes_once_with_each_kind_in_a_round(
    rounds: int, seed: int, cold: bool
) -> None:
    levels = ["a", "b", "c"]
    planned = schedule(levels, rounds, seed, cold=cold, settings=["NAME=1"])
    kinds = ["cold", "warm", "tried", "change"] if cold else ["warm", "tried"]
    for number in range(rounds):
        within = [one for one in planned if one.round == number]
        assert list(dict.fromkeys(one.kind for one in within)) == kinds
        for kind in kinds:
            assert sorted(one.level for one in within if one.kind == kind) == levels


def test_the_order_is_not_always_the_same() -> None:
    planned = schedule(["a", "b", "c"], 20, 0, cold=False, settings=[])
    assert len({tuple(t.level for t in planned if t.round == n) for n in range(20)}) > 2


def test_the_time_left_is_that_of_the_same_kind_and_level() -> None:
    forecast = Forecast()
    assert forecast.left([Measurement(0, "cold", "a")]) is None
    forecast.add(Measurement(0, "cold", "a"), 10.0)
    forecast.add(Measurement(0, "warm", "a"), 2.0)
    assert forecast.left([Measurement(1, "cold", "a"), Measurement(1, "warm", "a")]) == 12.0
    assert forecast.left([Measurement(0, "cold", "b")]) == 6.0
    assert forecast.left([]) == 0.0


# ---------------------------------------------------------------- programs


def test_a_cache_elsewhere_is_the_same_program_and_another_command_is_not() -> None:
    running = Launch(("python",), environment={"TORCHINDUCTOR_CACHE_DIR": "/a", "X": "1"})
    moved = running._replace(environment={"TORCHINDUCTOR_CACHE_DIR": "/b", "X": "1"})
    assert same_program(running, moved)
    assert not same_program(running, moved._replace(command=("python", "/b")))
    assert not same_program(running, running._replace(environment={"X": "2"}))


def test_a_setting_joins_the_environment() -> None:
    launch = Launch(("python",), environment={"X": "1"})
    assert with_setting(launch, "") is launch
    assert with_setting(launch, "Y=a=b").environment == {"X": "1", "Y": "a=b"}
    assert launch.environment == {"X": "1"}


def test_what_differs_ends_the_life() -> None:
    require_match(Check(verdict="match"))
    with pytest.raises(WorkerFailure, match="differs: 0/output/0"):
        require_match(Check(verdict="differs", reason="0/output/0 is wrong"))
    with pytest.raises(WorkerFailure) as failed:  # whoever tells it says `failed:` in front
        require_match(Check(verdict="failed", reason="it died"))
    assert str(failed.value) == "it died"


@given(st.integers(1, 10_000))
def test_the_other_batch_is_another(batch: int) -> None:
    assert other_size(batch) >= 1
    assert other_size(batch) != batch


# ---------------------------------------------------------------- energy


def zone(folder: Path, name: str, joules: int) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "name").write_text(f"{name}\n")
    (folder / "energy_uj").write_text(f"{joules}\n")
    (folder / "max_energy_range_uj").write_text("999\n")
    return folder / "energy_uj"


def test_packages_are_summed_and_a_full_counter_starts_again(tmp_path: Path) -> None:
    first = zone(tmp_path / "intel-rapl:0", "package-0", 100)
    second = zone(tmp_path / "intel-rapl:1", "package-1", 990)
    core = zone(tmp_path / "intel-rapl:0:0", "core", 5)
    joules = Joules(None, tmp_path)
    first.write_text("350\n")
    second.write_text("10\n")  # 20 more, past 999
    core.write_text("900\n")
    [spent] = joules.spent()
    assert (spent.name, spent.unit) == ("package_energy", "J")
    assert spent.value == pytest.approx(270e-6)


def test_a_counter_that_cannot_be_read_gives_nothing(tmp_path: Path) -> None:
    zone(tmp_path / "intel-rapl:0", "package-0", 100).unlink()
    assert list(Joules(None, tmp_path).spent()) == []
    assert list(Joules(None, tmp_path / "none").spent()) == []
