"""Processes made by torch.multiprocessing that each use the device, and exchange tensors through
the host."""

import torch
import torch.multiprocessing as multiprocessing

from said import said


def work(rank, given, got):
    tensor = given.get().to("cuda") + rank
    torch.cuda.synchronize()
    got.put((rank, tuple(tensor.cpu().shape)))


def main():
    context = multiprocessing.get_context("spawn")
    given, got = context.Queue(), context.Queue()
    processes = [context.Process(target=work, args=(rank, given, got)) for rank in range(2)]
    for process in processes:
        process.start()
        given.put(torch.zeros(4, 4))
    results = sorted(got.get() for _ in processes)
    for process in processes:
        process.join()
    torch.zeros(1, device="cuda") + 1
    said(results=results, exits=[process.exitcode for process in processes])


if __name__ == "__main__":
    main()
