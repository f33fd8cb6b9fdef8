"""Three training steps of a small network: forward, loss, backward, AdamW."""

import torch
from torch import nn

from said import said

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.LayerNorm(512), nn.Linear(512, 10)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for _ in range(3):
    inputs = torch.randn(64, 256, device="cuda")
    labels = torch.zeros(64, dtype=torch.long, device="cuda")
    loss = nn.functional.cross_entropy(model(inputs), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    loss.item()
said(parameters=sum(parameter.numel() for parameter in model.parameters()))
