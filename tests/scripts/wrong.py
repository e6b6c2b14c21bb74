"""Trains two numbers, and is wrong in one way, which the only argument names: see table.go. Needs no PyTorch."""

import json
import math
import os
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../services/agent/python"))
import reknit  # noqa: E402

WRONG = sys.argv[1]
STEPS = 900 if WRONG == "steps" else 100000
AT = 6 if WRONG == "hangs" else 3  # the step of this process in which it goes wrong: what is usual, three steps of a plan tell


class State:
    def __init__(self, job):
        self.numbers = [unit.cast("Q") for unit in job.units]

    def apply(self, step):
        for unit in self.numbers:
            unit[0] = step


def summed(job, step, number):
    """Sums a number over all ranks, through the store that the agents share."""
    job.set(step.generation, f"{step.index}/{step.rank}", json.dumps(number).encode())
    return sum(json.loads(job.get(step.generation, f"{step.index}/{rank}")) for rank in range(step.world))


def job_of(wrong):
    settings = {"units": [8, 8], "batch": 12, "micro_batch": 1, "digest": "numbers", "total_steps": STEPS}
    settings.update({
        "batch": {"batch": 24}, "model": {"units": [8, 16]}, "data": {"digest": "other numbers"}, "divisor": {"micro_batch": 5},
        "no-batch": {"batch": 0}, "word": {"kind": "data-wise"}, "unknown": {"batchsize": 12}, "no-units": {"units": []},
    }.get(wrong, {}))
    return reknit.join(**settings)


def main():
    if WRONG == "import":
        import no_such_module  # noqa: F401
    if WRONG == "path":
        open("/no/such/corpus.txt", encoding="utf-8")
    if WRONG == "hangs-before":
        time.sleep(3600)
    job = job_of(WRONG)
    state, made = State(job), 0
    for step in job.steps(state):
        with step.abortable():
            time.sleep(0.05)
            if made == AT and WRONG == "error":
                raise ValueError("record 3605 cannot be read")
            if WRONG == "error-in-first":
                raise ValueError("no step can be made")
            if made == AT and WRONG == "hangs":
                time.sleep(3600)
            if made == AT and WRONG == "killed":
                os.kill(os.getpid(), 9)
            if made == AT and WRONG == "crashes":
                os.abort()
            if made == AT and WRONG == "exits":
                sys.exit(0)
            loss = summed(job, step, sum(1 for _ in step.micro_batches))
            step.ready()
            if made == AT and WRONG == "no-commit":
                continue
            step.commit(lambda: state.apply(step.index + 1), math.nan if WRONG == "nan" and made >= AT else loss)
        made += not step.given_up
        if made > AT and WRONG == "sleeps-behind":
            time.sleep(3600)


main()
