"""Makes steps together with peers: each trains its samples, all exchange what came out, and all make the step or nobody.

First every worker tells all others the gradients of its micro-batches. A worker that has those of all is ready: it
can make the step by itself, and says so. Only when all are ready the step is made (the gate). So if any worker has completed a step,
every other one can, and nobody must keep the state before it.
"""

import collections

from perceptron import MICRO_BATCH, Perceptron


NO_PLAN = {"generation": 0, "resumeStep": 0, "pipelines": []}


class Attempt:
    """A step that is to be made under a plan, and what is known of it."""

    def __init__(self):
        self.began, self.ready = False, set()
        self.parts, self.spoke = {}, set()  # sums of micro-batches by their first sample, and whose are there


class Trainer:
    """The model, the plan that it is trained under, and the step under way.

    `send(peer, message)` brings a message to the `hear` of a peer.
    """

    def __init__(self, node, send):
        self.node, self._send = node, send
        self.model, self.done, self.loss = Perceptron(), 0, 0.0  # done counts completed steps
        self.plan, self.world = NO_PLAN, []
        self._attempts = collections.defaultdict(Attempt)  # by generation and completed steps

    def follow(self, plan):
        """Goes over to a plan, at the step that is done. `world` is then all who train, where this worker does."""
        world = [stage["node"] for pipeline in plan["pipelines"] for stage in pipeline["stages"]]
        self.plan, self.world = plan, world if self.node in world else []
        self._forget()

    def ready(self):
        """Tells whether all is there that the next step takes."""
        return bool(self.world) and self._attempt().spoke >= set(self.world)

    def reach(self, step):
        """Makes the state that of a step: of this one or, where all is ready, of the next."""
        if step == self.done + 1 and self.ready():
            self._apply()
        if step != self.done:
            raise RuntimeError(f"expected a step that this worker can make, {self.done} or the next; got {step}")

    def load(self, step, units):
        """Makes the state that of a step with bytes of units, which came from others."""
        for unit, content in units.items():
            self.model.write(unit, content)
        self.done = step
        self._forget()

    def advance(self):
        """Goes as far with the step under way as it can, and returns whether that completed it."""
        attempt = self._attempt()
        if not attempt.began:
            attempt.began = True
            self._tell(parts=[[first, self._gradient(first)] for first in self._micro_batches()])
        if self.ready() and self.node not in attempt.ready:
            self._tell(ready=True)
        if not attempt.ready >= set(self.world):
            return False
        self._apply()
        return True

    def hear(self, peer, message):
        attempt = self._attempts[message["generation"], message["step"]]
        if "parts" in message:
            attempt.parts.update(message["parts"])
            attempt.spoke.add(peer)
        else:
            attempt.ready.add(peer)

    def _attempt(self):
        return self._attempts[self.plan["generation"], self.done]

    def _micro_batches(self):
        """Returns the first samples of this worker's micro-batches, within the step's batch."""
        mine = [pipeline["samples"] for pipeline in self.plan["pipelines"] if pipeline["stages"][0]["node"] == self.node]
        return [first for samples in mine for first in range(samples["first"], samples["end"], MICRO_BATCH)]

    def _gradient(self, first):
        data = self.plan["data"]
        position = data["consumedSamples"] + (self.done - self.plan["resumeStep"]) * data["globalBatch"] + first
        return self.model.gradient(range(position, position + MICRO_BATCH))

    def _tell(self, **what):
        message = {"generation": self.plan["generation"], "step": self.done, **what}
        self.hear(self.node, message)
        for peer in self.world:
            if peer != self.node:
                self._send(peer, message)

    def _apply(self):
        parts = self._attempt().parts
        self.loss = self.model.apply([parts[first] for first in sorted(parts)])
        self.done += 1
        self._forget()

    def _forget(self):
        """Drops what is known of steps before this one. Peers can be ahead by one step or one plan, and no further."""
        now = (self.plan["generation"], self.done)
        self._attempts = collections.defaultdict(Attempt, {at: what for at, what in self._attempts.items() if at >= now})
