"""Trains numbers by layers that take a fixed time: it sleeps, so that eight processes need no eight cores."""

import json
import time

import reknit

LAYERS, LAYER_SECONDS = 4, 0.005  # of a sample, there and back
BATCH = 56  # samples of a step, as many for each of eight as for each of seven


class State:
    """One number, which counts what it was trained on."""

    def __init__(self, job):
        self.numbers = job.units[0].cast("Q")
        self.trained = 0

    def apply(self):
        self.numbers[0] += self.trained

    def adopt(self, step, took):
        pass


def main():
    job = reknit.join(units=[8], batch=BATCH, micro_batch=1, digest="sleeps")
    state = State(job)
    for step in job.steps(state):
        with step.abortable():
            trained = 0
            for samples in step.micro_batches:
                for _ in range(LAYERS):
                    time.sleep(LAYER_SECONDS * len(samples))
                trained += len(samples)
            job.set(step.generation, f"{step.index}/{step.rank}", json.dumps(trained).encode())
            every = [json.loads(job.get(step.generation, f"{step.index}/{rank}")) for rank in range(step.world)]
            state.trained = sum(every)
            step.ready()
            step.commit(state.apply)
        if not step.given_up:
            print(json.dumps({"step": step.index + 1, "world": step.world, "under": step.generation, "time": time.time()}), flush=True)


if __name__ == "__main__":
    main()
