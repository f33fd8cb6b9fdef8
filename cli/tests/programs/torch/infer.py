"""An inference loop that copies each result to the host, by `.item()` and by `.cpu()`."""

import torch

from said import said

model = torch.nn.Linear(64, 8).cuda().eval()
with torch.inference_mode():
    for _ in range(10):
        output = model(torch.zeros(4, 64).to("cuda"))
        output.sum().item()
        copied = output.cpu()
said(shape=tuple(copied.shape))
