"""A load test on a GPU: samples are copied there and back within each request, and each context has
a stream of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import golow
from golow.levels.direct.cudnn.level import probe
from golow.observer import Silent
from golow.programs.load.contexts import Sizes, contexts_of
from golow.programs.load.load_record import LoadTest
from golow.programs.load.samples import samples_of
from golow.records.workload import Precision
from golow.workload.bundle import write_bundle
from golow.workload.prepare import prepare
from golow.workload.request import Request

if not torch.cuda.is_available() or not probe().available:
    pytest.skip(probe().missing or "torch sees no GPU", allow_module_level=True)

pytestmark = [pytest.mark.gpu, pytest.mark.slow]

FIVE = ("eager", "cudagraph", "compile", "compile:cudagraphs", "direct")


def loaded(model: str, levels: tuple[str, ...], **options: object) -> LoadTest:
    """A short load test on the GPU in which every level is right and fails nowhere."""
    pytest.importorskip("mlperf_loadgen", reason="needs MLPerf's LoadGen: pip install golow[load]")
    given: dict[str, object] = {
        "scenarios": ["offline", "server"],
        "rates": [100],
        "latency": 1.0,
        "percentile": 90,
        "max_batch": 4,
        "seconds": 2.0,
        "repeats": 1,
        "threads": 2,
        "device": "cuda",
        "quiet": True,
    }
    found = golow.load_test(model, levels=levels, **{**given, **options}).test  # type: ignore[arg-type]
    for level in found.levels:
        assert level.check.verdict == "match", (level.label, level.check.reason)
        assert not level.failed, (level.label, [run.reason for run in level.runs])
        assert any(run.joules for run in level.runs) or found.energy_missing
    return found


@pytest.mark.parametrize("precision", ["default", "bf16"])
def test_levels_are_proved_and_loaded_on_a_gpu(precision: Precision) -> None:
    found = loaded("mlp", ("eager", "direct"), precision=precision, contexts=(1, 2))
    labels = [level.label for level in found.levels]
    assert labels == ["eager", "eager x2", "cudnn", "cudnn x2"]


def test_every_level_of_a_gpu_takes_every_batch_size() -> None:
    """CUDA graphs of torch.compile belong to the thread that records them."""
    found = loaded("mlp", FIVE)
    for level in found.levels:
        sizes = {batch.bucket for run in level.runs for batch in run.batches}
        assert sizes <= {1, 2, 4}
        assert 4 in sizes


def test_texts_of_several_lengths_on_a_gpu() -> None:
    found = loaded("llama_tiny", ("eager", "direct"), lengths=(8, 32), rates=[20])
    for level in found.levels:
        lengths = {batch.length for run in level.runs for batch in run.batches}
        assert len(lengths) > 1


def test_each_context_has_a_stream_of_its_own(tmp_path: Path) -> None:
    prepared = prepare(Request("mlp", batch=4, device="cuda"))
    bundle, _ = write_bundle(prepared, tmp_path / "bundle")
    samples = samples_of(bundle)
    contexts = contexts_of("eager", bundle, samples, Sizes((1, 4), 2), None, Silent())
    streams = {context.cuda_stream for context in contexts} | {torch.cuda.default_stream()}
    assert len(streams) == 3
    for context in contexts:
        context.warm_up()
