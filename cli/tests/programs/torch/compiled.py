"""A network compiled by torch.compile: Inductor writes Triton kernels, which are cubins with a
launcher in C of Triton's own."""

import torch
import torch._inductor.config

from said import said

# Which of several kernels is fastest would be measured, by as many launches as there is time for.
torch._inductor.config.triton.autotune_pointwise = False
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.LayerNorm(64), torch.nn.Linear(64, 8))
compiled = torch.compile(model.cuda())
with torch.no_grad():
    for _ in range(3):
        output = compiled(torch.zeros(4, 64, device="cuda"))
said(shape=tuple(output.shape))
