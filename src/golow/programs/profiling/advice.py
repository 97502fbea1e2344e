"""Advice: rules that find causes of slow steps, in measured facts only.

A rule finds nothing if a fact that it needs is missing, and promises nothing that was not
measured: a faster level is one that this profile raced, whose 95% interval is below the other's.
Where it was not raced, the finding has the command that measures it.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence

from golow.programs.comparison.repeat_command import again
from golow.programs.profiling.alignment import unaligned_sizes
from golow.programs.profiling.idle import CAUSES
from golow.programs.profiling.kernels import KernelTime
from golow.programs.profiling.memory import ACTIVATIONS
from golow.programs.profiling.profile_record import Finding, LevelProfile, Profile
from golow.programs.profiling.summary import OTHER, Part
from golow.records.comparison import Quantity
from golow.worker.protocol import WORKSPACE

HOST_SHARE = 0.2  # of a step in which the GPU waits for the host, or the host is in Python
PLAIN_SHARE = 0.2  # of the kernels' time without tensor cores
LAYOUT_SHARE = 0.05  # of the kernels' time on a GPU, of the step on a CPU, in other layouts
COPY_SHARE = 0.01  # of a step in copies from pageable memory
FEW_BLOCKS_SHARE = 0.5  # of the kernels' time with fewer blocks than multiprocessors
WORKSPACE_SHARE = 0.2  # of the memory at its peak
MANY_KERNELS, SHORT_KERNEL = 100, 5e-6  # launches in a step; seconds of one, the mean
PROFILER_COST = 1.5  # a step with the profiler over one without
LOWER_LEVEL = 0.9  # of eager's time

MATRIX = re.compile(r"gemm|conv(?!ert)|winograd|fprop|dgrad|wgrad|cutlass|xmma", re.IGNORECASE)
"""Kernels of matrix products and convolutions, by their names."""

NO_MATRIX = re.compile(r"^triton_(?!tem)|depthwise|ReduceSplitK|init_device_workspace")
"""Kernels that have such a name and multiply no matrices. Inductor's name what they are fused with;
a depthwise convolution has no matrix; the rest prepare or add up."""

PRODUCT = re.compile(r"(^|::)(mm|addmm|bmm|baddbmm|linear|matmul)$")
LAYOUTS = re.compile(r"nchwToNhwc|nhwcToNchw", re.IGNORECASE)
LAYOUTS_ON_HOST = re.compile(r"^aten::contiguous$|reorder")
OUT_OF_A_FRAMEWORK = ("libtorch", "onednn", "cudnn")

Rule = Callable[[Profile, LevelProfile], Finding | None]


def findings(profile: Profile) -> tuple[Finding, ...]:
    """Findings of the rules at every level of a profile, the largest possible gain first."""
    found: list[Finding] = []
    for level in profile.levels:
        if level.summary and level.verdict == "match":
            found += [one for rule in RULES if (one := rule(profile, level)) is not None]
    known = {(one.level, one.faster) for one in found if one.name != "lower level"}
    fresh = [f for f in found if f.name != "lower level" or (f.level, f.faster) not in known]
    return tuple(sorted(fresh, key=lambda one: -one.gain))


# ---------------------------------------------------------------- the host


def waiting_for_the_host(profile: Profile, level: LevelProfile) -> Finding | None:
    """The GPU waits for the host, and a graph could launch its kernels.

    The profiler slows the host down and not the GPU. Without it, a step has no more idle time than
    it is longer than the GPU's work, so that share has to be large, too.
    """
    share, time = _share(level.idle, CAUSES[0]), _time(level)
    work = (1 - sum(part.share for part in level.idle)) * (level.profiled or 0.0)
    most = max(0.0, 1 - work / time) if time else 0.0
    if min(share, most) < HOST_SHARE or _is_graph(level.level):
        return None
    own = (_figure("waiting", "share", share), _figure("at most", "share", most))
    return _faster(profile, level, "host", own, _is_graph, "cudagraph", most * time)


def in_python(profile: Profile, level: LevelProfile) -> Finding | None:
    """On a CPU, much of eager's step is outside of any operator."""
    share = _share(level.summary, OTHER)
    if profile.workload.device != "cpu" or level.level != "eager" or share < HOST_SHARE:
        return None
    own = (_figure("outside", "share", share),)
    return _faster(
        profile, level, "python", own, lambda name: name == "libtorch", "libtorch", share
    )


def short_kernels(profile: Profile, level: LevelProfile) -> Finding | None:
    """Very many short kernels, which a compiler could fuse."""
    calls = sum(kernel.calls for kernel in level.kernels)
    mean = _seconds(level.kernels) / calls if calls else 0.0
    if calls <= MANY_KERNELS or mean >= SHORT_KERNEL or level.level.startswith("compile"):
        return None
    own = (_figure("kernels", "count", calls), _figure("mean", "s", mean))
    idle = sum(part.share for part in level.idle) * _time(level)
    wanted = "compile:cudagraphs" if _is_graph(level.level) else "compile"
    return _faster(
        profile, level, "short kernels", own, lambda n: n.startswith("compile"), wanted, idle
    )


def lower_level(profile: Profile, level: LevelProfile) -> Finding | None:
    """The fastest of all levels needs no framework in Python."""
    timed = [one for one in profile.levels if one.time is not None and one.verdict == "match"]
    best = min(timed, key=_time, default=level)
    if (
        level.level != "eager"
        or best.level.partition(":")[0] not in OUT_OF_A_FRAMEWORK
        or _time(best) > LOWER_LEVEL * _time(level)
        or not _is_faster(best, level)
    ):
        return None
    return _instead(profile, level, best, "lower level", ())


# ---------------------------------------------------------------- the kernels


def no_tensor_cores(profile: Profile, level: LevelProfile) -> Finding | None:
    """Products of matrices and convolutions without tensor cores."""
    plain = [
        kernel
        for kernel in level.kernels
        if MATRIX.search(kernel.name)
        and not NO_MATRIX.search(kernel.name)
        and not kernel.tensor_cores
    ]
    seconds, total = _seconds(plain), _seconds(level.kernels)
    if not total or seconds < PLAIN_SHARE * total:
        return None
    reason, sizes, precisions = _why_plain(profile, level, plain)
    return Finding(
        name="no tensor cores",
        level=level.level,
        figures=(
            _figure("share of kernels", "share", seconds / total),
            _figure("seconds", "s", seconds),
            *(_figure("size", "elements", size) for size in sizes),
        ),
        layers=_layers(plain),
        reason=reason,
        gain=_stake(level, seconds),
        command=again(
            "profile", profile.workload, "--by", "kernel",
            levels=(level.level,), precisions=precisions,
        ),
    )  # fmt: skip


def _why_plain(
    profile: Profile, level: LevelProfile, plain: Sequence[KernelTime]
) -> tuple[str, Sequence[int], tuple[str, ...]]:
    """Why kernels do not use tensor cores, as far as facts tell it, the sizes that do not fit, and
    the precisions to compare. A reason is one of at least half of their time."""
    precision = profile.workload.precision
    half = _seconds(plain) / 2
    if precision == "ieee":
        return "ieee", (), ("ieee", "tf32")
    if precision == "default" and _seconds([k for k in plain if PRODUCT.search(k.operator)]) > half:
        return "products in ieee", (), ("default", "tf32")
    sizes = unaligned_sizes(level.operators, plain, half, precision)
    others = (precision, "bf16") if precision in ("default", "tf32") else (precision,)
    return "sizes" if sizes else "", sizes, others


def layout_conversions(profile: Profile, level: LevelProfile) -> Finding | None:
    """Conversions between NCHW and NHWC, which channels last may avoid."""
    images = any(len(item.shape) == 4 for item in profile.workload.inputs)
    if level.level not in ("eager", "cudagraph") or not images:
        return None
    if level.kernels:
        seconds = _seconds([k for k in level.kernels if LAYOUTS.search(k.name)])
        total = _seconds(level.kernels)
    else:
        seconds = sum(o.total_host for o in level.operators if LAYOUTS_ON_HOST.search(o.name))
        total = level.profiled or 0.0
    if not total or seconds < LAYOUT_SHARE * total:
        return None
    own = (_figure("share", "share", seconds / total), _figure("seconds", "s", seconds))
    wanted = f"{level.level}:channels_last"
    name = "layouts" if level.kernels else "layouts on the host"
    stake = _stake(level, seconds)
    return _faster(profile, level, name, own, lambda name: name == wanted, wanted, stake)


def few_blocks(profile: Profile, level: LevelProfile) -> Finding | None:
    """Most time in kernels with fewer blocks than the GPU has multiprocessors."""
    few = [k for k in level.kernels if k.blocks_per_sm is not None and k.blocks_per_sm < 1]
    seconds, total = _seconds(few), _seconds(level.kernels)
    if not total or seconds < FEW_BLOCKS_SHARE * total:
        return None
    unused = sum(kernel.seconds * (1 - (kernel.blocks_per_sm or 0.0)) for kernel in few)
    batch = 2 * profile.workload.batch
    return Finding(
        name="few blocks",
        level=level.level,
        figures=(
            _figure("share of kernels", "share", seconds / total),
            _figure("without a block", "share", unused / seconds),
            _figure("batch", "samples", profile.workload.batch),
        ),
        layers=_layers(few),
        gain=_stake(level, unused),
        command=again(
            "profile", profile.workload, "--by", "kernel", levels=(level.level,), batch=batch
        ),
    )


def pageable_copies(profile: Profile, level: LevelProfile) -> Finding | None:
    """Copies to the device from memory that is not pinned."""
    copies = [copy for copy in level.copies if "Pageable ->" in copy.name]
    seconds = sum(copy.seconds for copy in copies)
    if not level.profiled or seconds < COPY_SHARE * level.profiled:
        return None
    return Finding(
        name="pageable copies",
        level=level.level,
        figures=(
            _figure("share", "share", seconds / level.profiled),
            _figure("copies", "count", sum(copy.calls for copy in copies)),
            _figure("copied", "B", sum(copy.bytes for copy in copies)),
        ),
        gain=_stake(level, seconds),
        command=again("profile", profile.workload, levels=(level.level,)),
    )


# ---------------------------------------------------------------- memory and the profiler


def large_activations(profile: Profile, level: LevelProfile) -> Finding | None:
    """In training, activations are the largest part of the memory."""
    if level.memory is None or profile.workload.mode != "train":
        return None
    parts = level.memory.peak.categories
    if not parts or max(parts, key=lambda name: parts[name]) != ACTIVATIONS:
        return None
    return _memory(profile, level, ACTIVATIONS)


def large_workspace(profile: Profile, level: LevelProfile) -> Finding | None:
    """Operators use much memory only while they run."""
    if level.memory is None:
        return None
    peak = level.memory.peak
    if not peak.bytes or peak.categories.get(WORKSPACE, 0) < WORKSPACE_SHARE * peak.bytes:
        return None
    return _memory(profile, level, WORKSPACE)


def _memory(profile: Profile, level: LevelProfile, category: str) -> Finding:
    assert level.memory is not None  # noqa: S101
    peak = level.memory.peak
    size = peak.categories[category]
    held = Counter[str]()
    for block in level.memory.blocks:
        if block.category == category and block.first <= peak.moment < block.last and block.layer:
            held[block.layer] += block.bytes
    return Finding(
        name=category,
        level=level.level,
        figures=(
            _figure("bytes", "B", size),
            _figure("share", "share", size / peak.bytes),
            _figure("peak", "B", peak.bytes),
        ),
        layers=tuple(layer for layer, _ in held.most_common(3)),
        command=again("profile", profile.workload, "--by", "memory", levels=(level.level,)),
    )


def profiler_cost(profile: Profile, level: LevelProfile) -> Finding | None:
    """A caution: with the profiler a step takes much longer, which blows up the host's shares."""
    profiled, time = level.profiled or 0.0, _time(level)
    if level.time is None or profiled <= PROFILER_COST * time:
        return None
    return Finding(
        name="profiler",
        level=level.level,
        figures=(_figure("with", "s", profiled), _figure("without", "s", time)),
    )


RULES: tuple[Rule, ...] = (
    waiting_for_the_host,
    in_python,
    short_kernels,
    no_tensor_cores,
    layout_conversions,
    few_blocks,
    pageable_copies,
    large_activations,
    large_workspace,
    profiler_cost,
    lower_level,
)


# ---------------------------------------------------------------- what rules share


def _faster(
    profile: Profile,
    level: LevelProfile,
    name: str,
    own: tuple[Quantity, ...],
    wanted: Callable[[str], bool],
    suggestion: str,
    stake: float,
) -> Finding | None:
    """The fastest of the wanted levels if it is faster; if none is in the profile, the command that
    measures the suggested one. stake: seconds of a step."""
    tried = [one for one in profile.levels if wanted(one.level)]
    faster = [one for one in tried if _is_faster(one, level)]
    if faster:
        return _instead(profile, level, min(faster, key=_time), name, own)
    if tried:
        return None
    return Finding(
        name=name,
        level=level.level,
        figures=own,
        reason=suggestion,
        gain=stake,
        command=again("compare", profile.workload, levels=(level.level, suggestion)),
    )


def _instead(
    profile: Profile, level: LevelProfile, best: LevelProfile, name: str, own: tuple[Quantity, ...]
) -> Finding:
    """The finding that another level was measured to be faster, and how to get it."""
    workload, kind = profile.workload, best.level.partition(":")[0]
    command = again("compare", workload, levels=(level.level, best.level))
    if kind == "libtorch" and workload.device == "cpu" and workload.precision == "default":
        command = again("emit", workload, "--out", f"{workload.model}_cpp")
    elif kind in ("onednn", "cudnn"):
        command = again("lower", workload, "--level", kind, "--show")
    figures = (
        _figure("step", "s", _time(level)),
        _figure("faster step", "s", _time(best)),
        _figure("ratio", "share", _time(best) / _time(level)),
    )
    return Finding(
        name=name,
        level=level.level,
        figures=(*own, *figures),
        faster=best.level,
        gain=_time(level) - _time(best),
        command=command,
    )


def _is_faster(one: LevelProfile, other: LevelProfile) -> bool:
    """True if it matched and its interval is below the other's."""
    if one.time is None or other.time is None or one.verdict != "match":
        return False
    high, low = one.time.high, other.time.low
    return high is not None and low is not None and high < low


def _is_graph(name: str) -> bool:
    """True if the level launches a step as one CUDA graph."""
    level, _, variant = name.partition(":")
    return level in ("cudagraph", "cudnn") or variant.endswith("cudagraphs")


def _time(level: LevelProfile) -> float:
    """Seconds of a step without a profiler."""
    return level.time.value if level.time is not None else 0.0


def _stake(level: LevelProfile, seconds: float) -> float:
    """Seconds of a step without a profiler that these seconds of a profiled one can be at most."""
    return min(seconds, _time(level))


def _share(parts: Sequence[Part], role: str) -> float:
    return sum(part.share for part in parts if part.role == role)


def _seconds(kernels: Sequence[KernelTime]) -> float:
    return sum(kernel.seconds for kernel in kernels)


def _layers(kernels: Sequence[KernelTime]) -> tuple[str, ...]:
    """The three layers whose kernels take the longest."""
    spent = defaultdict[str, float](float)
    for kernel in kernels:
        if kernel.layer:
            spent[kernel.layer] += kernel.seconds
    return tuple(sorted(spent, key=lambda layer: -spent[layer])[:3])


def _figure(name: str, unit: str, value: float) -> Quantity:
    return Quantity(name=name, unit=unit, value=value)
