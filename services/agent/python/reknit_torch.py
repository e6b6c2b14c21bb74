"""Elastic data-parallel training with PyTorch: processes fail, leave and join, and the others go on from the same step.

    job = reknit_torch.join(model, optimizer, batch=64, micro_batch=4, steps=1000)
    for step in job.steps():
        for samples in step.micro_batches:      # numbers of samples that this process trains
            step.backward(loss_of(model(x[samples]), y[samples]))
        if step.commit():                       # False: the step was given up, and comes again
            print(step.index, step.loss)

Parameters, buffers and the optimizer's state move into the units that the agent gives to processes which join. A step
sums the gradients over all processes, shows by a second sum that everybody has them (the gate), and only then updates
the model. So all processes hold one and the same step, whatever breaks, and none keeps a second copy of the state.
Without an agent (REKNIT_AGENT is not set) the same script trains alone.

It needs reknit.py and reknit_group.py beside it, Linux, and PyTorch 1.13 or newer.
"""

import contextlib
import hashlib
import itertools
import math
import threading

import torch

import reknit
from reknit_group import Group, Store

UNIT_BYTES = 16 << 20  # of state in a unit, about: units are counted, and what moves is a unit
BUCKET_BYTES = 25 << 20  # of gradients that are summed at once, about: as DistributedDataParallel has it
ALIGNMENT = 64  # bytes, of a tensor in its unit

# Their state begins at zero, so that it can be made before the first step.
KNOWN_OPTIMIZERS = (
    torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.Adamax, torch.optim.RMSprop, torch.optim.Adadelta)


def join(model, optimizer, batch, micro_batch, steps, data="", backend="gloo", **job):
    """Asks for a place in the training of a model, and returns a Job.

    A step trains batch samples, in micro-batches of which each process has its share; training ends after so many
    steps. Model and optimizer must begin alike in all processes (torch.manual_seed), and data says in any words what
    else must be equal. Further arguments go to reknit.join.
    """
    state = State(model, optimizer)
    if any(getattr(module, "track_running_stats", False) for module in model.modules()):
        job.setdefault("replicas", "alike")  # BatchNorm keeps in its buffers what this process saw, and no other
    plane = reknit.join(units=state.sizes, batch=batch, micro_batch=micro_batch, total_steps=steps,
                        digest=state.digest(f"{data} {batch} {micro_batch} {steps}"),
                        state="mapped" if state.mapped else "copied", **job)
    state.move_in(plane.units)
    return Job(plane, state, backend)


class Job:
    """A process's part in a training."""

    def __init__(self, plane, state, backend):
        self.plane, self.state, self.backend = plane, state, backend
        self._turns = plane.steps(state)
        self._next = None  # step of the plane that was asked for already
        self._group = None

    def steps(self):
        """Yields each step to train, until training is complete. reknit.Left ends the script of whoever has left."""
        try:
            while turn := self._turn():
                if turn.switched or self._group is None:
                    self._regroup(turn)
                with turn.abortable(self._group.abort):
                    yield self._step(turn)
        finally:
            if self._group is not None:
                self._group.leave()

    def _step(self, turn):
        return Step(self, turn)

    def _turn(self):
        turn, self._next = self._next or next(self._turns, None), None
        return turn

    def _regroup(self, turn):
        """Leaves the group of the plan before. The new one connects while the step computes."""
        if self._group is not None:
            self._group.leave()
        self._group = Group(self.backend, Store(self.plane, turn.generation), turn.rank, turn.world)

    def decided(self, turn):
        """Returns whether a step that failed here was made all the same, when the cluster has decided."""
        self._next = next(self._turns, None)
        return self.plane.done > turn.index


class Step:
    """A step of the training, and this process's part in it."""

    def __init__(self, job, turn):
        self.index, self.generation = turn.index, turn.generation
        self.rank, self.world = turn.rank, turn.world
        self.batches = turn.batches  # all of micro_batches, for a loader
        self.loss = None  # mean of the batch, once the gradients are summed; nan of a step that only others could make
        self._job, self._turn, self._gradients = job, turn, job.state.gradients
        self._gradients.clear()
        self._untrained = sum(end - first for first, end in turn.samples) // turn.micro_batch
        self._share = turn.weight / max(1, self._untrained)  # of a micro-batch in the step's gradient
        self._reduced = False
        job.state.learning_rate_scale = turn.learning_rate_scale

    @property
    def micro_batches(self):
        """The numbers of this process's samples, a micro-batch at a time. They end early where the step is given up."""
        return itertools.takewhile(lambda _: not self._turn.aborted, self._turn.micro_batches)

    def backward(self, loss):
        """Adds the gradients of a micro-batch, of which this is the mean loss."""
        if not self._untrained:
            raise reknit.WrongOrder(f"step {self.index}: expected step.backward(loss) once for each of step.micro_batches, got one more")
        self._untrained -= 1
        self._gradients.backward(loss * self._share, None if self._untrained else self._job._group)

    def reduce(self):
        """Sums the gradients over all processes: those of the whole batch are in the parameters then.

        commit does it, too. Whoever changes gradients, to clip them for example, does so between the two.
        """
        if not self._reduced:
            self._reduced = True
            self._tried(self._sum)
            self._gradients.show()

    def _sum(self):
        if self._untrained:  # a part of the gradients must not become a part of anybody's sums
            if self._turn.aborted:
                raise reknit.StepAborted(f"step {self.index} is given up")
            raise reknit.WrongOrder(f"step {self.index}: expected step.backward(loss) once for each of "
                                    f"step.micro_batches, {self._untrained} times more")
        self._job.state.check()
        self._gradients.sum(self._job._group)
        self.loss = self._gradients.loss.item()

    def commit(self):
        """Updates the model where all processes can, and returns whether the step is made."""
        self.reduce()
        if self.loss is not None and self._tried(self._pass_gate):
            return True
        made = self._job.decided(self._turn)
        if made and self.loss is None:
            self.loss = math.nan
        return made

    def _pass_gate(self):
        self._turn.ready()
        pass_gate(self._job._group, {0: self._job.state})
        self._turn.commit(lambda: self._job.state.apply(self.index + 1), self.loss)

    def _tried(self, part):
        """Returns whether a part of the step succeeded. Where it did not, the step is given up."""
        try:
            part()
        except (reknit.StepAborted, RuntimeError) as error:
            self._turn.give_up(error)
            return False
        return True


class Bucket:
    """Gradients side by side, which are summed at once."""

    def __init__(self, parameters, sums):
        self.parameters, self.sums = parameters, sums
        self.views, end = [], 0
        for parameter in parameters:
            first, end = end, end + parameter.numel()
            self.views.append(sums[first:end].view_as(parameter))
        self.missing = set()  # indexes of gradients that the backward pass is still to make
        self.sum = None  # that was begun


def buckets_of(parameters):
    """Returns buckets of one type and device each, in the order in which a backward pass completes them."""
    found, filling = [], {}  # indexes of parameters by bucket, and by kind in the bucket that has room
    for index in reversed(range(len(parameters))):
        kind = parameters[index].dtype, parameters[index].device
        if kind not in filling:
            filling[kind] = []
            found.append(filling[kind])
        filling[kind].append(index)
        if sum(parameters[each].numel() for each in filling[kind]) * parameters[index].element_size() >= BUCKET_BYTES:
            del filling[kind]
    buckets = []
    for indexes in sorted(found, key=min, reverse=True):
        own = [parameters[index] for index in indexes]
        sums = torch.zeros(sum(parameter.numel() for parameter in own), dtype=own[0].dtype, device=own[0].device)
        buckets.append(Bucket(own, sums))
    return buckets


class Gradients:
    """The gradients of all parameters, and the loss, in buckets: the last parameters first, as a backward pass makes them.

    Each gradient moves into its bucket when it is made. In the last backward pass of a step the sum of a bucket over
    the processes begins when its gradients are complete, in one order everywhere, while the pass goes on.
    """

    def __init__(self, parameters):
        every = list(parameters)
        self.parameters = [parameter for parameter in every if parameter.requires_grad]
        self.frozen = [parameter for parameter in every if not parameter.requires_grad]
        if not self.parameters:
            raise TypeError("model: expected parameters that are trained, got none")
        self.loss = torch.zeros(1, device=self.parameters[0].device)
        self.buckets = [Bucket([], self.loss), *buckets_of(self.parameters)]
        self._failed = None  # why a sum could not begin or end
        self._group = None  # of the last backward pass of a step
        self._in_step = self._in_backward = False
        self._lock = threading.Lock()  # a backward pass has a thread for each device
        self._hooked = [self._hook(bucket, at) for bucket in self.buckets for at in range(len(bucket.parameters))]

    def _hook(self, bucket, at):
        """Has _take called when a gradient was made, for as long as what is returned is kept."""
        with torch.enable_grad():
            parameter = bucket.parameters[at]
            accumulator = parameter.expand_as(parameter).grad_fn.next_functions[0][0]
        accumulator.register_hook(lambda *_: self._take(bucket, at))
        return accumulator

    def clear(self):
        """Begins a step."""
        self._end_sums()  # of a step that was given up, and its group with it: they write into the buckets until they end
        self._failed, self._group, self._in_step = None, None, True
        for bucket in self.buckets:
            bucket.sums.zero_()
        self._set([None] * len(bucket.views) for bucket in self.buckets)

    def open(self):
        """Begins a step in which the script goes backward by itself: its gradients add up in the buckets."""
        for bucket in self.buckets:
            bucket.sums.zero_()
        self.show()

    def backward(self, loss, group=None):
        """Adds a loss and its gradients. With a group they are the last of this process, and their sums begin."""
        self.loss.add_(loss.detach().to(self.loss.device))
        for bucket in self.buckets:
            bucket.missing = set(range(len(bucket.parameters)))
        self._group, self._in_backward = group, True
        try:
            loss.backward()
        finally:
            self._in_backward = False

    def _take(self, bucket, at):
        """Moves a gradient into its bucket."""
        if not self._in_step:
            return  # the script's own
        if not self._in_backward:
            raise reknit.WrongOrder("loss.backward(): expected step.backward(loss), which counts it by its share of the step")
        with self._lock:
            if bucket.sum is not None:
                raise reknit.WrongOrder("step.backward(loss): expected one gradient of each parameter, got another one: "
                                        "call checkpoint(…, use_reentrant=False)")
            parameter = bucket.parameters[at]
            bucket.views[at].add_(parameter.grad.detach())
            parameter.grad = None
            bucket.missing.discard(at)
            if self._group is not None and self._group.connected:
                self._begin_sums()

    def _begin_sums(self):
        """Begins the sums of buckets that are complete, none before those that stand before it."""
        for bucket in self.buckets:
            if bucket.missing or self._failed:
                return
            if bucket.sum is None:
                try:
                    bucket.sum = self._group.begin(bucket.sums)
                except RuntimeError as error:
                    self._failed = error

    def _end_sums(self):
        for bucket in self.buckets:
            try:
                if bucket.sum is not None:
                    bucket.sum.wait()
            except RuntimeError as error:
                self._failed = self._failed or error
                self._group.abort()  # or the other sums end much later
            bucket.sum = None

    def sum(self, group):
        """Ends the sums over all processes. RuntimeError: it cannot be done."""
        if any(parameter.requires_grad for parameter in self.frozen):
            raise TypeError("model: expected no parameter to be trained that was frozen when the process joined")
        self._group = group
        for bucket in self.buckets:
            bucket.missing.clear()  # the pass is over: the others had no gradient
        self._begin_sums()
        self._end_sums()
        if self._failed:
            raise self._failed
        group.finish(self.loss)

    def show(self):
        """Puts what was summed into the parameters, for a script that changes it; of a step that is given up as well."""
        self._set(bucket.views for bucket in self.buckets)

    def release(self):
        """Ends a step. Its gradients were applied, and must not be once more."""
        self._in_step = False
        self._set([None] * len(bucket.views) for bucket in self.buckets)

    def _set(self, gradients):
        for bucket, own in zip(self.buckets, gradients):
            for parameter, gradient in zip(bucket.parameters, own):
                parameter.grad = gradient


class State:
    """The tensors of a model and its optimizer, and the units in which they lie.

    On the CPU the tensors are views of the units' memory, so that nothing is copied. Where some are elsewhere, all are
    copied when a unit is given or taken.
    """

    def __init__(self, model, optimizer, mapped=None, unit_bytes=UNIT_BYTES):
        own = {id(parameter) for parameter in model.parameters()}
        others = sum(id(parameter) not in own for group in optimizer.param_groups for parameter in group["params"])
        if others:
            raise TypeError(f"optimizer: expected parameters of the model only, got {others} others: put all into one module")
        self._began = begin(optimizer)
        self.model, self.optimizer = model, optimizer
        self.gradients = Gradients(model.parameters())
        self.learning_rate_scale = 1.0  # of the plan
        self.units, self.sizes = [], []  # by unit: pairs of a tensor and its first byte; bytes
        for tensor in tensors_of(model, optimizer):
            if not self.units or self.sizes[-1] >= unit_bytes:
                self.units.append([])
                self.sizes.append(0)
            self.units[-1].append((tensor, self.sizes[-1]))
            self.sizes[-1] += -(-tensor.numel() * tensor.element_size() // ALIGNMENT) * ALIGNMENT
        on_cpu = all(tensor.device.type == "cpu" for unit in self.units for tensor, _ in unit)
        self.mapped = on_cpu if mapped is None else mapped
        self.pairs = []  # by unit: pairs of a tensor and where it lies in the unit's memory, or its copy

    def digest(self, data):
        """Returns what is equal in all processes of a job, and in no others."""
        place = {id(parameter): n for n, parameter in enumerate(self.model.parameters())}
        words = [data, type(self.optimizer).__name__, settings_of(self.optimizer)]
        words += [[place[id(parameter)] for parameter in group["params"]] for group in self.optimizer.param_groups]
        words += [(tuple(tensor.shape), tensor.dtype) for unit in self.units for tensor, _ in unit]
        sums = hashlib.sha256(repr(words).encode())
        for unit, size in enumerate(self.sizes):
            memory = bytearray(size)
            for tensor, view in self.views(unit, memory):
                view.copy_(tensor)
            sums.update(memory)
        return sums.hexdigest()

    def settings(self):
        """Returns a number that tells the optimizer's settings from others: its square is exact in sums of 32768 processes."""
        return int.from_bytes(hashlib.sha256(repr(settings_of(self.optimizer)).encode()).digest()[:3], "big")

    def views(self, unit, memory):
        """Returns pairs of a tensor of the unit and where it lies in the unit's memory."""
        pairs = []
        for tensor, at in self.units[unit]:
            flat = torch.frombuffer(memory, dtype=tensor.dtype, count=tensor.numel(), offset=at)
            pairs.append((tensor, flat.view(tensor.shape)))
        return pairs

    def move_in(self, memories):
        """Brings the first state into the units' memory, and keeps it there from now on."""
        for unit, memory in enumerate(memories):
            for tensor, view in self.views(unit, memory):
                view.copy_(tensor.detach())
        self.settle(memories)

    def settle(self, memories):
        """Goes on from what is in the units' memory, and keeps it there from now on."""
        for unit, memory in enumerate(memories):
            pairs = self.views(unit, memory)
            for tensor, view in pairs:
                if self.mapped:
                    tensor.data = view
                else:
                    tensor.data.copy_(view)
            self.pairs.append(pairs)

    def give(self, units, step):
        """Copies units into their memory. It is asked for where they lie elsewhere."""
        for unit in units:
            for tensor, view in self.pairs[unit]:
                view.copy_(tensor.detach())

    def adopt(self, step, took):
        """Goes on from a step, of which these units came from others."""
        for unit in () if self.mapped else took:
            for tensor, view in self.pairs[unit]:
                tensor.data.copy_(view)

    def apply(self, step):
        """Makes the step of this number, from 1, of the gradients that were summed."""
        before = [dict(group) for group in self.optimizer.param_groups]
        for group in self.optimizer.param_groups:
            group["lr"] = group["lr"] * self.learning_rate_scale  # a tensor is not changed
            if self._began and step == 1 and "dampening" in group:
                group["dampening"] = 0  # SGD takes the first gradient whole, and has nothing before it
        self.optimizer.step()
        for group, settings in zip(self.optimizer.param_groups, before):
            group.update(settings)
        self.gradients.release()

    def check(self):
        """Raises TypeError where model and optimizer train other tensors than those that others are given."""
        own = list(itertools.chain(*self.pairs))
        now = tensors_of(self.model, self.optimizer)
        if len(now) != len(own) or any(
                tensor is not known or self.mapped and tensor.data_ptr() != view.data_ptr()
                for tensor, (known, view) in zip(now, own)):
            raise TypeError("model, optimizer: expected the tensors with which the process joined, got others: put values into "
                            "them (copy_), and load checkpoints before reknit_torch.join")


def pass_gate(group, states, count=1):
    """Returns once all processes have come here, each with some of the job's states, by number, of which there are so many.

    WrongOrder: the settings of a state are not equal where it is held; all processes are told, before any applies them.
    """
    words = [0] * 3 * count  # by state: in how many processes it is, the sum of their numbers, and that of the squares
    for n, state in states.items():
        number = state.settings()
        words[3 * n:3 * n + 3] = 1, number, number * number
    sums = torch.tensor(words, device=next(iter(states.values())).gradients.loss.device)
    group.sum(sums)
    for held, total, squares in zip(*[iter(sums.tolist())] * 3):
        if total * total != held * squares:
            raise reknit.WrongOrder("optimizer.param_groups: expected equal settings in all processes, got others in some: set "
                                    "them from step.index before step.commit(), and call no scheduler")


def settings_of(optimizer):
    """Returns the settings of each group of parameters, without the last digits, in which machines may differ."""
    def rounded(value):
        value = value.tolist() if torch.is_tensor(value) else value  # wherever it is
        return [f"{one:.6g}" if isinstance(one, float) else one for one in (value if isinstance(value, (list, tuple)) else [value])]
    return [{name: rounded(value) for name, value in group.items() if name != "params"} for group in optimizer.param_groups]


def begin(optimizer):
    """Has the optimizer make what it keeps of each parameter, as it is before the first step; False: it had it."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    if all(optimizer.state.get(parameter) for parameter in parameters):
        return False
    known = [kind for kind in KNOWN_OPTIMIZERS if isinstance(optimizer, kind)]
    if not known:
        names = ", ".join(kind.__name__ for kind in KNOWN_OPTIMIZERS)
        raise TypeError(f"optimizer: expected one of {names}, or one that has made its state; got {type(optimizer)}")
    before = [parameter.detach().clone() for parameter in parameters]
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    known[0].step(optimizer)  # a subclass may do more
    for parameter, value in zip(parameters, before):
        parameter.data.copy_(value)
        parameter.grad = None
        state = optimizer.state[parameter]
        for name, kept in state.items():
            if isinstance(kept, int):  # a number of steps, in PyTorch 1: it counts on as a tensor
                state[name] = torch.zeros(())
            elif torch.is_tensor(kept):
                kept.zero_()
    return True


def tensors_of(model, optimizer):
    """Returns all that training changes: each parameter and what the optimizer keeps of it, and the buffers.

    Buffers that are not persistent are made anew from the others, as where a checkpoint is loaded.
    """
    found = []
    for parameter in model.parameters():
        found.append(parameter)
        for name, kept in sorted(optimizer.state.get(parameter, {}).items()):
            if torch.is_tensor(kept):
                found.append(kept)
            elif kept is not None:
                raise TypeError(f"optimizer: expected tensors in its state, got {name} = {kept!r}")
    persistent = {id(value) for value in model.state_dict(keep_vars=True).values()}
    found += [buffer for buffer in model.buffers() if id(buffer) in persistent]
    return [tensor for tensor in found if tensor.numel() > 0]
