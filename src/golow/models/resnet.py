"""ResNet: He, Zhang, Ren & Sun, "Deep residual learning for image recognition" (2016),
arXiv:1512.03385. State-dict names as in torchvision.

The bottleneck is "v1.5": a block that halves the image does so in its 3x3 convolution, where
the paper has the stride in the first 1x1. Published ResNet-50 weights are mostly of v1.5.
"""

from __future__ import annotations

from torch import Tensor, nn

from golow.models import check_arguments


def _shortcut(in_channels: int, out_channels: int, stride: int) -> nn.Sequential | nn.Identity:
    """The input in the shape of the block's output; unchanged if the shapes agree."""
    if stride == 1 and in_channels == out_channels:
        return nn.Identity()
    return nn.Sequential(
        nn.Conv2d(in_channels, out_channels, kernel_size=1, stride=stride, bias=False),
        nn.BatchNorm2d(out_channels),
    )


class BasicBlock(nn.Module):
    """Two 3x3 convolutions beside a shortcut.

    [batch, in_channels, height, width] -> [batch, width, height / stride, width / stride].
    """

    expansion = 1  # output channels over width
    zero_gamma_target = "bn2"  # the last batch norm of the branch; see initialise.py

    def __init__(self, in_channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(
            in_channels, width, kernel_size=3, stride=stride, padding=1, bias=False
        )
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, kernel_size=3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.downsample = _shortcut(in_channels, width, stride)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, images: Tensor) -> Tensor:
        """The branch plus the shortcut, then ReLU."""
        branch = self.relu(self.bn1(self.conv1(images)))
        branch = self.bn2(self.conv2(branch))
        branch += self.downsample(images)  # in place, as torchvision's: one buffer less
        output: Tensor = self.relu(branch)
        return output


class Bottleneck(nn.Module):
    """1x1, 3x3 and 1x1 convolutions beside a shortcut; the last is four times as wide.

    [batch, in_channels, height, width] -> [batch, 4 * width, height / stride, width / stride].
    """

    expansion = 4
    zero_gamma_target = "bn3"

    def __init__(self, in_channels: int, width: int, stride: int) -> None:
        super().__init__()
        out_channels = width * self.expansion
        self.conv1 = nn.Conv2d(in_channels, width, kernel_size=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, kernel_size=3, stride=stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, out_channels, kernel_size=1, bias=False)
        self.bn3 = nn.BatchNorm2d(out_channels)
        self.downsample = _shortcut(in_channels, out_channels, stride)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, images: Tensor) -> Tensor:
        """The branch plus the shortcut, then ReLU."""
        branch = self.relu(self.bn1(self.conv1(images)))
        branch = self.relu(self.bn2(self.conv2(branch)))
        branch = self.bn3(self.conv3(branch))
        branch += self.downsample(images)  # in place, as torchvision's: one buffer less
        output: Tensor = self.relu(branch)
        return output


Block = type[BasicBlock] | type[Bottleneck]


def _stage(block: Block, in_channels: int, width: int, blocks: int, stride: int) -> nn.Sequential:
    """Blocks of one width; the first takes the stride and the change of channels."""
    out_channels = width * block.expansion
    stage = nn.Sequential(block(in_channels, width, stride))
    for _ in range(blocks - 1):
        stage.append(block(out_channels, width, stride=1))
    return stage


class ResNet(nn.Module):
    """A 7x7 convolution and four stages of residual blocks, averaged and classified.

    Input: [batch, in_channels, height, width]. Output: logits [batch, classes].
    """

    def __init__(
        self, block: Block, blocks: tuple[int, int, int, int], in_channels: int, classes: int
    ) -> None:
        super().__init__()
        expansion = block.expansion
        self.conv1 = nn.Conv2d(in_channels, 64, kernel_size=7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(kernel_size=3, stride=2, padding=1)
        self.layer1 = _stage(block, 64, 64, blocks[0], stride=1)
        self.layer2 = _stage(block, 64 * expansion, 128, blocks[1], stride=2)
        self.layer3 = _stage(block, 128 * expansion, 256, blocks[2], stride=2)
        self.layer4 = _stage(block, 256 * expansion, 512, blocks[3], stride=2)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.flatten = nn.Flatten()
        self.fc = nn.Linear(512 * expansion, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Images [batch, in_channels, height, width] -> logits [batch, classes]."""
        features = self.maxpool(self.relu(self.bn1(self.conv1(images))))
        features = self.layer4(self.layer3(self.layer2(self.layer1(features))))
        logits: Tensor = self.fc(self.flatten(self.avgpool(features)))
        return logits


def resnet18(*, in_channels: int = 3, classes: int = 1000, resolution: int = 224) -> ResNet:
    """ResNet-18; the weights do not depend on the resolution, and every one is valid.

    Raises:
        ValueError: an argument is below 1.
    """
    check_arguments("resnet18", in_channels=in_channels, classes=classes, resolution=resolution)
    return ResNet(BasicBlock, (2, 2, 2, 2), in_channels, classes)


def resnet50(*, in_channels: int = 3, classes: int = 1000, resolution: int = 224) -> ResNet:
    """ResNet-50 v1.5; the weights do not depend on the resolution, and every one is valid.

    Raises:
        ValueError: an argument is below 1.
    """
    check_arguments("resnet50", in_channels=in_channels, classes=classes, resolution=resolution)
    return ResNet(Bottleneck, (3, 4, 6, 3), in_channels, classes)
