"""Listing 1 of Chaos over a WAN (section V-B), with its import lines and its pseudocode replaced; it says each step that is made."""

import os

import torch_mlp as user  # which finds reknit

from reknit_chaos import Coordinator, capture_exit_event

coordinator = Coordinator()  # This will send a join request to the scheduler.
user.say(pid=os.getpid())
model, optimizer = user.load()  # Load data, define model, optimizer, etc.
coordinator.prepare(model, optimizer, batch=user.BATCH, micro_batch=user.MICRO_BATCH, steps=user.STEPS)
for step in coordinator.steps():
    user.forward_and_backward(model, step)
    made = coordinator.update()  # All-reduce and update
    if made:
        user.say_made(step)
    coordinator.check_state_replication()  # Fetch training state from neighbors
    if capture_exit_event():
        coordinator.request_node_exit()  # Send a leave request to the scheduler
user.say_finished(model, step)
