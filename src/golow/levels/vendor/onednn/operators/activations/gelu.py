"""gelu with the error function."""

from __future__ import annotations

from golow.levels.vendor.onednn.eltwise import Eltwise

ACTIVATIONS = {"gelu": Eltwise("gelu_erf")}
