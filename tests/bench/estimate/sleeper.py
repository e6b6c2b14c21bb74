"""A pipelined job whose layers take fixed times: they sleep. So that many processes on few cores train as if each had its own."""

import sys
import time

import torch

import reknit_pipeline

LAYERS, WIDTH = 12, 4
FORWARD, BACKWARD = 0.010, 0.020  # seconds of a layer and a micro-batch; the first and the last layer take twice as long


class Sleep(torch.autograd.Function):
    """Sleeps on the way back."""

    @staticmethod
    def forward(context, x, seconds):
        context.seconds = seconds
        return x.clone()

    @staticmethod
    def backward(context, gradient):
        time.sleep(context.seconds)
        return gradient, None


class Sleeper(torch.nn.Module):
    """A layer that sleeps on both ways."""

    def __init__(self, times):
        super().__init__()
        self.times, self.linear = times, torch.nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        time.sleep(FORWARD * self.times)
        return Sleep.apply(self.linear(x), BACKWARD * self.times)


def main():
    """Train until somebody ends it."""
    pipelines = int(sys.argv[1])
    job = reknit_pipeline.join(
        lambda n: Sleeper(2 if n in (0, LAYERS - 1) else 1), LAYERS, lambda parameters: torch.optim.SGD(parameters, lr=1e-3),
        between=(WIDTH,), batch=12, micro_batch=1, steps=100000, pipelines={"min": pipelines, "max": pipelines})
    for step in job.steps():
        for task in step.tasks:
            if task.backward:
                if task.ends:
                    step.backward(task.forward.made)
                else:
                    task.forward.made.backward(task.input)
                task.output = None if task.begins else task.forward.came.grad
                continue
            x = task.came = torch.ones(1, WIDTH) if task.begins else task.input.requires_grad_()
            for n in task.layers:
                x = step.layers[n](x)
            task.made = task.output = x.pow(2).mean() if task.ends else x
        step.commit()


if __name__ == "__main__":
    main()
