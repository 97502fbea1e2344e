"""Recurrent networks at `cudnn` without a GPU: which of them stay whole, and the plan around the
library's calls: weights in one piece, turned time, views, gradients. `GOLOW_EXAMPLES=100 pytest
tests/test_cudnn_recurrences.py` draws more."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest
import torch
from hypothesis import HealthCheck, given, settings

from cuda_on_cpu import follow
from drawn_recurrences import Drawn, Recurrent, recurrent
from golow.levels.vendor.cudnn import passes
from golow.levels.vendor.cudnn.precision import TYPES
from golow.levels.vendor.cudnn.planning import build_plan
from golow.levels.vendor.cudnn.recurrences import keep_faster_recurrences
from golow.levels.vendor.cudnn.recurrent import RecurrentNetwork
from golow.levels.vendor.cudnn.rnn_api import Lies, weight_places
from golow.lower.operators.recurrence import Recurrence, RecurrenceBackward
from golow.lower.operators.recurrent_layers import RecurrentLayers
from golow.lower.passes import CLEAN_UP, apply
from golow.record import Mode
from lowering import Case, count
from networks_on_cpu import HostNetwork, NetworkEngines, NetworkMachine
from test_cudnn_plans import assert_sound
from test_recurrences import First, sides

if TYPE_CHECKING:
    from golow.levels.vendor.cudnn.engines import Engines

EXAMPLES = int(os.environ.get("GOLOW_EXAMPLES", "4"))
FOLDER = Path(tempfile.mkdtemp(prefix="golow-recurrences-"))
MODES: tuple[Mode, ...] = ("infer", "train")
several = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=EXAMPLES < 10,
    suppress_health_check=[HealthCheck.too_slow],
)


def followed(case: Case) -> NetworkEngines:
    """The plan of the network, run node by node."""
    graph = apply(apply(case.graph, CLEAN_UP), passes(case.workload))
    values = {i.value.name: case.values[i.kind, i.target] for i in graph.inputs
              if (i.kind, i.target) in case.values}  # fmt: skip
    for item in graph.inputs:  # what the optimizer keeps
        values.setdefault(item.value.name, torch.zeros(item.value.shape))
    engines = NetworkEngines()
    follow(graph, cast("Engines", engines), values, FOLDER, NetworkMachine)
    return engines


@pytest.mark.parametrize("mode", MODES)
@several
@given(drawn=recurrent())
def test_the_plan_around_the_library_is_right(mode: Mode, drawn: Drawn) -> None:
    torch.manual_seed(0)
    case = Case(drawn.module(), torch.randn(drawn.shape), mode=mode)
    graph = case.after(*CLEAN_UP, keep_faster_recurrences)
    steps = drawn.shape[1 if drawn.settings["batch_first"] else 0]
    networks = followed(case).networks
    if steps == 1:
        assert not networks and not count(graph, RecurrentLayers) and not count(graph, Recurrence)
    elif mode == "infer":
        assert len(networks) == count(graph, RecurrentLayers) == 1
    else:
        assert len(networks) == count(graph, Recurrence) == sides(drawn)
        assert count(graph, RecurrenceBackward) == sides(drawn)
