"""Answers requests with a small network, one after the other, and prints their median latency.

    serve.py [REQUESTS [PER_SECOND]]

Without PER_SECOND each request begins when the previous one is answered. An NVTX range named
`request` encloses each request: profilers show it, and `pillion run --request-range request` holds
its latency to a target.

On the software GPU the network computes nothing: times come from the device model, and answers are
meaningless.
"""

import sys
import time

import torch

requests = int(sys.argv[1]) if len(sys.argv) > 1 else 200
per_second = float(sys.argv[2]) if len(sys.argv) > 2 else 0
period_s = 1 / per_second if per_second else 0
network = torch.nn.Sequential(
    torch.nn.Linear(512, 2048), torch.nn.ReLU(), torch.nn.Linear(2048, 512)).cuda().eval()
latencies_ms = []
with torch.inference_mode():
    for _ in range(requests):
        begun = time.perf_counter()
        with torch.cuda.nvtx.range("request"):
            network(torch.zeros(8, 512).to("cuda")).sum().item()
        took_s = time.perf_counter() - begun
        latencies_ms.append(1e3 * took_s)
        time.sleep(max(0, period_s - took_s))
latencies_ms.sort()
print(f"{requests} requests answered")
print(f"median {latencies_ms[requests // 2]:.2f} ms", file=sys.stderr)
