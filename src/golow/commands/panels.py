"""The groups in which ``--help`` lists commands and options."""

from __future__ import annotations

from copy import copy
from inspect import Parameter
from typing import Annotated, get_args, get_origin

from typer.models import OptionInfo

# Options by the names of their parameters; options in no group are listed first.
OPTIONS = {
    "Model": "mode batch resolution sequence input channels classes weights init loss pretrained "
    "download phase seed",
    "Training": "optimizer learning_rate momentum nesterov weight_decay betas smoothing epsilon "
    "clip schedule warm_up step_epochs factor flip crop",
    "Quantisation": "calibrate rule clipping_percentile samples test_samples gate rivals",
    "Levels": "levels level worker device ranks gpus precision threads",
    "Race": "cold interval time_limit allow_differs locate by_layer life life_rounds life_cold",
    "Load": "scenario latency ttft tpot percentile rate prompt tokens max_batch delay contexts "
    "repeats patience url",
    "Output": "out json report columns format against fail_above figures tensorboard save",
}
PANELS = {name: panel for panel, names in OPTIONS.items() for name in names.split()}


def in_panel(parameter: Parameter) -> Parameter:
    """The parameter of a command, whose option is listed in its group."""
    panel = PANELS.get(parameter.name)
    if panel is None or get_origin(parameter.annotation) is not Annotated:
        return parameter
    kind, *details = get_args(parameter.annotation)
    grouped = [copy(one) if isinstance(one, OptionInfo) else one for one in details]
    for one in grouped:
        if isinstance(one, OptionInfo):
            one.rich_help_panel = panel
    return parameter.replace(annotation=Annotated[kind, *grouped])
