"""Allocates with PyTorch until it raises OutOfMemoryError, frees some memory, and continues. Counts
wrong outcomes."""

import json
import sys

import torch

CHUNK = 64 << 20
wrong, kept = 0, []
total = torch.cuda.mem_get_info()[1]
try:
    while len(kept) * CHUNK <= total:
        kept.append(torch.empty(CHUNK, dtype=torch.uint8, device="cuda"))
    wrong += 1  # Granted more than the device has.
except torch.cuda.OutOfMemoryError:
    pass
granted = len(kept) * CHUNK
del kept[: len(kept) // 2]
torch.cuda.empty_cache()
try:
    kept.append(torch.empty(CHUNK, dtype=torch.uint8, device="cuda"))
    torch.zeros(1000, device="cuda").sum().item()
except torch.cuda.OutOfMemoryError:
    wrong += 1
print(json.dumps({"wrong": wrong, "granted_bytes": granted, "seen_total_bytes": total}), flush=True)
sys.stdin.read()
