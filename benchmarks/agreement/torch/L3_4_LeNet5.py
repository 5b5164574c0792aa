"""Run LeNet-5 in torch: pool before the ReLU, which commutes with a maximum, and activate in place."""

import torch
from torch.nn import functional


class ModelNew(torch.nn.Module):
    """Two convolutions and three linear layers; a dozen launches a call."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.conv1 = torch.nn.Conv2d(1, 6, 5)
        self.conv2 = torch.nn.Conv2d(6, 16, 5)
        self.fc1 = torch.nn.Linear(16 * 5 * 5, 120)
        self.fc2 = torch.nn.Linear(120, 84)
        self.fc3 = torch.nn.Linear(84, num_classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return a score for each image and class."""
        x = functional.max_pool2d(self.conv1(x), 2).relu_()
        x = functional.max_pool2d(self.conv2(x), 2).relu_()
        x = self.fc1(x.view(-1, 16 * 5 * 5)).relu_()
        return self.fc3(self.fc2(x).relu_())
