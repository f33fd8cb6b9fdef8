"""Training steps of a small network in JAX, compiled by XLA. Output as of net.py --steps."""

import hashlib
import json
import os
import sys

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
try:
    import jax
    import jax.numpy as jnp
except ImportError as error:
    print(json.dumps({"not_installed": str(error)}), flush=True)
    sys.exit(0)
if jax.default_backend() != "gpu":
    print(json.dumps({"not_installed": f"jax finds no GPU; its backend is {jax.default_backend()}"}), flush=True)
    sys.exit(0)


def loss(weights, inputs):
    return jnp.mean((jnp.tanh(inputs @ weights[0]) @ weights[1] - 1) ** 2)


step = jax.jit(lambda weights, inputs: [w - 0.01 * g for w, g in zip(weights, jax.grad(loss)(weights, inputs))])
keys = jax.random.split(jax.random.PRNGKey(0), 3)
weights = [jax.random.normal(keys[0], (256, 512)), jax.random.normal(keys[1], (512, 8))]
inputs = jax.random.normal(keys[2], (128, 256))
values, digest = [], hashlib.sha256()
for _ in range(20):
    weights = step(weights, inputs)
    values.append(float(loss(weights, inputs)))
digest.update(str(values).encode())
print(json.dumps({"digest": digest.hexdigest(), "values": values}), flush=True)
sys.stdin.read()
