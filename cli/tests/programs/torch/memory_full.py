"""Allocates more memory than there is, at once and bit by bit; then as much as fits."""

import torch

from said import said

refused = []
try:
    torch.empty(1 << 40, dtype=torch.uint8, device="cuda")
except torch.OutOfMemoryError:
    refused.append("a terabyte")
held = []
try:
    while True:
        held.append(torch.empty(4 << 30, dtype=torch.uint8, device="cuda"))
except torch.OutOfMemoryError:
    refused.append("after %d times 4 GiB" % len(held))
held.clear()
torch.cuda.empty_cache()
after = torch.zeros(1000, device="cuda") + 1
said(refused=refused, shape=tuple(after.shape))
