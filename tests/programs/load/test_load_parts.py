"""The parts of a load test that need no process: cores, buckets, settings."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from golow.programs.load.cores import divided
from golow.programs.load.settings import LoadSettings, buckets, length_buckets, plan_of
from golow.records.errors import GolowError


@given(st.integers(1, 1024))
def test_every_batch_fits_into_a_bucket_at_most_twice_as_large(most: int) -> None:
    found = buckets(most)
    assert found[0] == 1
    assert found[-1] == most
    for size in range(1, most + 1):
        assert min(one for one in found if one >= size) < 2 * size


@given(st.integers(1, 300), st.integers(0, 300))
def test_every_length_fits_into_a_bucket(shortest: int, more: int) -> None:
    found = length_buckets((shortest, shortest + more))
    assert found[-1] == shortest + more
    assert found[0] < 2 * shortest or found[0] == shortest + more
    assert all(larger <= 2 * smaller for smaller, larger in pairwise(found))


def test_samples_of_one_size_have_no_buckets_of_lengths() -> None:
    assert length_buckets(None) == ()


def machine(root: Path, *cores: tuple[int, ...]) -> list[int]:
    """A machine whose physical cores have these hardware threads."""
    for core in cores:
        for thread in core:
            place = root / f"sys/devices/system/cpu/cpu{thread}/topology"
            place.mkdir(parents=True)
            (place / "thread_siblings_list").write_text(",".join(map(str, core)))
    return sorted(thread for core in cores for thread in core)


def test_the_generator_has_cores_of_its_own_where_there_are_enough(tmp_path: Path) -> None:
    threads = machine(tmp_path, (0, 4), (1, 5), (2, 6), (3, 7))
    found = divided(threads, 2, tmp_path)
    assert not found.shared
    assert found.level == (0, 1, 4, 5)
    assert found.generator == (2, 3, 6, 7)


def test_where_the_level_needs_every_core_both_share_them(tmp_path: Path) -> None:
    threads = machine(tmp_path, (0,), (1,))
    found = divided(threads, 2, tmp_path)
    assert found.shared
    assert found.level == found.generator == (0, 1)


def test_the_server_runs_by_itself_only_if_there_is_something_to_hold() -> None:
    assert plan_of(LoadSettings(), 0).scenarios == ("single-stream", "offline")
    assert plan_of(LoadSettings(latency=0.02), 0).scenarios[-1] == "server"
    assert plan_of(LoadSettings(rates=[5.0]), 0).rates == (5.0,)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (LoadSettings(scenarios=["serve"]), "no scenario 'serve'"),
        (LoadSettings(scenarios=["server"]), "needs a rate, or a latency"),
        (LoadSettings(latency=0.0), "--latency"),
        (LoadSettings(percentile=100.0), "--percentile"),
        (LoadSettings(percentile=0.99), "--percentile"),
        (LoadSettings(rates=[0.0]), "--rate"),
        (LoadSettings(rates=[1e9]), "--rate"),
        (LoadSettings(max_batch=0), "--max-batch"),
        (LoadSettings(delay=-1.0), "--delay"),
        (LoadSettings(contexts=[0]), "--contexts"),
        (LoadSettings(contexts=[]), "--contexts"),
        (LoadSettings(lengths=(32, 16)), "no sample has 32 to 16 tokens"),
        (LoadSettings(lengths=(0, 16)), "no sample has 0 to 16 tokens"),
        (LoadSettings(seconds=float("nan")), "--seconds"),
        (LoadSettings(repeats=0), "--repeats"),
        (LoadSettings(patience=0.0), "--patience"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: LoadSettings, words: str) -> None:
    with pytest.raises(GolowError) as told:
        plan_of(settings, 0)
    assert words in told.value.message
    assert told.value.hint
