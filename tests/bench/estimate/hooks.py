"""Measures what the hooks cost that time layers: steps of a small GPT in which they measure, by turns with steps without. Needs PyTorch.

usage: python3 tests/bench/estimate/hooks.py   (make bench-estimate)

A job's steps have them five times under each plan, and never else. Times are processor seconds of this thread, which others on a
busy machine do not lengthen.
"""

import os
import statistics
import sys
import time

import torch

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
sys.path[:0] = [os.path.join(ROOT, "services", "agent", "python"), os.path.join(ROOT, "services", "agent", "examples", "pytorch")]

import gpt  # noqa: E402  it is found now
import reknit_profile  # noqa: E402

PAIRS, MICRO_BATCHES = 40, 4


def step(model, text, profile):
    """Trains some micro-batches, measured as reknit_torch does it where there is a profile; returns the processor seconds."""
    began = time.thread_time()
    for n in range(MICRO_BATCHES):
        if profile:
            profile.start()
        loss = gpt.loss_of(model, text, range(2 * n, 2 * n + 2))
        if profile:
            profile.turn_back()
        loss.backward()
        if profile:
            profile.pause()
            profile.stop()
    model.zero_grad()
    return time.thread_time() - began


def measured(model, text):
    """Returns what a step took under the hooks, which are put in before and taken out after."""
    modules = list(enumerate(reknit_profile.modules_with_parameters(model)))
    profile = reknit_profile.Profile(modules, range(len(modules)), 0, torch.device("cpu"))
    for _ in range(reknit_profile.WARM_STEPS):
        profile.begin()
        profile.end(None)
    profile.begin()
    seconds = step(model, text, profile)
    profile.close()
    return seconds


def main():
    """Print the medians, and the median of the ratios of neighbours."""
    torch.set_num_threads(1)
    model, text = gpt.GPT(), gpt.Text(os.path.join(ROOT, "README.md"))
    pairs = [(measured(model, text), step(model, text, None)) for _ in range(PAIRS)][2:]
    under, without = (1000 * statistics.median(column) for column in zip(*pairs))
    ratio = statistics.median(under / without for under, without in pairs)
    print(f"a step of PyTorch with hooks {under:.1f} ms, without {without:.1f} ms: {100 * (ratio - 1):+.1f} % in the median of {len(pairs)} pairs")


if __name__ == "__main__":
    main()
