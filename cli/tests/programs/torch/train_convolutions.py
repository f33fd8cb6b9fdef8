"""A training step of a small convolutional network, with cuDNN switched off: NVIDIA's cuDNN refuses
this driver."""

import torch
from torch import nn

from said import said

torch.backends.cudnn.enabled = False
torch.manual_seed(0)
model = nn.Sequential(
    nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
    nn.Linear(16 * 16 * 16, 10),
).cuda()
loss = model(torch.randn(4, 3, 32, 32, device="cuda")).sum()
loss.backward()
said(gradients=all(parameter.grad is not None for parameter in model.parameters()))
