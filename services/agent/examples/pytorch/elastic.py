"""Trains a small GPT that goes on when a process fails: reknit agent run starts it, and others join at any time."""

import torch

import gpt
import reknit_torch

options = gpt.options()
torch.manual_seed(1)
text = gpt.Text(options.text)
model = gpt.GPT().to(gpt.DEVICE)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
job = reknit_torch.join(model, optimizer, batch=gpt.BATCH, micro_batch=2, steps=options.steps)

made = None
for step in job.steps():
    for samples in step.micro_batches:
        step.backward(gpt.loss_of(model, text, samples))
    if step.commit():
        made = step
        gpt.report(step.index + 1, step.loss, step.world, step.generation)

if made and made.rank == 0:
    gpt.export(options.model, model)
