"""A DataLoader with two workers, made by fork and by spawn after the first use of CUDA; its batches
are copied to the device."""

import torch
from torch.utils.data import DataLoader, TensorDataset

from said import said


def main():
    dataset = TensorDataset(torch.arange(64.0).reshape(16, 4))
    torch.zeros(1, device="cuda")
    seen = {}
    for context in ("fork", "spawn"):
        loader = DataLoader(
            dataset, batch_size=4, num_workers=2, multiprocessing_context=context, pin_memory=True)
        seen[context] = 0
        for (batch,) in loader:
            doubled = batch.to("cuda", non_blocking=True) * 2
            seen[context] += doubled.shape[0]
    said(**seen)


if __name__ == "__main__":
    main()
