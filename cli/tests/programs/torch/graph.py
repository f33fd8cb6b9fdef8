"""Captures a forward pass into a graph and replays it."""

import torch

from said import said

inputs = torch.zeros(32, 64, device="cuda")
model = torch.nn.Linear(64, 64).cuda()
stream = torch.cuda.Stream()
stream.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(stream):
    for _ in range(3):
        model(inputs).relu()
torch.cuda.current_stream().wait_stream(stream)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    output = model(inputs).relu().sum()
for _ in range(5):
    graph.replay()
said(shape=tuple(output.shape))
