"""Threads that run forward and backward passes at once, each on its own tensors; the backward pass
has its own thread."""

import threading

import torch

from said import said

done = []


def work():
    weights = torch.randn(128, 128, device="cuda", requires_grad=True)
    loss = (torch.randn(8, 128, device="cuda") @ weights).sum()
    loss.backward()
    torch.cuda.synchronize()
    done.append(tuple(weights.grad.shape))


threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
said(done=done)
