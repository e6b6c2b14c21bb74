"""The four calls of the Chaos papers, for data-parallel training with PyTorch.

W. Feng et al., "Learning in Chaos", Listings 1 and 2, and its version over a WAN, section V-B and Listing 1. Their pseudocode
stands here as it runs:

    from reknit_chaos import Coordinator, capture_exit_event

    coordinator = Coordinator()                                 # announces this node
    model, optimizer = ...                                      # load data, define model, optimizer, etc.
    coordinator.prepare(model, optimizer, batch=64, micro_batch=4, steps=1000)    # gives the model's state, asks for a place
    for step in coordinator.steps():
        for samples in step.micro_batches:                      # forward and backward propagation
            step.backward(loss_of(model(x[samples]), y[samples]))
        coordinator.update()                                    # all-reduce and parameter update
        coordinator.check_state_replication()                   # state moves to those who join, from those who hold it
        if capture_exit_event():                                # Ctrl-C, SIGTERM, reknit drain or "Leave" on the page
            coordinator.request_node_exit()                     # steps() ends the script once the others can do without it

It needs reknit_torch.py and what that needs. A failure of a node or a link needs no call.
"""

import collections
import signal
import threading

import reknit
import reknit_torch

__all__ = ["Coordinator", "Trainer", "capture_exit_event"]

_coordinator = None  # of this process; one that has ended may be followed by another


class Coordinator:
    """A process's part in a training. To make one announces the process's node: `reknit nodes` lists it as starting.

    node is its id, by default the agent's. It waits while the agent finds no NATS. Without an agent
    (REKNIT_AGENT is not set) the script trains alone, as with reknit_torch.
    """

    def __init__(self, node=None):
        global _coordinator
        if _coordinator is not None and not _coordinator._ended:
            raise reknit.WrongOrder("Coordinator(): expected one a process, got another one before the first has ended")
        self._ended = False
        self._announced = reknit.announce(node)
        self._node, self._job, self._step = node, None, None
        self._signals = _signals_heard()
        _coordinator = self

    def prepare(self, model, optimizer, batch, micro_batch, steps, **job):
        """Gives the model's state and asks for a place; the arguments are those of reknit_torch.join. The announcement ends here."""
        if self._job is not None:
            raise reknit.WrongOrder("coordinator.prepare(): expected one call, got another one")
        self._job = reknit_torch.join(model, optimizer, batch, micro_batch, steps, node=self._node, **job)
        self._announced.close()

    def steps(self):
        """Yields each reknit_torch.Step to train, until training is complete. reknit.Left ends the script of a node that has left."""
        steps = self._prepared("steps").steps()
        try:
            for self._step in steps:
                yield self._step
        finally:
            steps.close()
            self._ended = True

    def update(self):
        """Sums the gradients over all processes and updates the model, everywhere or nowhere. It returns whether the step is made; a
        step that is not made comes again."""
        return self._stepping("update").commit()

    def check_state_replication(self):
        """Gives the state of the step that was made to nodes that join, takes what this node is to hold, and returns as reknit.Job.state
        node, generation, step, in how many replicas what it holds is there, and whether it is safe to go.

        It waits for as long as the cluster is paused for a change, and ends when this process may begin its next step. A loop
        that does not call it does the same at its next step. Left is raised as by steps().
        """
        self._stepping("check_state_replication").settle()
        return self._job.plane.state()

    def request_node_exit(self, reason="the trainer asked to", deadline=0):
        """Asks to leave. The node trains on until the others can do without it; steps() then ends the script, with status 0."""
        self._prepared("request_node_exit").plane.leave(reason, deadline)

    def capture_exit_event(self):
        """Returns why somebody wants this node to leave, once for each time that somebody asked; None where nobody did."""
        return self._signals.popleft() if self._signals else self._job.plane.asked_to_leave() if self._job else None

    def _prepared(self, call):
        if self._job is None:
            raise reknit.WrongOrder(f"coordinator.{call}(): expected coordinator.prepare(model, optimizer, …) before")
        return self._job

    def _stepping(self, call):
        self._prepared(call)
        if self._step is None:
            raise reknit.WrongOrder(f"coordinator.{call}(): expected it in the loop over coordinator.steps()")
        return self._step


Trainer = Coordinator  # as the first paper names it


def capture_exit_event():
    """Returns why somebody wants this process's node to leave, as Coordinator.capture_exit_event."""
    if _coordinator is None:
        raise reknit.WrongOrder("capture_exit_event(): expected a Coordinator() before")
    return _coordinator.capture_exit_event()


def _signals_heard():
    """Returns a queue of the names of signals that ask this process to end.

    The first Ctrl-C or SIGTERM goes there, and the next one does what it did before. Under `reknit agent run` there are none: the
    agent hears the first of them, and passes on the next.
    """
    heard = collections.deque()
    if reknit.agent_is_parent() or threading.current_thread() is not threading.main_thread():
        return heard
    for number in (signal.SIGINT, signal.SIGTERM):
        before = signal.getsignal(number)
        if before is None or before == signal.SIG_IGN:  # it is not Python's, or nobody is to hear it
            continue

        def hear(number, _, before=before):
            signal.signal(number, before)
            heard.append(signal.Signals(number).name)
        signal.signal(number, hear)
    return heard
