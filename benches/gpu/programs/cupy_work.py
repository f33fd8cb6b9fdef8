"""Products, sums and sorting with CuPy. Output as of net.py --steps."""

import hashlib
import json
import sys

try:
    import cupy
except ImportError as error:
    print(json.dumps({"not_installed": str(error)}), flush=True)
    sys.exit(0)

cupy.random.seed(0)
digest, values = hashlib.sha256(), []
for _ in range(5):
    left = cupy.random.rand(512, 512, dtype=cupy.float32)
    result = cupy.sort(left @ left.T + cupy.sin(left), axis=1)
    digest.update(cupy.asnumpy(result).tobytes())
    values.append(float(result.sum()))
print(json.dumps({"digest": digest.hexdigest(), "values": values}), flush=True)
sys.stdin.read()
