"""Trains a small perceptron that misbehaves as it is told: tests/torch/soak starts it, and writes what it is to do.

The folder SOAK has a file for each node that is to misbehave once: where in a step, what, and for how long. Its file
"poison" has the number of a sample that nobody can read until the file is removed.
"""

import json
import os
import pathlib
import time

import torch
from torch import nn

import gpt
import reknit_torch

BATCH = 12
INPUTS = 8
PACE = 0.05 if "REKNIT_AGENT" in os.environ else 0.0  # seconds of a step beside what it computes
FOLDER = pathlib.Path(os.environ.get("SOAK", "/nonexistent"))
ORDERS = FOLDER / os.environ.get("REKNIT_AGENT_NODE", "nobody")
POISON = FOLDER / "poison"


def read(path):
    """Return the words of a file; none where there is no file."""
    try:
        return path.read_text().split()
    except OSError:
        return []


def misbehave(place, optimizer, model):
    """Do once what the orders say of this place in a step."""
    words = read(ORDERS)
    if words[:1] != [place]:
        return
    ORDERS.unlink()
    deed = words[1]
    if deed == "raise":
        raise ValueError("the soak said so")
    if deed == "sleep":
        time.sleep(float(words[2]))
    if deed == "exit":
        raise SystemExit(int(words[2]))
    if deed == "settings":
        for group in optimizer.param_groups:
            group["lr"] *= 2
    if deed == "touch":
        with torch.no_grad():
            next(parameter for parameter in model.parameters() if parameter.requires_grad).add_(1)


def batch(samples):
    """Return what samples, by number, have to learn. ValueError: one of them is poisoned."""
    poisoned = read(POISON)
    if poisoned and int(poisoned[0]) in samples:
        raise ValueError(f"record {poisoned[0]}")
    x = torch.stack([torch.randn(INPUTS, generator=torch.Generator().manual_seed(sample)) for sample in samples])
    return x, x.sin().sum(1, keepdim=True)


def sums(model, optimizer):
    """Return how many updates were made, and a sum each of the parameters and of the optimizer's moments: each element counts by its place."""
    kept = [optimizer.state[parameter] for parameter in model.parameters() if parameter in optimizer.state]
    parts = [list(model.parameters()), *([own[name] for own in kept] for name in ("exp_avg", "exp_avg_sq"))]
    flat = [torch.cat([tensor.detach().double().flatten() for tensor in part]) for part in parts]
    return [max(own["step"].item() for own in kept), *((one * torch.arange(1.0, len(one) + 1).double().cos()).sum().item() for one in flat)]


def report(step, model, optimizer):
    """Print a line of a step that was made, as gpt.report does, and what the state is then."""
    line = {"step": step.index + 1, "loss": float(step.loss), "world": step.world, "under": step.generation, "time": time.time()}
    print(json.dumps({**line, "state": sums(model, optimizer)}), flush=True)


def main():
    """Train until the last step."""
    options = gpt.options()
    torch.manual_seed(1)
    # Smooth: where a ReLU's input is within rounding of zero, a gradient jumps, and two right trainings part for good (step 1,836 of this one).
    model = nn.Sequential(nn.Linear(INPUTS, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 1))
    model[0].bias.requires_grad_(False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model[4].weight.register_hook(lambda gradient: misbehave("hook", optimizer, model))
    job = reknit_torch.join(model, optimizer, batch=BATCH, micro_batch=1, steps=options.steps)
    for step in job.steps():
        misbehave("begin", optimizer, model)
        for samples in step.micro_batches:
            misbehave("micro-batch", optimizer, model)
            x, y = batch(samples)
            step.backward(nn.functional.mse_loss(model(x), y))
        time.sleep(PACE)
        misbehave("commit", optimizer, model)
        if step.commit():
            report(step, model, optimizer)
            misbehave("made", optimizer, model)


main()
