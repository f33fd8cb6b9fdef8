"""Answers requests with a small network, one after the other, and says how long they took.

On the software GPU the network computes nothing: the time is the model's, the answers are meaningless.
"""

import sys
import time

import torch

requests = int(sys.argv[1]) if len(sys.argv) > 1 else 200
network = torch.nn.Sequential(
    torch.nn.Linear(512, 2048), torch.nn.ReLU(), torch.nn.Linear(2048, 512)).cuda().eval()
latencies_ms = []
with torch.inference_mode():
    for _ in range(requests):
        begun = time.perf_counter()
        network(torch.zeros(8, 512).to("cuda")).sum().item()
        latencies_ms.append(1e3 * (time.perf_counter() - begun))
latencies_ms.sort()
print(f"{requests} requests answered")
print(f"median {latencies_ms[requests // 2]:.2f} ms", file=sys.stderr)
