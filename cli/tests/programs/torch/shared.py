"""Processes of torch.multiprocessing that share tensors on the device, by CUDA's IPC."""

import torch
import torch.multiprocessing as multiprocessing

from said import said


def work(given, got, done):
    tensor = given.get()
    # This runs after the other process's work on its stream: PyTorch shares an event for that.
    doubled = tensor * 2
    got.put((str(tensor.device), tuple(doubled.shape), doubled))
    del tensor
    # The sent tensor must live until the other process has received it.
    done.wait()


def main():
    context = multiprocessing.get_context("spawn")
    given, got, done = context.Queue(), context.Queue(), context.Event()
    processes = [context.Process(target=work, args=(given, got, done)) for _ in range(2)]
    for process in processes:
        process.start()
    tensor = torch.ones(1000, 1000, device="cuda") + 1
    for _ in processes:
        given.put(tensor)
    results = [got.get() for _ in processes]
    sums = [received.sum().item() is not None for *_, received in results]
    seen = [result[:2] for result in results]
    del results
    done.set()
    for process in processes:
        process.join()
    torch.cuda.ipc_collect()
    said(seen=seen, sums=sums, exits=[process.exitcode for process in processes])


if __name__ == "__main__":
    main()
