"""Run ResNet-18 in torch: call batch normalisation directly, which leaves its counters of batches out.

Outputs do not depend on the counters; each is a launch of its own in the reference, in a call that the host paces.
"""

from torch import Tensor, nn
from torch.nn import functional


def normalised(x: Tensor, norm: nn.BatchNorm2d) -> Tensor:
    """Apply a layer's batch normalisation in its mode; running statistics are kept up to date."""
    statistics = (norm.running_mean, norm.running_var)
    return functional.batch_norm(x, *statistics, norm.weight, norm.bias, norm.training, norm.momentum, norm.eps)


class Block(nn.Module):
    """Two 3x3 convolutions and a shortcut; parameters are made in the reference's order."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.downsample: nn.Sequential | None = None
        if stride != 1:
            self.downsample = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)

    def forward(self, x: Tensor) -> Tensor:
        """Return the block's output; what is not needed again is overwritten."""
        out = normalised(self.conv1(x), self.bn1).relu_()
        out = normalised(self.conv2(out), self.bn2)
        shortcut = x if self.downsample is None else normalised(self.downsample[0](x), self.downsample[1])
        return out.add_(shortcut).relu_()


class ModelNew(nn.Module):
    """Run ResNet-18 with the reference's parameter names."""

    def __init__(self, num_classes: int = 1000) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.layer1 = nn.Sequential(Block(64, 64, 1), Block(64, 64, 1))
        self.layer2 = nn.Sequential(Block(64, 128, 2), Block(128, 128, 1))
        self.layer3 = nn.Sequential(Block(128, 256, 2), Block(256, 256, 1))
        self.layer4 = nn.Sequential(Block(256, 512, 2), Block(512, 512, 1))
        self.fc = nn.Linear(512, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """Return a score for each image and class."""
        x = functional.max_pool2d(normalised(self.conv1(x), self.bn1).relu_(), 3, 2, 1)
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(x.mean((2, 3)))
