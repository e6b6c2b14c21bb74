"""Listings 1 and 2 of Chaos at the edge, with their import lines and their pseudocode replaced; it says each step that is made."""

import os

import torch_mlp as user  # which finds reknit

from reknit_chaos import Trainer, capture_exit_event

# Send a join request to the scheduler
trainer = Trainer()
user.say(pid=os.getpid())
model, optimizer = user.load()  # Load data, define model, optimizer, etc.
trainer.prepare(model, optimizer, batch=user.BATCH, micro_batch=user.MICRO_BATCH, steps=user.STEPS)
for step in trainer.steps():
    # Forward and backward propagation
    user.forward_and_backward(model, step)
    # All-reduce and params update
    if trainer.update():
        user.say_made(step)
    # Pull training states from other nodes
    trainer.check_state_replication()
    # When detecting an exit event, send a node leave request to the scheduler
    if why := capture_exit_event():
        user.say(exit_event=why)
        trainer.request_node_exit("its script was told: " + why)
user.say_finished(model, step)
