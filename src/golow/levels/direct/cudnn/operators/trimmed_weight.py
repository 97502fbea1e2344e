"""The taps of a kernel that touch the image; the weight is trimmed while a plan is loaded."""

from golow.levels.direct.cudnn.build.load_once import compute_when_loading
from golow.levels.direct.implementation import Implementation
from golow.lower.operators.trimmed_weight import TrimmedWeight

IMPLEMENTATIONS = (Implementation(TrimmedWeight, compute_when_loading),)
