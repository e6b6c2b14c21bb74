"""Trains a small GPT with DistributedDataParallel: torchrun starts it, and starts it anew when a process fails."""

import datetime

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import gpt

options = gpt.options()
torch.manual_seed(1)
text = gpt.Text(options.text)
model = gpt.GPT().to(gpt.DEVICE)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
dist.init_process_group("nccl" if gpt.DEVICE == "cuda" else "gloo", timeout=datetime.timedelta(seconds=options.timeout))
rank, world = dist.get_rank(), dist.get_world_size()
first = gpt.load(options.snapshot, model, optimizer)
replica = DistributedDataParallel(model)

for step in range(first, options.steps):
    samples = range(step * gpt.BATCH, (step + 1) * gpt.BATCH)[rank::world]
    optimizer.zero_grad()
    loss = gpt.loss_of(replica, text, samples)
    loss.backward()
    optimizer.step()
    gpt.report(step + 1, loss, world)
    if rank == 0 and (step + 1) % gpt.SNAPSHOT_EVERY == 0:
        gpt.save(options.snapshot, step + 1, model, optimizer)

if rank == 0:
    gpt.export(options.model, model)
