"""Works until Ctrl-C."""

import signal

import torch

# Also if the program was started with the signal ignored, as in the background of a shell script.
signal.signal(signal.SIGINT, signal.default_int_handler)
value = torch.zeros(1 << 16, device="cuda")
for step in range(1 << 40):
    value = value + 1
    torch.cuda.synchronize()
    if step == 20:
        print("working", flush=True)
