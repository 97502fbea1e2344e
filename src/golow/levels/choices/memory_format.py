"""The order of a tensor's elements in memory."""

from __future__ import annotations

from golow.levels.choices.choice import Alternative, Choice

CHOICES = (
    Choice(
        name="memory_format",
        summary="the order of images and weights in memory",
        made_by="PyTorch",
        where="torch.memory_format; NCHW unless the model and its input are converted",
        levels=("eager", "cudagraph"),
        read=None,
        likely=True,
        alternatives=(
            Alternative(
                name="channels_last",
                summary="channels contiguous in memory (NHWC)",
                value="channels_last",
                variant="channels_last",
                python="model.to(memory_format=torch.channels_last)",
            ),
        ),
    ),
)
