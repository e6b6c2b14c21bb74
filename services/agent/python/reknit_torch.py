"""Elastic data-parallel training with PyTorch: processes fail, leave and join, and the others go on from the same step.

    job = reknit_torch.join(model, optimizer, batch=64, micro_batch=4, steps=1000)
    for step in job.steps():
        for samples in step.micro_batches:      # numbers of samples that this process trains
            step.backward(loss_of(model(x[samples]), y[samples]))
        if step.commit():                       # False: the step was given up, and comes again
            print(step.index + 1, step.loss)

Parameters, buffers and the optimizer's state move into the units that the agent gives to processes which join. A step
sums the gradients over all processes, shows by a second sum that everybody has them (the gate), and only then updates
the model. So all processes hold one and the same step, whatever breaks, and none keeps a second copy of the state.
Without an agent (REKNIT_AGENT is not set) the same script trains alone.

It needs reknit.py, reknit_group.py, reknit_profile.py, reknit_state.py, reknit_gradients.py, reknit_optimizer.py and
reknit_values.py beside it, Linux, and PyTorch 1.13 or newer.
"""

import contextlib
import hashlib
import itertools
import math
import random

import torch

import reknit
import reknit_profile
from reknit_group import CONNECT, Group, Store
from reknit_state import State


def join(model, optimizer, batch, micro_batch, steps, data="", backend=None, ignore=(), **job):
    """Asks for a place in the training of a model, and returns a Job.

    A step trains batch samples, in micro-batches of which each process has its share; training ends after so many
    steps. Model and optimizer must begin alike in all processes (torch.manual_seed), and data says in any words what
    else must be equal. The backend is nccl where the parameters are on a GPU, else gloo, unless it is told.

    Objects that have state_dict and load_state_dict (a scheduler, an average of the weights, a scaler) may be given by any name: their
    state moves with the model's. ignore has names of states that do not move, as errors tell them. Further arguments go to
    reknit.join. TypeError names what cannot move.
    """
    if not isinstance(model, torch.nn.Module):
        raise reknit.mistaken(TypeError, f"model: expected a torch.nn.Module, got {type(model).__name__}")
    if not hasattr(optimizer, "param_groups"):
        raise reknit.mistaken(TypeError, f"optimizer: expected a torch.optim.Optimizer, got {type(optimizer).__name__}")
    others = {name: one for name, one in job.items() if hasattr(one, "state_dict") and hasattr(one, "load_state_dict")}
    job = {name: one for name, one in job.items() if name not in others}
    try:
        state = State(model, optimizer, others, ignore)
    except TypeError as error:
        raise reknit.mistaken(TypeError, str(error)) from None
    backend = checked(backend or ("nccl" if state.gradients.loss.is_cuda else "gloo"), state.gradients.loss.device, steps)
    if any(map(has_own_buffers, model.modules())):
        job.setdefault("replicas", "alike")
    job.setdefault("memory_bytes", reknit_profile.memory_bytes(state.gradients.loss.device))
    plane = reknit.join(units=state.sizes, batch=batch, micro_batch=micro_batch, total_steps=steps,
                        digest=state.digest(f"{data} {batch} {micro_batch}"), first_state=state.first(),
                        state="mapped" if state.mapped else "copied", **job)
    state.spoil = plane.spoil
    state.move_in(plane.units)
    return Job(plane, state, backend, buffers_are_own=job.get("replicas") == "alike")


def has_own_buffers(module):
    """Returns whether a module of PyTorch keeps in its buffers what this process saw, and no other: statistics, or an iteration a pass."""
    kinds = {kind.__name__ for one in (module, *module._forward_pre_hooks.values()) for kind in type(one).__mro__}
    return bool(getattr(module, "track_running_stats", False) or kinds & {"_SpectralNorm", "SpectralNorm", "ObserverBase", "FakeQuantizeBase"})


def checked(backend, device, steps):
    """Returns the backend. Refused: nobody could train so; told before the join, for a step would break for all."""
    if backend not in CONNECT:
        raise reknit.mistaken(reknit.Refused, f"backend: expected {' or '.join(CONNECT)}, got {backend!r:.80}")
    if backend == "nccl" and device.type != "cuda":
        raise reknit.mistaken(reknit.Refused, f"backend: expected gloo, for the parameters are on the {device.type}, got 'nccl'")
    reknit.expect_whole("steps", steps, 1)
    return backend


def one_number(loss):
    """Returns a loss without dimensions. TypeError: it is no tensor of one number."""
    if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
        got = f"the shape {list(loss.shape)}" if isinstance(loss, torch.Tensor) else type(loss).__name__
        raise TypeError(f"step.backward(loss): expected a tensor of one number, as losses.mean() is, got {got}")
    return loss.reshape(())


class Job:
    """A process's part in a training."""

    def __init__(self, plane, state, backend, buffers_are_own=False):
        self.plane, self.state, self.backend = plane, state, backend
        self.buffers_are_own = buffers_are_own  # of each process, or it is known by now that they are not
        self._turns = plane.steps(state)
        self._next = None  # step of the plane that was asked for already
        self._took = False  # whether the state of a step that failed here came from others
        self.since = None  # first step that this process was given
        self._finite = True  # whether the loss of the last step was
        self._group = None
        self.profile = reknit_profile.Nothing()

    def steps(self):
        """Yields each step to train, until training is complete. reknit.Left ends the script of whoever has left.

        SystemExit: an error ended the steps before, and a script that caught it would take training for complete.
        """
        try:
            while turn := self._turn():
                if turn.switched or self._group is None:
                    self._regroup(turn)
                self.profile.begin()
                self._took = False
                with turn.abortable(self._group.abort):
                    yield self._step(turn)
                if turn.committed:
                    self.profile.end(turn)
                if turn.committed or self.plane.done > turn.index and not self._took:
                    (self._next or turn).change(self.state.keep)  # what the script changed since
                else:
                    self.state.undo()
            if not self.plane.finished:
                raise SystemExit("reknit: job.steps(): training is not complete, and an error has ended its steps here, which the script "
                                 "caught: let it pass, and the agent starts the script again")
        finally:
            self.profile.close()
            self.state.end()
            if self._group is not None:
                self._group.leave()

    def _step(self, turn):
        return Step(self, turn)

    def _turn(self):
        turn, self._next = self._next or next(self._turns, None), None
        if turn and self.since is None:
            self.since = turn.index
        return turn

    def _regroup(self, turn):
        """Leaves the group of the plan before. The new one connects while the step computes."""
        if self._group is not None:
            self._group.leave()
        self._group = Group(self.backend, Store(self.plane, turn.generation), turn.rank, turn.world)
        self.profile.close()
        self.profile = self._profile()

    def _profile(self):
        """Returns what measures this process under the plan. A unit takes what the modules take whose first parameters it has.

        Raises TypeError where a parameter is another one than at the join.
        """
        self.state.check_tensors()
        unit_of = {id(tensor): unit for unit, tensors in enumerate(self.state.units) for tensor, _, _ in tensors}
        modules = [(unit_of[id(next(module.parameters()))], module)
                   for module in reknit_profile.modules_with_parameters(self.state.model)]
        return reknit_profile.Profile(modules, range(len(self.state.units)), self.state.static_bytes(),
                                      self.state.gradients.loss.device)

    def look_at(self, loss, own, turn):
        """Says of the first step whose loss is not finite where it is that of this process's samples: the next one is spoilt for all."""
        if self._finite and not math.isfinite(loss) and not math.isfinite(own):
            samples = turn.batches
            reknit.say(f"reknit: step {turn.index}: the loss is not finite, and it is that of the samples of this process, "
                       f"{samples[0][0]} to {samples[-1][-1]}: look at these first")
        self._finite = math.isfinite(loss)

    def decided(self, turn):
        """Returns whether a step that failed here was made all the same, when the cluster has decided."""
        taken = self.state.taken
        self._next = next(self._turns, None)
        self._took = self.state.taken > taken
        if self._took:
            self.state.set_aside()
        return self.plane.done > turn.index

    def settle(self, turn):
        """Reports a step that was made, and gives and takes what moves before the next one. steps() does so by itself, later.

        It returns when this process may begin the next step; that one counts as begun. It does nothing after a step that was not made.
        """
        if turn.committed and self._next is None:
            turn.change(self.state.keep)  # what the script changed since
            self._next = next(self._turns, None)


class AnyStep:
    """How a step of data-parallel training or of a pipeline ends.

    A subclass sets _states, the states that this process trains by their number, and _count, how many the job has.
    """

    _ended = False  # by commit

    def commit(self, update=None):
        """Updates the model where all processes can, and returns whether the step is made.

        update() is called in the place of optimizer.step(), which it calls: what else is done with each step (a scheduler, an
        average of the weights) is then a part of it, whatever fails. It must not raise, and communicates with nobody.
        """
        self._expect_open("step.commit()")
        self._ended = True
        self._job.state.update = update
        self.reduce()
        if self.loss is not None and self._tried(self._pass_gate):
            return True
        if self.loss is None:
            self.loss = math.nan
        return self._job.decided(self._turn)

    def _expect_open(self, call):
        """Raises WrongOrder behind commit: the sums of one process alone would be taken for those of the others' next step."""
        if self._ended:
            raise reknit.WrongOrder(f"{call} of step {self.index}: expected it once, before step.commit() has ended the step: one that is not "
                                    "made comes again from job.steps()")

    def settle(self):
        """Gives and takes the state that moves before the next step, and returns when that may begin. The loop does so by itself."""
        self._job.settle(self._turn)

    @contextlib.contextmanager
    def seeded(self, samples, *more):
        """Has random numbers of torch and random follow the samples, and whatever numbers more are given (a seed, a layer), in a block.

        Yields a number for other generators (numpy.random.default_rng). Behind the block the generators are what they were before it.
        So a sample has the same noise wherever it is trained, and however often its step begins anew.
        """
        number = seed_of(*more, samples[0], len(samples))
        device = next(iter(self._states.values())).gradients.loss.device
        before = random.getstate()
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            torch.manual_seed(number)
            random.seed(number)
            try:
                yield number
            finally:
                random.setstate(before)

    def _pass_gate(self):
        self._turn.ready()
        with self._turn.waiting():
            pass_gate(self._turn, self._job._group, self._states, self._count, self._job.since)
        self._turn.commit(lambda: self._job.state.apply(self.index + 1), self.loss)

    def _tried(self, part):
        """Returns whether a part of the step succeeded. The step is given up if it did not."""
        try:
            part()
        except (reknit.StepAborted, RuntimeError) as error:
            self._turn.give_up(error)
            return False
        return True


class Step(AnyStep):
    """A step of the training, and this process's part in it."""

    def __init__(self, job, turn):
        self.index, self.generation = turn.index, turn.generation
        self.rank, self.world = turn.rank, turn.world
        self.batches = turn.batches  # all of micro_batches, for a loader
        self.loss = None  # mean of the batch, once the gradients are summed; nan of a step that was not made here
        self._job, self._turn, self._gradients = job, turn, job.state.gradients
        self._gradients.clear()
        job.state.begin(turn.learning_rate_scale)
        self._untrained = sum(end - first for first, end in turn.samples) // turn.micro_batch
        self._share = turn.weight / max(1, self._untrained)  # of a micro-batch in the step's gradient
        self._reduced = False
        self._own = 0.0  # this process's part of the loss
        self._states, self._count = {0: job.state}, 1
        self._buffers = None  # their versions when the first micro-batch began

    @property
    def micro_batches(self):
        """The numbers of this process's samples, a micro-batch at a time. They end early where the step is given up."""
        own = self._until_the_last(itertools.takewhile(lambda _: not self._turn.aborted, self._turn.micro_batches))
        if not self._job.buffers_are_own:
            self._buffers = self._job.state.buffer_versions()
        return self._measured(own) if self._job.profile.active else own

    def _until_the_last(self, micro_batches):
        """Yields micro-batches. The script is between steps behind them until it comes to the sum: it does not wait for others yet."""
        yield from micro_batches
        self._turn.computing(False)

    def _measured(self, micro_batches):
        """Yields micro-batches, and has what each takes measured."""
        for samples in micro_batches:
            self._job.profile.start()
            complete = False
            try:
                yield samples
                complete = True
            finally:
                self._job.profile.stop(complete)

    def backward(self, loss):
        """Adds the gradients of a micro-batch, of which this is the mean loss."""
        if not self._untrained:
            raise reknit.WrongOrder(f"step {self.index}: expected step.backward(loss) once for each of step.micro_batches, got one more")
        loss = one_number(loss)
        self._expect_equal_buffers()
        self._untrained -= 1
        loss = loss * self._share
        self._own += loss.detach()
        if self._job.profile.active:
            self._job.profile.turn_back()
        self._gradients.backward(loss, None if self._untrained else self._job._group)
        if self._job.profile.active:
            self._job.profile.pause()

    def _expect_equal_buffers(self):
        """Raises Refused where the first forward pass has changed buffers. How many passes a process makes follows the plan."""
        if self._buffers is None:
            return
        changed = [name for name, version in self._job.state.buffer_versions().items() if version != self._buffers[name]]
        if changed:
            raise reknit.mistaken(reknit.Refused, f"{changed[0]}: expected a buffer that no forward pass changes, for processes make different "
                                  'numbers of passes: say join(…, replicas="alike"), and call step.share_buffers() before an evaluation')
        self._buffers, self._job.buffers_are_own = None, True

    def reduce(self):
        """Sums the gradients over all processes: those of the whole batch are in the parameters then.

        commit does it, too. A script that changes gradients does so between the two, alike in all processes: those that changed them
        otherwise than most make no step.
        """
        if not self._reduced:
            self._reduced = True
            summed = self._tried(self._sum)
            self._gradients.show()
            if summed and not self._ended:
                self._gradients.watch()

    def clip_grad_norm_(self, max_norm, norm_type=2.0):
        """Scales the gradients of the whole batch, as torch.nn.utils.clip_grad_norm_ does, and returns what their norm was."""
        self.reduce()
        return torch.nn.utils.clip_grad_norm_(self._gradients.parameters, max_norm, norm_type)

    def share_buffers(self):
        """Makes the buffers of all processes those of rank 0, as a part of the step: call it before commit, in all processes.

        Running statistics are each process's own otherwise; a model is evaluated or saved alike everywhere after it. A step that is given
        up leaves no trace of it.
        """
        self._expect_open("step.share_buffers()")
        self.reduce()
        if self.loss is not None and not self._tried(self._share_buffers):
            self.loss = None

    def _share_buffers(self):
        buffers = [buffer.data for buffer in self._job.state.model.buffers() if buffer.numel()]
        if not buffers:
            return
        flat = torch.cat([buffer.contiguous().reshape(-1).view(torch.uint8) for buffer in buffers])
        if self.rank != 0:
            flat.zero_()
        with self._turn.waiting():
            pass_gate(self._turn, self._job._group, self._states, self._count, self._job.since, shares=True)
            self._job._group.sum(flat)
        for buffer, own in zip(buffers, flat.split([buffer.numel() * buffer.element_size() for buffer in buffers])):
            buffer.copy_(own.clone().view(buffer.dtype).view(buffer.shape))

    def _sum(self):
        if self._untrained:  # a part of the gradients must not become a part of anybody's sums
            if self._turn.aborted:
                raise reknit.StepAborted(f"step {self.index} is given up")
            raise reknit.WrongOrder(f"step {self.index}: expected step.backward(loss) once for each of "
                                    f"step.micro_batches, {self._untrained} times more: none may be left out, by break, continue "
                                    "or an error that is caught")
        self._job.state.check()
        with self._turn.waiting():
            self._gradients.sum(self._job._group)
        self.loss = self._gradients.loss.item()
        self._job.look_at(self.loss, self._own, self._turn)


def seed_of(*numbers):
    """Returns a number from 0 to 2**63 - 1 that follows some others, the seed and a sample's number say, and nothing else."""
    return int.from_bytes(hashlib.sha256(repr(numbers).encode()).digest()[:8], "big") >> 1


def pass_gate(turn, group, states, count, since, shares=False):
    """Returns once all processes have come here, each with some of the job's states, by number, of which there are so many.

    Nobody makes the step if the settings of a state differ among those that hold it, or if some come to share their buffers and others to
    end the step. WrongOrder: this process is outvoted.
    Disagreement: others are, or nobody is in the majority. All come to the same verdict, for it follows from what a second sum shows
    of each: its numbers, and since which step it has trained. The first to raise has the sums of the others cut, so that nobody raises
    before all have that sum, and nobody is ready to make the step any more who has come to it.
    """
    numbers = {n: -1 - state.settings() if shares else state.settings() for n, state in states.items()}
    words = [0] * 3 * count  # by state: in how many processes it is, the sum of their numbers, and that of the squares
    for n, number in numbers.items():
        words[3 * n:3 * n + 3] = 1, number, number * number
    device = next(iter(states.values())).gradients.loss.device
    sums = torch.tensor(words, device=device)
    group.sum(sums)
    if all(total * total == held * squares for held, total, squares in zip(*[iter(sums.tolist())] * 3)):
        return
    turn.take_back()
    table = torch.zeros(turn.world, 1 + count, dtype=torch.int64, device=device)
    table[turn.rank, 0] = since
    for n, number in numbers.items():
        table[turn.rank, 1 + n] = number if shares else 1 + number  # zero: it is not here
    group.sum(table.view(-1))
    with contextlib.suppress(RuntimeError):  # cut: somebody has been told already, and all have the table, or died
        group.sum(torch.zeros(1, device=device))
    raise verdict(turn, table.tolist())


SETTINGS = "optimizer.param_groups, requires_grad, train() and eval(), or gradients that the script changed"


def verdict(turn, table):
    """Returns what is raised in this process where settings differ. By rank, the table has a first step and a number for each state."""
    outvoted, sides = vote(table)
    others = [rank for rank in range(turn.world) if rank not in outvoted]
    told = " against ".join(named(turn, side) for side in sides)
    right = named(turn, others) + ("" if 2 * len(others) > turn.world else ", which trained before")
    if len({number < 0 for row in table for number in row[1:] if number}) == 2:
        return shared_by_some(turn, outvoted, right, told)
    if turn.rank in outvoted:
        return reknit.mistaken(reknit.WrongOrder, f"{SETTINGS}: expected the settings of {right}, got others: "
                               "set them from step.index before step.commit(), or give the scheduler to join")
    if outvoted:
        return reknit.Disagreement(f"{SETTINGS}: {named(turn, outvoted)} would apply other settings than {right}",
                                   [turn.nodes[rank] for rank in sorted(outvoted)])
    return reknit.Disagreement(f"{SETTINGS} differ, and no side is the majority: end one side (reknit drain NODE), and the other "
                               f"goes on: {told}")


def shared_by_some(turn, outvoted, right, told):
    """Returns what is raised in this process where some share their buffers in a step that others end."""
    expected = "step.share_buffers(): expected in all processes at the same steps, by step.index say, or in none"
    if turn.rank in outvoted:
        return reknit.mistaken(reknit.WrongOrder, f"{expected}, got another call than in {right}")
    if outvoted:
        return reknit.Disagreement(f"{expected}: {named(turn, outvoted)} would do otherwise than {right}",
                                   [turn.nodes[rank] for rank in sorted(outvoted)])
    return reknit.Disagreement(f"{expected}, and no side is the majority: end one side (reknit drain NODE), and the other goes on: {told}")


def vote(table):
    """Returns the ranks that are outvoted, and the sides of a tie, lists of ranks; of these the first state's that has one.

    More than half of a state's holders decide. If no settings have as many, those who have trained for longest do, if they agree.
    """
    outvoted, tie = set(), []
    for at in range(1, len(table[0])):
        sides = {}
        for rank, row in enumerate(table):
            if row[at]:
                sides.setdefault(row[at], []).append(rank)
        if len(sides) < 2:
            continue
        right = max(sides.values(), key=len)
        if 2 * len(right) <= sum(map(len, sides.values())):
            first = min(table[rank][0] for side in sides.values() for rank in side)
            oldest = [side for side in sides.values() if any(table[rank][0] == first for rank in side)]
            right = oldest[0] if len(oldest) == 1 else []
        if right:
            outvoted.update(rank for side in sides.values() if side is not right for rank in side)
        else:
            tie = tie or list(sides.values())
    return outvoted, tie


def named(turn, ranks):
    """Returns the nodes of some ranks in words, three at most by name."""
    names = [turn.nodes[rank] for rank in sorted(ranks)]
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
