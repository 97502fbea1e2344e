"""Networks that the zoo does not have, each in small and with random weights, as their authors'
code would write them. `race_further_networks.py` races the levels on them."""

from __future__ import annotations

from further_bricks import Network
from further_images import (
    ConvMixer,
    GoogLeNet,
    GroupNormed,
    LinearAttention,
    Mixer,
    MobileNetV3,
    RegNetY,
    SqueezeNet,
)
from further_scenes import Autoencoder, DeepLab, Detector, DiffusionUNet, Generator, SuperResolution
from further_sequences import (
    Bottleneck,
    Causal,
    Conformer,
    PointNet,
    Recurrent,
    SpeechEncoder,
    Table,
    Volumes,
)

EVERY: tuple[type[Network], ...] = (
    ConvMixer, Mixer, RegNetY, SqueezeNet, GoogLeNet, MobileNetV3, LinearAttention,
    GroupNormed, DeepLab, SuperResolution, Generator, Autoencoder, Detector,
    DiffusionUNet, Causal, Conformer, SpeechEncoder, PointNet, Volumes, Recurrent, Table,
    Bottleneck,
)  # fmt: skip
NETWORKS = {kind.__name__: kind for kind in EVERY}
