"""Trains whole numbers with PyTorch and whoever is there: sums of them have no order, so that the state has one digest."""

import hashlib
import json
import os
import signal
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../services/agent/python"))
import torch  # noqa: E402

import reknit_torch  # noqa: E402

BATCH, LAYERS, NUMBERS = 16, 8, 64
STEPS = int(os.environ.get("WORKER_STEPS", "50"))
STEP_SECONDS = float(os.environ.get("WORKER_STEP_SECONDS", "0"))
DIES_AT = int(os.environ.get("WORKER_DIES_AT", "-1"))  # the step in which the process is killed, between two buckets
MEMORY = {"memory_bytes": int(os.environ["WORKER_MEMORY_BYTES"])} if "WORKER_MEMORY_BYTES" in os.environ else {}
reknit_torch.BUCKET_BYTES = 8 * NUMBERS  # a layer each


def say(**what):
    print(json.dumps(what) + "\n", end="", flush=True)  # in one piece: who is killed leaves no half of a line


class Dying(reknit_torch.Group):
    """A group whose process is killed when the third sum of a step begins."""

    begun, step = 0, -1

    def begin(self, tensor):
        self.begun += 1
        if self.step == DIES_AT and self.begun == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().begin(tensor)


class Model(torch.nn.Module):
    """Its loss is linear: the gradient of each layer is a function of the samples, and of nothing else."""

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ParameterList(torch.zeros(NUMBERS, dtype=torch.float64) for _ in range(LAYERS))

    def forward(self, samples):
        loss = 0.0
        for number, layer in enumerate(self.layers):
            features = sum(torch.arange(NUMBERS) * sample % (7 + number) for sample in samples)
            loss = loss + (layer * features).sum()
        return loss


def digest_of(model):
    return hashlib.sha256(b"".join(layer.detach().numpy().tobytes() for layer in model.layers)).hexdigest()


def main():
    model = Model()
    job = reknit_torch.join(model, torch.optim.SGD(model.parameters(), lr=1.0), batch=BATCH, micro_batch=1, steps=STEPS, **MEMORY)
    say(pid=os.getpid(), node=job.plane.node)
    for step in job.steps():
        time.sleep(STEP_SECONDS)
        job._group.step, job._group.begun = step.index, 0
        for samples in step.micro_batches:
            step.backward(model(samples))
        if step.commit():
            say(done=step.index + 1, world=step.world, digest=digest_of(model))
    say(finished=job.plane.done, digest=digest_of(model))


if __name__ == "__main__":
    reknit_torch.Group = Dying
    main()
