"""Whose reported times do not fill the time that passed is refuted, and nobody else."""

from __future__ import annotations

import itertools
import math

import msgspec
import pytest

from golow.measure import two_clocks
from golow.measure.block import warmup_iterations
from golow.measure.race import run_race
from golow.records.comparison import Block, Sample
from golow.worker.protocol import Challenge


def blocks(share: float, iteration: float, count: int = 10, contended: bool = False) -> list[Block]:
    """Three blocks whose worker reports that share of the time of its iterations."""
    wall = two_clocks.REQUEST_SECONDS + iteration * (count + math.ceil(0.2 * count))
    reported = (round(share * iteration * 1e9),) * count
    return [
        Block(
            round=number,
            position=0,
            host_ns=reported,
            wall_ns=round(wall * 1e9),
            contended=contended,
        )
        for number in range(3)
    ]


@pytest.mark.parametrize("contended", [False, True])
@pytest.mark.parametrize(("iteration", "count"), [(0.2e-3, 1000), (15e-3, 10), (2.0, 1)])
def test_whose_times_do_not_fill_its_blocks_is_refuted(
    iteration: float, count: int, contended: bool
) -> None:
    assert two_clocks.refute(blocks(1.0, iteration, count, contended)) == ""
    assert two_clocks.refute(blocks(0.95, iteration, count, contended)) == ""
    assert "fill 0.0% of them" in two_clocks.refute(blocks(1e-6, iteration, count, contended))
    if not contended:
        assert "fill 5" in two_clocks.refute(blocks(0.5, iteration, count))


def test_waiting_for_a_core_is_no_lie() -> None:
    """Of a contended block, whose threads waited, the times need to fill only the rest."""
    waited = [msgspec.structs.replace(b, wait_share=0.6) for b in blocks(0.4, 15e-3, 100, True)]
    assert two_clocks.refute(waited) == ""
    assert "fill" in two_clocks.refute(blocks(0.4, 15e-3, 100, True))
    little = [msgspec.structs.replace(b, wait_share=0.2) for b in blocks(0.4, 15e-3, 100, True)]
    assert "fill" in two_clocks.refute(little)


def on_device(share: float, iteration: float, count: int, waited: float = 0.0) -> list[Block]:
    """The same of a worker that runs on a device."""
    return [
        msgspec.structs.replace(block, device_ns=block.host_ns, wait_share=waited)
        for block in blocks(share, iteration, count)
    ]


def test_short_iterations_of_a_device_may_be_surrounded_by_longer_work() -> None:
    """A block without marks tells more of them; what is longer is judged as elsewhere."""
    assert two_clocks.refute(on_device(0.4, 0.8e-3, 1000)) == ""
    assert "fill 11" in two_clocks.refute(on_device(0.1, 0.8e-3, 1000))
    assert "fill 42" in two_clocks.refute(on_device(0.4, 2e-3, 400))


def test_a_device_waits_for_nobody_but_its_worker_does() -> None:
    """Its blocks are not contended while the host is far ahead."""
    assert two_clocks.refute(on_device(0.4, 15e-3, 100, waited=0.6)) == ""
    assert "fill" in two_clocks.refute(on_device(0.4, 15e-3, 100, waited=0.2))
    host = [msgspec.structs.replace(b, wait_share=0.6) for b in blocks(0.4, 15e-3, 100)]
    assert "fill" in two_clocks.refute(host)


def test_what_eagers_times_do_not_fill_either_is_no_lie() -> None:
    """As on a GPU that others use between the iterations; half a clock is still half of that."""
    assert "fill" in two_clocks.refute(blocks(0.6, 15e-3, 100))
    assert two_clocks.refute(blocks(0.6, 15e-3, 100), blocks(0.7, 15e-3, 100)) == ""
    assert "fill" in two_clocks.refute(blocks(0.35, 15e-3, 100), blocks(0.7, 15e-3, 100))
    assert "fill" in two_clocks.refute(blocks(0.6, 15e-3, 100), blocks(1.2, 15e-3, 100))


def test_writing_weights_again_is_no_lie() -> None:
    """A reset writes the weights of a large network, which takes as long as many iterations."""
    reset = [
        msgspec.structs.replace(b, wall_ns=b.wall_ns + 10**9, wrote=250 << 20)
        for b in blocks(1.0, 2e-3, 200)
    ]
    assert two_clocks.refute(reset) == ""
    unknown = [msgspec.structs.replace(b, wrote=0) for b in reset]
    assert "fill" in two_clocks.refute(unknown)
    small = [
        msgspec.structs.replace(b, wall_ns=b.wall_ns + 2 * 10**8, wrote=50 << 20)
        for b in blocks(0.3, 5e-3, 200)
    ]
    assert "fill" in two_clocks.refute(small)
    # How long hundreds of megabytes take is not known: only blocks without them are judged.
    slow = [
        msgspec.structs.replace(b, wall_ns=b.wall_ns + 10**10, wrote=250 << 20)
        for b in blocks(0.3, 5e-3, 200)
    ]
    assert two_clocks.refute(slow) == ""
    assert "fill 30" in two_clocks.refute([*slow, *blocks(0.3, 5e-3, 200)])
    # What is allowed for some blocks hides nothing in the others.
    slack = msgspec.structs.replace(blocks(0.5, 15e-3, 100)[0], wrote=10 << 30)
    assert "fill 50" in two_clocks.refute([slack, *blocks(0.5, 15e-3, 100)[1:]])


def stalled(blocks: list[Block], count: int) -> list[Block]:
    """Sixteen blocks, of which so many last for half a minute longer, with the cores busy."""
    longer = [
        msgspec.structs.replace(
            block, wall_ns=block.wall_ns + 30 * 10**9, busy_ns=(block.busy_ns or 0) + 30 * 10**9
        )
        for block in blocks * count
    ]
    return [*longer[:count], *(blocks * 6)[: 16 - count]]


def test_a_quarter_of_the_blocks_may_stall_for_any_reason() -> None:
    """A single untimed iteration that waits for its threads outweighs all other blocks."""
    for count in (1, 4):
        assert two_clocks.refute(stalled(blocks(1.0, 15e-3, 100), count)) == ""
        assert two_clocks.refute_busy(stalled(busy(1.0, 1.0), count), 1) == ""
        assert "fill 5" in two_clocks.refute(stalled(blocks(0.5, 15e-3, 100), count))
        assert "processor time" in two_clocks.refute_busy(stalled(busy(0.6, 1.0), count), 1)
    assert "fill" in two_clocks.refute(stalled(blocks(1.0, 15e-3, 100), 5))
    assert "processor time" in two_clocks.refute_busy(stalled(busy(1.0, 1.0), 5), 1)


def test_one_of_a_few_contended_blocks_may_stall() -> None:
    """A time limit ended the race of a right level on busy cores after two rounds: an untimed
    iteration of the second had waited for its threads."""
    whole, other, _ = busy(1.0, 1.0, count=400)
    stalls = msgspec.structs.replace(other, busy_ns=(other.busy_ns or 0) + 30 * 10**9)
    assert two_clocks.refute_busy([whole, stalls], 1) == ""
    assert "processor time" in two_clocks.refute_busy([stalls, stalls], 1)
    assert "processor time" in two_clocks.refute_busy([stalls], 1)
    assert "processor time" in two_clocks.refute_busy(busy(0.6, 1.0, count=400)[:2], 1)
    clean = [msgspec.structs.replace(block, contended=False) for block in (whole, stalls)]
    assert "processor time" in two_clocks.refute_busy(clean, 1)


def test_a_few_contended_blocks_are_judged_with_a_margin() -> None:
    """A race of two seconds on busy cores: eager's times were 84% of what its threads used, one of
    which had waited actively while the other one had no core."""
    few = busy(1.0, 2 / 0.8, count=400)
    assert two_clocks.refute_busy(few[:1], 2) == ""
    assert "processor time" in two_clocks.refute_busy(busy(1.0, 2 / 0.5, count=400)[:1], 2)
    assert "processor time" in two_clocks.refute_busy(few * 2, 2), "enough blocks"
    clean = [msgspec.structs.replace(block, contended=False) for block in few[:1]]
    assert "processor time" in two_clocks.refute_busy(clean, 2)


def test_around_short_iterations_a_few_contended_blocks_may_need_more() -> None:
    """An LSTM's iterations of 40 us in a race of one round: the marks between them, with cold
    caches, took longer than the iterations."""
    for used, refuted in ((2.5, False), (5.0, True)):
        short = [
            msgspec.structs.replace(b, busy_ns=round(used * b.wall_ns + 4e7), contended=True)
            for b in blocks(1.0, 200e-6, 3000)
        ]
        assert bool(two_clocks.refute_busy(short[:1], 1)) is refuted
        assert "processor time" in two_clocks.refute_busy(short * 2, 1), "enough blocks"


def unlike(short: float, count: int = 400, waits: int = 40) -> list[Block]:
    """Blocks of one thread whose iterations use 15 ms each, of which they report so much, but for a
    tenth, which waited for a core for ten times as long."""
    times = (round(short * 15e6),) * (count - waits) + (150_000_000,) * waits
    return [msgspec.structs.replace(block, host_ns=times) for block in busy(1.0, 1.0, count=count)]


def test_iterations_that_waited_do_not_cover_for_the_others() -> None:
    """On busy cores one in ten may wait, and the median, which is quoted, is a third of what the
    work took in a thread."""
    cheats, honest = unlike(0.3), unlike(1.0)
    assert (two_clocks.busy_share(cheats, 1) or 0) > two_clocks.LEAST_BUSY_SHARE
    assert "processor time" in two_clocks.refute_busy(cheats, 1, honest)
    assert two_clocks.refute_busy(honest, 1, honest) == ""
    assert two_clocks.refute_busy(cheats, 1, cheats) == "", "work that differs does so everywhere"


class Stalling:
    """A worker whose first blocks in a race of millisecond iterations last for longer than it says,
    by golow's clock."""

    name = "eager"

    def __init__(self, stalls: int) -> None:
        self.stalls, self.blocks = stalls, 0

    def time(
        self,
        iterations: int,
        warmup: int,
        cold: bool = False,
        challenge: Challenge | None = None,
        within: float | None = None,
    ) -> Sample:
        passed = 2_000_000 * (iterations + warmup)
        if warmup > 1:  # no probe of the calibration
            self.blocks += 1
            passed += 5 * 10**9 * (self.blocks <= self.stalls)
        return Sample(host_ns=(2_000_000,) * iterations, wall_ns=passed, wait_share=0.0)


@pytest.mark.parametrize(("stalls", "refuted"), [(0, False), (1, False), (1000, True)])
def test_a_race_refutes_nobody_for_its_first_block(stalls: int, refuted: bool) -> None:
    race = run_race([Stalling(stalls)], baseline="eager", seed=0, time_limit=0.3, block_seconds=0.2)
    assert ("eager" in race.failures) is refuted


def test_few_blocks_are_judged_when_the_race_ends() -> None:
    clock = map(float, itertools.count())
    race = run_race(
        [Stalling(1000)], baseline="eager", seed=0, time_limit=1.0, necessary=1, least_rounds=1,
        clock=lambda: next(clock),
    )  # fmt: skip
    assert len(race.rounds) < two_clocks.LEAST_BLOCKS
    assert "golow's clock" in str(race.failures["eager"])


def test_one_sides_clock_alone_says_nothing() -> None:
    """Records from before have no clock of the parent's, and short races too little of it."""
    old = [Block(round=0, position=0, host_ns=(1,) * 10)] * 9
    assert two_clocks.refute(old) == ""
    assert two_clocks.refute(blocks(0.1, 1e-3)[:1]) == ""


@pytest.mark.parametrize(
    ("utilization", "baseline", "refuted"),
    [(0.0, 0.36, True), (0.0, 0.01, False), (0.01, 0.9, False), (None, 0.5, False)],
)
def test_who_leaves_the_gpu_idle_did_not_run_there(
    utilization: float | None, baseline: float, refuted: bool
) -> None:
    """Where the baseline is hardly seen itself, nothing is said."""
    assert bool(two_clocks.refute_idle(utilization, baseline)) is refuted
    assert two_clocks.refute_idle(utilization, None) == ""


# ---------------------------------------------------------------- processor time


def busy(share: float, used: float, wait_share: float = 0.0, count: int = 100) -> list[Block]:
    """Three blocks that report that share of their 15 ms iterations, and used the processor for so
    many times their wall time."""
    return [
        msgspec.structs.replace(
            block, busy_ns=round(used * block.wall_ns), wait_share=wait_share, contended=True
        )
        for block in blocks(share, 15e-3, count)
    ]


def test_who_works_outside_of_its_iterations_is_refuted() -> None:
    """In a thread whose result it waits for later, or between its blocks."""
    assert two_clocks.refute_busy(busy(1.0, 1.0), 1) == ""
    assert "of the processor time" in two_clocks.refute_busy(busy(0.6, 1.0), 1)
    assert "of the processor time" in two_clocks.refute_busy(busy(1.0, 1.6), 1)


def test_who_uses_more_threads_than_it_was_given_is_refuted() -> None:
    assert "with more than 1 threads" in two_clocks.refute_busy(busy(1.0, 1.9), 1)
    assert two_clocks.refute_busy(busy(1.0, 1.9), 2) == ""
    assert "with more than 2 threads" in two_clocks.refute_busy(busy(1.0, 3.8), 2)


def test_what_is_done_around_short_iterations_takes_as_long_as_at_the_baseline() -> None:
    """Where other programs fill the caches. A thread that works beside it uses more than that."""

    def short(around: float, beside: float = 0.0) -> list[Block]:
        """Iterations of 30 us that are reported as they are."""
        count = 5000
        used = (30e-6 + around + beside) * (count + warmup_iterations(count))
        return [
            msgspec.structs.replace(block, busy_ns=round(1e9 * used), contended=True)
            for block in blocks(1.0, 30e-6, count)
        ]

    assert two_clocks.refute_busy(short(20e-6), 1) == ""
    assert "of the processor time" in two_clocks.refute_busy(short(80e-6), 1)
    assert two_clocks.refute_busy(short(80e-6), 1, short(80e-6)) == ""
    assert "of the processor time" in two_clocks.refute_busy(short(80e-6), 1, short(20e-6))
    assert "of the processor time" in two_clocks.refute_busy(short(80e-6, 30e-6), 1, short(80e-6))
    assert "of the processor time" in two_clocks.refute_busy(short(900e-6), 1, short(900e-6))


def test_busy_cores_hide_no_clock_that_runs_slow() -> None:
    """An iteration that waits is reported with its waiting: half of that is wrong."""
    assert two_clocks.refute_busy(busy(1.0, 0.5, wait_share=0.5), 1) == ""
    assert "processor time" in two_clocks.refute_busy(busy(0.5, 0.5, wait_share=0.5), 1)


def test_processor_time_refutes_nobody_where_it_is_not_known() -> None:
    unknown = blocks(0.1, 15e-3)
    assert two_clocks.refute_busy(unknown, 1) == ""
    assert two_clocks.refute_busy(busy(0.1, 1.0), None) == ""
    assert two_clocks.refute_busy(busy(0.1, 1.0, count=1), 1) == "", "too little to tell"
    device = [msgspec.structs.replace(b, device_ns=b.host_ns) for b in busy(0.1, 1.0)]
    assert two_clocks.refute_busy(device, 1) == ""


def one_contended(
    used: float, quoted: float, waits: int = 60, longest: float = 15e-3
) -> list[Block]:
    """The only block of a race on busy cores: a thousand iterations that used the processor for so
    many seconds each, and are quoted as so many, but for a few that waited for a core."""
    times = (round(quoted * 1e9),) * (1000 - waits) + (round(longest * 1e9),) * waits
    waited = 0.8 * waits * longest
    wall = 1200 * used + waited
    block = Block(
        round=0,
        position=0,
        host_ns=times,
        wall_ns=round(wall * 1e9),
        busy_ns=round(1200 * used * 1e9),
        wait_share=waited / wall,
        contended=True,
    )
    return [block]


def test_a_thread_beside_the_iterations_shows_in_a_single_contended_block() -> None:
    """Figures of races that were over after one round, with eleven other programs on two cores. The
    sum of a few iterations that waited covers what a thread did."""
    eager, honest = one_contended(390e-6, 311e-6), one_contended(370e-6, 303e-6)
    for used, quoted in ((665e-6, 195e-6), (690e-6, 212e-6), (668e-6, 180e-6), (638e-6, 158e-6)):
        cheat = one_contended(used, quoted)
        assert (two_clocks.busy_share(cheat, 1) or 0) > two_clocks.LEAST_BUSY_SHARE
        assert "processor time" in two_clocks.refute_busy(cheat, 1, eager)
    assert two_clocks.refute_busy(honest, 1, eager) == ""
    assert two_clocks.refute_busy(eager, 1) == ""
    # With cold caches the work around an iteration takes longer, at eager as well.
    cold, short = one_contended(550e-6, 311e-6), one_contended(280e-6, 40e-6)
    assert two_clocks.refute_busy(short, 1, cold) == ""
