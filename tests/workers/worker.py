"""Trains numbers with whoever is there: what a step adds depends on all samples of its batch, and on nothing else."""

import hashlib
import json
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../services/agent/python"))
import reknit  # noqa: E402

NUMBERS, BATCH, MICRO_BATCH = 64, 12, 1
STEPS = int(os.environ.get("WORKER_STEPS", "50"))
STEP_SECONDS = float(os.environ.get("WORKER_STEP_SECONDS", "0"))
HANGS_AT = int(os.environ.get("WORKER_HANGS_AT", "-1"))  # the step in which this process computes for ever
APPLIES_FOR_EVER_AT = int(os.environ.get("WORKER_APPLIES_FOR_EVER_AT", "-1"))  # the step whose sums it does not get applied
BREAKS_AT = int(os.environ.get("WORKER_BREAKS_AT", "-1"))  # the step in which a collective breaks, once
SAMPLES_PER_NODE = int(os.environ.get("WORKER_SAMPLES_PER_NODE", "0"))  # by which the batch follows the nodes; 0: it stays
DRIFTS_AT = int(os.environ.get("WORKER_DRIFTS_AT", "-1"))  # the step after which a number is another one


def say(**what):
    print(json.dumps(what) + "\n", end="", flush=True)  # in one piece: who is killed leaves no half of a line


def wait_for_others():
    """Says that all is loaded, and waits for the file for which the test has this process wait."""
    say(loaded=os.getpid())
    until = os.environ.get("WORKER_LOADS_UNTIL")
    while until and not os.path.exists(until):
        time.sleep(0.02)


def computed(micro_batches, hangs):
    """Yields micro-batches; a process that hangs hears of nothing any more."""
    for micro_batch in micro_batches:
        while hangs:
            time.sleep(1)
        yield micro_batch


def sums_of(micro_batches):
    samples = [sample for micro_batch in micro_batches for sample in micro_batch]
    return [sum((sample * 2654435761 + n * 40503) % 1009 for sample in samples) for n in range(NUMBERS)]


def all_reduce(job, step, name, numbers):
    """Sums lists of numbers over all ranks, through the store that the agents share."""
    if step.world == 1:
        return numbers
    job.set(step.generation, f"{step.index}/{name}/{step.rank}", json.dumps(numbers).encode())
    lists = [json.loads(job.get(step.generation, f"{step.index}/{name}/{rank}")) for rank in range(step.world)]
    return [sum(column) for column in zip(*lists)]


class State:
    """The numbers, which live in the job's memory: there is no other copy."""

    def __init__(self, job):
        self.numbers = [unit.cast("Q") for unit in job.units]
        self.sums = None

    def apply(self, step):
        while step == APPLIES_FOR_EVER_AT + 1:
            time.sleep(1)
        for unit in self.numbers:
            for n, added in enumerate(self.sums):
                unit[n] = (3 * unit[n] + added + 1) % (1 << 61)

    def adopt(self, step, took):
        say(adopted=step, took=took)

    def digest(self):
        return hashlib.sha256(b"".join(unit.tobytes() for unit in self.numbers)).hexdigest()


def main():
    wait_for_others()
    rule = {"batchRule": {"samplesPerNode": SAMPLES_PER_NODE, "learningRate": "linear"}} if SAMPLES_PER_NODE else {}
    job = reknit.join(units=[8 * NUMBERS, 8 * NUMBERS], batch=BATCH, micro_batch=MICRO_BATCH, digest="numbers",
                      total_steps=STEPS, **rule)
    state = State(job)
    say(node=job.node, pid=os.getpid())
    broken = False
    for step in job.steps(state):
        with step.abortable():
            time.sleep(STEP_SECONDS)
            if step.index == BREAKS_AT and not broken:
                broken = True
                raise ConnectionResetError("a collective broke, though everybody lives")
            samples = list(computed(step.micro_batches, step.index == HANGS_AT))
            say(trained={"generation": step.generation, "step": step.index, "samples": [[s.start, s.stop] for s in samples]})
            state.sums = all_reduce(job, step, "sums", sums_of(samples))
            step.ready()
            all_reduce(job, step, "gate", [1])
            step.commit(lambda: state.apply(step.index + 1))
            if step.index == DRIFTS_AT:
                state.numbers[1][NUMBERS - 1] ^= 1
        say(done=job.done if step.given_up else step.index + 1, world=step.world, given_up=step.given_up, digest=state.digest())
    say(finished=job.done, digest=state.digest())


if __name__ == "__main__":
    main()
