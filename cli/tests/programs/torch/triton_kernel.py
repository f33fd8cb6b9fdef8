"""A Triton kernel: Triton launches it through the driver, without the CUDA runtime."""

import torch
import triton
import triton.language as tl

from said import said


@triton.jit
def add(left, right, output, count, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = index < count
    tl.store(output + index, tl.load(left + index, mask=inside) + tl.load(right + index, mask=inside), mask=inside)


left, right = torch.zeros(1000, device="cuda"), torch.zeros(1000, device="cuda")
output = torch.empty_like(left)
for _ in range(5):
    kernel = add[(triton.cdiv(1000, 256),)](left, right, output, 1000, BLOCK=256)
said(name=kernel.name, shape=tuple(output.shape))
