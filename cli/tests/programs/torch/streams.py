"""Side streams of different priorities that wait for each other by events, with copies of pinned
memory."""

import torch

from said import said

source = torch.zeros(1 << 20, device="cuda")
events = []
for priority in (0, -1, 0):
    stream = torch.cuda.Stream(priority=priority)
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        source + 1
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        events.append(event)
        source.record_stream(stream)
for event in events:
    torch.cuda.current_stream().wait_event(event)
pinned = torch.empty(1000).pin_memory()
pinned.to("cuda", non_blocking=True).to("cpu", non_blocking=True)
torch.cuda.synchronize()
said(complete=[event.query() for event in events], is_pinned=pinned.is_pinned())
