"""What the programs beside this say at their end: what PyTorch's allocator asked the driver for."""

import torch


def said(**more):
    torch.cuda.synchronize()
    stats = torch.cuda.memory_stats()
    print("reserved_bytes=%d segments=%d" % (
        stats["reserved_bytes.all.allocated"], stats["segment.all.allocated"]))
    for name, value in sorted(more.items()):
        print(name, value)
