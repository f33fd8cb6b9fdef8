"""Two training steps of a transformer layer in mixed precision, with a scaler, and one forward pass
in bfloat16."""

import torch

from said import said

torch.manual_seed(0)
model = torch.nn.TransformerEncoderLayer(64, 4, 128, batch_first=True).cuda()
optimizer = torch.optim.SGD(model.parameters(), 1e-3)
scaler = torch.amp.GradScaler("cuda")
for _ in range(2):
    with torch.autocast("cuda", dtype=torch.float16):
        loss = model(torch.randn(4, 16, 64, device="cuda")).float().sum()
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
with torch.autocast("cuda", dtype=torch.bfloat16):
    output = model(torch.randn(4, 16, 64, device="cuda"))
said(shape=tuple(output.shape))
