"""The environment, read from this machine and from made-up ones."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from golow.measure.environment import container_limits, environment, git_state, unlike
from golow.records.comparison import Environment
from golow.records.record import encode

# Text of a real machine with one H200, cut.
NVIDIA_VERSION = """\
NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  (nixbld@)
GCC version:  gcc version 15.3.0 (GCC)
"""
NVIDIA_VERSION_CLOSED = """\
NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.104.05  Sat Aug 19 01:15:15 UTC 2023
"""
NVIDIA_CARD = "Model: \t\t NVIDIA H200\nIRQ:   \t\t 41\nGPU UUID: \t GPU-376d2cc3\n"

X86 = """\
processor\t: 0
model name\t: Intel(R) Xeon(R) Processor
flags\t\t: fpu sse sse4_2 fma avx f16c avx2 avx512f avx_vnni avx512_bf16 amx_bf16 amx_tile rdpid

processor\t: 1
model name\t: Intel(R) Xeon(R) Processor
"""
ARM = "processor\t: 0\nFeatures\t: fp asimd aes sve i8mm bf16 svebf16\nCPU part\t: 0xd40\n"


def write(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


def changed(like: Environment, **fields: Any) -> Environment:
    return msgspec.structs.replace(like, **fields)


# ---------------------------------------------------------------- the machine


def test_this_machine_is_read_and_survives_json() -> None:
    here = environment()
    assert here.cpu_model
    assert here.cores >= len(here.affinity) >= 1
    assert here.memory_bytes > 2**28
    assert here.python.startswith(f"{sys.version_info.major}.{sys.version_info.minor}.")
    assert {"torch", "numpy", "scipy", "safetensors"} <= here.versions.keys()
    assert here.model_git == {}
    assert msgspec.json.decode(encode(here), type=Environment) == here
    assert unlike(here, environment()) == []


@pytest.mark.slow
def test_measuring_imports_no_torch() -> None:
    code = (
        "import sys, golow.measure.race\n"
        "from golow.measure.environment import environment\n"
        "from golow.worker.scheduling import ContentionMeter\n"
        "environment()\n"
        "sys.exit('torch' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": ":".join(sys.path)})


def test_only_the_flags_that_choose_kernels_are_kept(tmp_path: Path) -> None:
    write(tmp_path, "proc/cpuinfo", X86)
    found = environment(root=tmp_path)
    assert found.cpu_model == "Intel(R) Xeon(R) Processor"
    assert found.cpu_flags == tuple(
        "amx_bf16 amx_tile avx avx2 avx512_bf16 avx512f avx_vnni f16c fma sse4_2".split()
    )


def test_arm_names_no_model(tmp_path: Path) -> None:
    write(tmp_path, "proc/cpuinfo", ARM)
    found = environment(root=tmp_path)
    assert found.cpu_model
    assert found.cpu_flags == ("asimd", "bf16", "i8mm", "sve", "svebf16")


def test_what_cannot_be_read_is_empty(tmp_path: Path) -> None:
    found = environment(root=tmp_path)
    assert (found.governor, found.driver, found.gpu) == ("", "", ())
    assert (found.cpu_flags, found.container_limits) == ((), {})


def test_governor(tmp_path: Path) -> None:
    for core in environment().affinity:
        write(tmp_path, f"sys/devices/system/cpu/cpu{core}/cpufreq/scaling_governor", "powersave\n")
    assert environment(root=tmp_path).governor == "powersave"


@pytest.mark.parametrize(
    ("text", "version"), [(NVIDIA_VERSION, "580.159.04"), (NVIDIA_VERSION_CLOSED, "535.104.05")]
)
def test_gpus_and_driver(tmp_path: Path, text: str, version: str) -> None:
    write(tmp_path, "proc/driver/nvidia/version", text)
    for bus in ("0000:00:06.0", "0000:00:07.0"):
        write(tmp_path, f"proc/driver/nvidia/gpus/{bus}/information", NVIDIA_CARD)
    found = environment(root=tmp_path)
    assert found.driver == version
    assert found.gpu == ("NVIDIA H200", "NVIDIA H200")


def test_thread_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    monkeypatch.setenv("GOMP_CPU_AFFINITY", "0-1")
    monkeypatch.setenv("HOME_OF_OMP_", "no")
    found = environment().thread_settings
    assert found["OMP_NUM_THREADS"] == "2"
    assert found["GOMP_CPU_AFFINITY"] == "0-1"
    assert "HOME_OF_OMP_" not in found


def test_no_compiler_no_version(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "g++" not in environment().versions


# ---------------------------------------------------------------- container limits


def test_limits_of_version_2_hold_from_the_groups_above(tmp_path: Path) -> None:
    write(tmp_path, "proc/self/cgroup", "0::/box/job\n")
    write(tmp_path, "sys/fs/cgroup/box/job/cpu.max", "max 100000\n")
    write(tmp_path, "sys/fs/cgroup/box/cpu.max", "150000 100000\n")
    write(tmp_path, "sys/fs/cgroup/box/job/memory.max", "2147483648\n")
    assert container_limits(tmp_path) == {"cpu.max": "150000 100000", "memory.max": "2147483648"}


def test_limits_inside_a_container_that_sees_only_its_own_group(tmp_path: Path) -> None:
    write(tmp_path, "proc/self/cgroup", "0::/../the/hosts/path\n")
    write(tmp_path, "sys/fs/cgroup/memory.max", "1000000\n")
    assert container_limits(tmp_path) == {"memory.max": "1000000"}


def test_limits_of_version_1(tmp_path: Path) -> None:
    write(tmp_path, "proc/self/cgroup", "4:memory:/box\n2:cpu,cpuacct:/box\n1:cpuset:/\n0::/\n")
    write(tmp_path, "sys/fs/cgroup/memory/box/memory.limit_in_bytes", "1073741824\n")
    write(tmp_path, "sys/fs/cgroup/cpu/box/cpu.cfs_quota_us", "50000\n")
    write(tmp_path, "sys/fs/cgroup/cpu/box/cpu.cfs_period_us", "100000\n")
    assert container_limits(tmp_path) == {"cpu.max": "50000 100000", "memory.max": "1073741824"}


def test_no_limits(tmp_path: Path) -> None:
    write(tmp_path, "proc/self/cgroup", "4:memory:/\n1:cpu:/\n0::/\n")
    write(tmp_path, "sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n")
    write(tmp_path, "sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n")
    write(tmp_path, "sys/fs/cgroup/cpu.max", "max 100000\n")
    write(tmp_path, "sys/fs/cgroup/memory.max", "max\n")
    assert container_limits(tmp_path) == {}


# ---------------------------------------------------------------- the user's file


def git(folder: Path, *arguments: str) -> str:
    who = ("-c", "user.name=a", "-c", "user.email=a@b")
    command = ["git", "-C", str(folder), *who, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A committed model file in a folder of a repository."""
    file = tmp_path / "nets" / "net.py"
    write(tmp_path, "nets/net.py", "net = 1\n")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "first")
    return file


def test_committed_file(model: Path) -> None:
    commit = git(model.parent, "rev-parse", "HEAD")
    assert git_state(model) == {"commit": commit, "dirty": "no", "path": "nets/net.py"}
    assert environment(model).model_git["commit"] == commit


def test_changed_file_is_dirty_and_its_neighbour_is_not(model: Path) -> None:
    neighbour = model.with_name("other.py")
    neighbour.write_text("other = 1\n")
    assert git_state(model)["dirty"] == "no"
    model.write_text("net = 2\n")
    assert git_state(model)["dirty"] == "yes"


@pytest.mark.parametrize("ignored", ["", "untracked.py\n"])
def test_file_that_git_does_not_track_is_dirty(model: Path, ignored: str) -> None:
    write(model.parent, ".gitignore", ignored)
    untracked = model.with_name("untracked.py")
    untracked.write_text("net = 1\n")
    assert git_state(untracked)["dirty"] == "yes"


def test_repository_without_a_commit(tmp_path: Path) -> None:
    write(tmp_path, "net.py", "net = 1\n")
    git(tmp_path, "init", "-q")
    assert git_state(tmp_path / "net.py") == {"commit": "", "dirty": "yes", "path": "net.py"}


def test_no_repository(tmp_path: Path) -> None:
    write(tmp_path, "net.py", "net = 1\n")
    assert git_state(tmp_path / "net.py") == {}


def test_git_missing(model: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    assert git_state(model) == {}


# ---------------------------------------------------------------- what forbids comparing


@pytest.mark.parametrize(
    ("fields", "names"),
    [
        ({"cpu_model": "Another"}, ["the CPU"]),
        ({"cpu_flags": ()}, ["the CPU's flags"]),
        ({"cores": 999}, ["the number of cores"]),
        ({"affinity": tuple(range(77))}, ["the number of cores allowed"]),
        ({"governor": "warp"}, ["the frequency governor"]),
        ({"container_limits": {"cpu.max": "5 10"}}, ["the container's limit of cores"]),
        ({"gpu": ("NVIDIA Z1",), "driver": "1.2"}, ["the GPU", "the GPU driver"]),
        ({"thread_settings": {"OMP_NUM_THREADS": "77"}}, ["the thread settings"]),
        ({"python": "3.99.1"}, ["Python"]),
        ({"versions": {}}, ["torch", "g++"]),
    ],
)
def test_unlike_names_what_differs(fields: dict[str, Any], names: list[str]) -> None:
    versions = {"torch": "2.13.0", "g++": "g++ 12"}
    here = changed(environment(), versions=versions, cpu_flags=("avx2",))
    found = unlike(here, changed(here, **fields))
    assert [fragment.partition(" (")[0] for fragment in found] == names


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("nvidia-cudnn-cu13", True),
        ("nvidia-cublas", True),
        ("triton", True),
        ("CUDA of the driver", True),
        ("nvidia-ml-py", False),  # it only reads
        ("scipy", False),
    ],
)
def test_what_a_gpus_times_depend_on_counts_on_a_gpu(name: str, counts: bool) -> None:
    here = changed(environment(), versions={"torch": "2.11.0", name: "1.0"})
    there = changed(here, versions={"torch": "2.11.0", name: "2.0"})
    assert unlike(here, there) == unlike(here, there, "cpu") == []
    assert unlike(here, there, "cuda") == ([f"{name} (1.0, 2.0)"] if counts else [])


def test_a_gpu_in_a_larger_machine_is_the_same_gpu() -> None:
    here = changed(environment(), cores=16, affinity=(0, 1, 2), gpu=("NVIDIA H200",))
    there = changed(here, cores=64, affinity=(61, 62, 63), gpu=("NVIDIA H200",) * 4)
    assert unlike(here, there, "cuda") == []
    assert unlike(here, there, "cpu") == ["the number of cores (16, 64)"]
    other = changed(there, gpu=("NVIDIA H100", "NVIDIA H200"))
    assert unlike(here, other, "cuda") == ["the GPU (NVIDIA H200, NVIDIA H100 NVIDIA H200)"]


def test_unlike_says_both_values() -> None:
    here = changed(environment(), cpu_model="AMD EPYC", gpu=())
    there = changed(here, cpu_model="Intel Xeon", gpu=("NVIDIA H200",))
    assert unlike(here, there) == ["the CPU (AMD EPYC, Intel Xeon)", "the GPU (none, NVIDIA H200)"]


def test_what_may_differ() -> None:
    here = changed(environment(), affinity=(0, 1), python="3.12.1")
    there = changed(here, affinity=(2, 3), python="3.12.9", kernel="Linux 9", memory_bytes=1)
    there = changed(there, container_limits={"memory.max": "5"} | here.container_limits)
    there = changed(there, model_git={"commit": "abc"}, versions=here.versions | {"scipy": "9"})
    assert unlike(here, there) == []
