"""Threads that run forward and backward at once, each on its own tensors; the backward pass has a thread of its own."""

import threading

import torch

from said import said

done = []
# Kept to the end: what only PyTorch's own thread still holds when the interpreter goes, it frees too late, and Python
# before 3.14 ends the process for that ("terminate called without an active exception").
kept = []


def work():
    weights = torch.randn(128, 128, device="cuda", requires_grad=True)
    loss = (torch.randn(8, 128, device="cuda") @ weights).sum()
    kept.append((weights, loss))
    loss.backward()
    torch.cuda.synchronize()
    done.append(tuple(weights.grad.shape))


threads = [threading.Thread(target=work) for _ in range(4)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
said(done=done)
