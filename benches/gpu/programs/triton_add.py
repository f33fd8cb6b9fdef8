"""A kernel in Triton, which launches through the driver API and not through the CUDA runtime.
Output as of net.py --steps."""

import hashlib
import json
import sys

import torch

try:
    import triton
    import triton.language as tl
except ImportError as error:
    print(json.dumps({"not_installed": str(error)}), flush=True)
    sys.exit(0)


@triton.jit
def add(left, right, output, count, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = index < count
    tl.store(output + index, tl.load(left + index, mask=inside) + tl.load(right + index, mask=inside), mask=inside)


left = torch.arange(100_000, device="cuda", dtype=torch.float32)
output = torch.zeros_like(left)
for index in range(20):
    try:
        add[(triton.cdiv(left.numel(), 256),)](left, output, output, left.numel(), BLOCK=256)
    except RuntimeError as error:
        if index == 0 and "C compiler" in str(error):  # Triton compiles its launcher with one.
            print(json.dumps({"not_installed": str(error)}), flush=True)
            sys.exit(0)
        raise
text = str(output.tolist()).encode()
print(json.dumps({"digest": hashlib.sha256(text).hexdigest(), "values": [float(output.sum())]}), flush=True)
sys.stdin.read()
