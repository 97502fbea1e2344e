"""The weights of layers that are computed as one; they are joined while a plan is loaded."""

from golow.levels.direct.cudnn.build.builder import Builder
from golow.levels.direct.implementation import Implementation
from golow.lower.operators.joined_weight import JoinedWeight

IMPLEMENTATIONS = (Implementation(JoinedWeight, Builder.compute_when_loading),)
