"""A service with 40 requests, each an NVTX range by PyTorch's own function, with another range
inside."""

import sys

import torch

from said import said

model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 8)).cuda().eval()
with torch.inference_mode():
    for number in range(40):
        with torch.cuda.nvtx.range(f"request {number}"), torch.cuda.nvtx.range("forward"):
            output = model(torch.zeros(4, 64).to("cuda"))
            if number % 2:
                output.sum().item()
        # Even requests end before their work is complete.
        torch.cuda.synchronize()
said()
print("served", flush=True)
sys.stdin.read()
