"""Quantisations for tests, made by hand."""

from __future__ import annotations

from golow.programs.quantization.quantization_record import (
    LayerGain,
    Mixture,
    Movement,
    OtherQuantization,
    OutputDistance,
    Quantization,
    Ranking,
    Share,
    TaskAccuracy,
)
from golow.records.quantization import Calibration, KeptLayer, QuantizedLayer, QuantizedNetwork
from support.records.audits import workload

MOVED = Movement(
    data="digits, 360 samples of the test set",
    samples=360,
    outputs=(
        OutputDistance(
            error=0.01,
            divergence=1e-4,
            flipped=Share(count=2, cases=360, low=0.001, high=0.02),
        ),
        OutputDistance(error=0.5),
    ),
)
COST = TaskAccuracy(
    data=MOVED.data,
    original=Share(count=350, cases=360, low=0.95, high=0.99),
    quantized=Share(count=349, cases=360, low=0.94, high=0.99),
    lost=2,
    gained=1,
    gate=0.99,
    low=-0.01,
    high=0.02,
    perplexity=(3.5, 3.6),
)
EVERYTHING = Quantization(
    id="20261129-120000-resnet50-int8",
    created="2026-11-29T12:00:00+00:00",
    workload=workload(),
    network=QuantizedNetwork(
        model="resnet50",
        rule="int8",
        calibration=Calibration(method="percentile", data="digits", samples=512, share=0.9999),
        layers=(QuantizedLayer(path="conv1", rule="int8", signed=True),),
        kept=(KeptLayer(path="line", reason="a Conv1d; only Conv2d and Linear are quantised"),),
    ),
    movement=MOVED,
    accuracy=COST,
    original_bytes=4000,
    quantized_bytes=1100,
    ranking=Ranking(
        data="digits, training set",
        samples=256,
        measure="divergence",
        distance=1e-3,
        layers=(
            LayerGain(path="conv1", left=2e-4, multiplications=1000),
            LayerGain(path="fc", left=1.1e-3, multiplications=3000),
        ),
        original_right=250,
        quantized_right=240,
        proposal=Mixture(keep=("conv1",), right=249),
    ),
    others=(
        OtherQuantization(name="onnxruntime", movement=MOVED, accuracy=COST),
        OtherQuantization(name="another", reason="it is not installed"),
    ),
    file="q.safetensors",
)
