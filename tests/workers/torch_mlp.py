"""Trains a perceptron with batch normalisation and AdamW, and says the loss of each step: what a script of a user is like."""

import hashlib
import math
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../services/agent/python"))
import torch  # noqa: E402

import reknit_torch  # noqa: E402
from worker import say, wait_for_others  # noqa: E402

BATCH, MICRO_BATCH = 16, 4
WIDTH = int(os.environ.get("WORKER_WIDTH", "64"))
STEPS = int(os.environ.get("WORKER_STEPS", "50"))
DTYPE = torch.float64 if os.environ.get("WORKER_DOUBLE") else torch.float32  # long runs amplify how sums are rounded
STEP_SECONDS = float(os.environ.get("WORKER_STEP_SECONDS", "0"))
BAD_SAMPLE = int(os.environ.get("WORKER_BAD_SAMPLE", "-1"))  # cannot be read while the file WORKER_BAD is there


def loss_of(model, samples):
    """Returns the mean loss of samples, which are functions of their numbers."""
    if BAD_SAMPLE in samples and os.path.exists(os.environ["WORKER_BAD"]):
        raise ValueError(f"record {BAD_SAMPLE}: cannot be decoded")
    numbers = torch.tensor(samples, dtype=DTYPE)
    return (model(torch.stack([numbers.sin(), numbers.cos(), numbers % 3], 1)) - numbers[:, None].cos()).pow(2).mean()


def perceptron():
    """Returns the model and its optimizer."""
    torch.set_num_threads(1)
    torch.manual_seed(1)
    layers = [torch.nn.Linear(3, WIDTH), torch.nn.BatchNorm1d(WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, WIDTH),
              torch.nn.BatchNorm1d(WIDTH), torch.nn.ReLU(), torch.nn.Linear(WIDTH, 1)]
    model = torch.nn.Sequential(*layers).to(DTYPE)
    return model, torch.optim.AdamW(model.parameters(), lr=1e-3)


def forward_and_backward(model, step):
    """Trains this process's samples of a step."""
    time.sleep(STEP_SECONDS)
    for samples in step.micro_batches:
        step.backward(loss_of(model, samples))
    say(trained={"generation": step.generation, "step": step.index, "samples": [[s.start, s.stop] for s in step.batches]})


def say_made(step):
    say(done=step.index + 1, world=step.world, loss=None if math.isnan(step.loss) else step.loss)


def say_finished(model, step):
    digest = hashlib.sha256(b"".join(value.numpy().tobytes() for value in model.state_dict().values())).hexdigest()
    say(finished=step.index + 1, digest=digest)


def load():
    """Returns the model and its optimizer, once the test has this process go on."""
    model, optimizer = perceptron()
    wait_for_others()
    return model, optimizer


def main():
    model, optimizer = load()
    job = reknit_torch.join(model, optimizer, batch=BATCH, micro_batch=MICRO_BATCH, steps=STEPS)
    say(pid=os.getpid(), node=job.plane.node)
    step = None
    for step in job.steps():
        forward_and_backward(model, step)
        if step.commit():
            say_made(step)
    if step is None:
        say(finished=STEPS)  # the others were done before this process was there
    else:
        say_finished(model, step)


if __name__ == "__main__":
    main()
