"""A network compiled by torch.compile: Inductor writes Triton kernels, which are cubins with
Triton's own launcher in C."""

import torch
import torch._inductor.config

from said import said

# Autotuning would measure several kernels, with as many launches as time permits.
torch._inductor.config.triton.autotune_pointwise = False
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.LayerNorm(64), torch.nn.Linear(64, 8))
compiled = torch.compile(model.cuda())
with torch.no_grad():
    for _ in range(3):
        output = compiled(torch.zeros(4, 64, device="cuda"))
said(shape=tuple(output.shape))
