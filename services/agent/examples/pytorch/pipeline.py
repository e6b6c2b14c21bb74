"""Trains a GPT in pipelines: each process holds some of its layers, and each layer trains in several processes.

A template: what is yours is build, forward and backward. `reknit agent run` starts it, others join at any time, and when
a process fails the others go on: the plan says again who holds which layers, and what is missing comes from the memory of
those who have it. Without an agent it trains alone, and holds all layers.
"""

import torch
from torch import nn
from torch.nn import functional

import gpt
import reknit_pipeline

BLOCKS = 4
LAYERS = 2 + BLOCKS  # a layer is what moves as a whole: none may share a tensor with another
STAGES = {"min": 2, "max": 3}  # of a pipeline; the planner takes what is fastest


class Entry(nn.Module):
    """Characters and their places, as vectors."""

    def __init__(self):
        super().__init__()
        self.characters, self.places = nn.Embedding(gpt.CHARACTERS, gpt.WIDTH), nn.Embedding(gpt.CONTEXT, gpt.WIDTH)

    def forward(self, x):
        return self.characters(x) + self.places.weight


class Middle(nn.Module):
    """A block that sees nothing of the future."""

    def __init__(self):
        super().__init__()
        self.block = gpt.Block()
        self.register_buffer("future", torch.full((gpt.CONTEXT, gpt.CONTEXT), -torch.inf).triu(1), persistent=False)

    def forward(self, x):
        return self.block(x, self.future)


class Exit(nn.Sequential):
    """Vectors as what follows them: a weight for each character."""

    def __init__(self):
        super().__init__(nn.LayerNorm(gpt.WIDTH), nn.Linear(gpt.WIDTH, gpt.CHARACTERS))


def build(n):
    """Return layer n as it is before the first step. The same random numbers come in every process."""
    if n == 0:
        return Entry()
    return Exit() if n == LAYERS - 1 else Middle()


def optimizer(parameters):
    """Return the optimizer of a layer. Rates and the like hold for all of them."""
    return torch.optim.AdamW(parameters, lr=1e-3)


def forward(step, task, text):
    """Pass a micro-batch through the layers of this process, and keep what the way back needs."""
    characters, following = text.batch(task.samples)
    if task.begins:  # at the model's first layer
        x = characters
    else:  # task.input came from the process before
        x = task.input.requires_grad_()
    task.came = x
    for n in task.layers:
        x = step.layers[n](x)
    if task.ends:  # behind the model's last layer
        task.made = functional.cross_entropy(x.flatten(0, 1), following.flatten())
    else:
        task.made = task.output = x  # goes to the next process


def backward(step, task):
    """Pass the gradients of a micro-batch back through the same layers: those of the parameters add up."""
    ahead = task.forward
    if task.ends:
        step.backward(ahead.made)  # a loss, as its part in the batch
    else:  # task.input is the gradient of what was made
        ahead.made.backward(task.input)
    if not task.begins:
        task.output = ahead.came.grad  # goes to the process before


def main():
    """Train, and print a line after each step."""
    options = gpt.options()
    text = gpt.Text(options.text, device="cpu")
    job = reknit_pipeline.join(
        build, LAYERS, optimizer, between=(gpt.CONTEXT, gpt.WIDTH), batch=gpt.BATCH, micro_batch=2, steps=options.steps,
        stages=STAGES)
    for step in job.steps():
        for task in step.tasks:  # in the plan's order, those of a lost process included
            if task.backward:
                backward(step, task)
            else:
                forward(step, task, text)
        if step.commit():  # False: the step was given up, and comes again
            gpt.report(step.index + 1, step.loss, step.world, step.generation)


if __name__ == "__main__":
    main()
