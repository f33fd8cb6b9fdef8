"""Trains a small network until SIGTERM or Ctrl-C.

On the software GPU the network computes nothing: it launches the same kernels, but learns nothing.
"""

import signal
import sys

import torch

stop = []
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, lambda *_: stop.append(True))
network = torch.nn.Sequential(
    torch.nn.Linear(512, 2048), torch.nn.ReLU(), torch.nn.Linear(2048, 10)).cuda()
optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3)
steps = 0
while not stop:
    inputs = torch.randn(256, 512, device="cuda")
    labels = torch.zeros(256, dtype=torch.long, device="cuda")
    loss = torch.nn.functional.cross_entropy(network(inputs), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    loss.item()
    steps += 1
    if steps == 1:
        print("training", flush=True)
print("trained", file=sys.stderr)
