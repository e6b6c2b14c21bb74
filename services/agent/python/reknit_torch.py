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

It needs reknit.py beside it, Linux, and PyTorch 1.13 or newer. gloo is tested. NCCL is not: what differs is in CONNECT
and Group.abort.
"""

import atexit
import contextlib
import datetime
import hashlib
import itertools
import os
import socket
import threading
import time

import torch
import torch.distributed as dist

import reknit

UNIT_BYTES = 16 << 20  # of state in a unit, about: units are counted, and what moves is a unit
ALIGNMENT = 64  # bytes, of a tensor in its unit
TIMEOUT_SECONDS = 300  # by which a process may be slower than others: the last resort, an abort comes long before
EXIT_SECONDS = 5  # for which the program's end waits for groups that are being left
CONNECT = {"gloo": dist.ProcessGroupGloo, "nccl": getattr(dist, "ProcessGroupNCCL", None)}

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
                    yield Step(self, turn)
        finally:
            if self._group is not None:
                self._group.leave()

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
        self.loss = None  # mean of the batch, once the gradients are summed
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
        loss = loss * self._share
        loss.backward()
        self._gradients.loss.add_(loss.detach())
        self._untrained -= 1

    def reduce(self):
        """Sums the gradients over all processes: those of the whole batch are in the parameters then.

        commit does it, too. Whoever changes gradients, to clip them for example, does so between the two.
        """
        if not self._reduced:
            self._reduced = True
            self._tried(self._sum)

    def _sum(self):
        if self._untrained:  # a part of the gradients must not become a part of anybody's sums
            if self._turn.aborted:
                raise reknit.StepAborted(f"step {self.index} is given up")
            raise reknit.WrongOrder(f"step {self.index}: expected step.backward(loss) once for each of "
                                    f"step.micro_batches, {self._untrained} times more")
        self._gradients.gather()
        self._job._group.sum(self._gradients.sums)
        self.loss = self._gradients.loss.item()

    def commit(self):
        """Updates the model where all processes can, and returns whether the step is made."""
        self.reduce()
        if self.loss is not None and self._tried(self._pass_gate):
            return True
        return self._job.decided(self._turn)

    def _pass_gate(self):
        self._turn.ready()
        self._job._group.sum(torch.zeros_like(self._gradients.sums[:1]))
        self._turn.commit(self._job.state.apply, self.loss)

    def _tried(self, part):
        """Returns whether a part of the step succeeded. Where it did not, the step is given up."""
        try:
            part()
        except (reknit.StepAborted, RuntimeError) as error:
            self._turn.give_up(error)
            return False
        return True


class Store(dist.Store):
    """What the processes of a group tell each other while they connect, through their agents."""

    def __init__(self, plane, generation):
        super().__init__()
        self.plane, self.generation = plane, generation

    def set(self, key, value):
        self.plane.set(self.generation, key, value.encode() if isinstance(value, str) else bytes(value))

    def get(self, key):
        return self.plane.get(self.generation, key, TIMEOUT_SECONDS)

    def add(self, key, number):
        return self.plane.add(self.generation, key, number)

    def wait(self, keys, timeout=None):
        for key in keys:
            self.get(key)


class Gradients:
    """The gradients of all parameters, and the loss, side by side: they are summed at once."""

    def __init__(self, parameters):
        every = list(parameters)
        self.parameters = [parameter for parameter in every if parameter.requires_grad]
        self.frozen = [parameter for parameter in every if not parameter.requires_grad]
        kinds = {(parameter.dtype, parameter.device) for parameter in self.parameters}
        if len(kinds) != 1:
            raise TypeError(f"model: expected trained parameters of one type on one device, got {kinds or 'none'}")
        first = self.parameters[0]
        self.sums = torch.zeros(1 + sum(p.numel() for p in self.parameters), dtype=first.dtype, device=first.device)
        self.views, at = [], 1
        for parameter in self.parameters:
            self.views.append(self.sums[at:at + parameter.numel()].view_as(parameter))
            at += parameter.numel()

    @property
    def loss(self):
        """The first of the numbers."""
        return self.sums[0]

    def clear(self):
        """Begins a step: the backward pass adds to zeros."""
        self.sums.zero_()
        for parameter, view in zip(self.parameters, self.views):
            parameter.grad = view

    def gather(self):
        """Takes in gradients that the backward pass put elsewhere, because they had been set to None."""
        if any(parameter.requires_grad for parameter in self.frozen):
            raise TypeError("model: expected no parameter to be trained that was frozen when the process joined")
        for parameter, view in zip(self.parameters, self.views):
            if parameter.grad is not None and parameter.grad is not view:
                view.copy_(parameter.grad)
            parameter.grad = view


class State:
    """The tensors of a model and its optimizer, and the units in which they lie.

    On the CPU the tensors are views of the units' memory, so that nothing is copied. Where some are elsewhere, all are
    copied when a unit is given or taken.
    """

    def __init__(self, model, optimizer, mapped=None):
        own = {id(parameter) for parameter in model.parameters()}
        others = sum(id(parameter) not in own for group in optimizer.param_groups for parameter in group["params"])
        if others:
            raise TypeError(f"optimizer: expected parameters of the model only, got {others} others: put all into one module")
        begin(optimizer)
        self.optimizer = optimizer
        self.gradients = Gradients(model.parameters())
        self.learning_rate_scale = 1.0  # of the plan
        self.units, self.sizes = [], []  # by unit: pairs of a tensor and its first byte; bytes
        for tensor in tensors_of(model, optimizer):
            if not self.units or self.sizes[-1] >= UNIT_BYTES:
                self.units.append([])
                self.sizes.append(0)
            self.units[-1].append((tensor, self.sizes[-1]))
            self.sizes[-1] += -(-tensor.numel() * tensor.element_size() // ALIGNMENT) * ALIGNMENT
        on_cpu = all(tensor.device.type == "cpu" for unit in self.units for tensor, _ in unit)
        self.mapped = on_cpu if mapped is None else mapped
        self.copies = []  # by unit: pairs of a tensor and its copy in the unit's memory

    def digest(self, data):
        """Returns what is equal in all processes of a job, and in no others."""
        words = [data, type(self.optimizer).__name__, self.optimizer.defaults]
        words += [(tuple(tensor.shape), tensor.dtype) for unit in self.units for tensor, _ in unit]
        sums = hashlib.sha256(repr(words).encode())
        for unit, size in enumerate(self.sizes):
            memory = bytearray(size)
            for tensor, view in self.views(unit, memory):
                view.copy_(tensor)
            sums.update(memory)
        return sums.hexdigest()

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
            pairs = self.views(unit, memory)
            for tensor, view in pairs:
                view.copy_(tensor.detach())
                if self.mapped:
                    tensor.data = view
            self.copies.append([] if self.mapped else pairs)

    def give(self, units, step):
        """Copies units into their memory, where they lie elsewhere."""
        for unit in units:
            for tensor, view in self.copies[unit]:
                view.copy_(tensor.detach())

    def adopt(self, step, took):
        """Goes on from a step, of which these units came from others."""
        for unit in took:
            for tensor, view in self.copies[unit]:
                tensor.data.copy_(view)

    def apply(self, step=None):
        """Makes the next step of the gradients that were summed."""
        rates = [group["lr"] for group in self.optimizer.param_groups]
        for group, rate in zip(self.optimizer.param_groups, rates):
            group["lr"] = rate * self.learning_rate_scale
        self.optimizer.step()
        for group, rate in zip(self.optimizer.param_groups, rates):
            group["lr"] = rate


def begin(optimizer):
    """Has the optimizer make what it keeps of each parameter, as it is before the first step."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    if all(optimizer.state.get(parameter) for parameter in parameters):
        return
    if not isinstance(optimizer, KNOWN_OPTIMIZERS):
        known = ", ".join(kind.__name__ for kind in KNOWN_OPTIMIZERS)
        raise TypeError(f"optimizer: expected one of {known}, or one that has made its state; got {type(optimizer)}")
    before = [parameter.detach().clone() for parameter in parameters]
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    for parameter, value in zip(parameters, before):
        parameter.data.copy_(value)
        parameter.grad = None
        for kept in optimizer.state[parameter].values():
            if torch.is_tensor(kept):
                kept.zero_()


def tensors_of(model, optimizer):
    """Returns all that training changes: each parameter and what the optimizer keeps of it, and the buffers."""
    found = []
    for parameter in model.parameters():
        found.append(parameter)
        for name, kept in sorted(optimizer.state.get(parameter, {}).items()):
            if torch.is_tensor(kept):
                found.append(kept)
            elif kept is not None:
                raise TypeError(f"optimizer: expected tensors in its state, got {name} = {kept!r}")
    found += model.buffers()
    return [tensor for tensor in found if tensor.numel() > 0]


class Group:
    """The processes of one plan, connected. Built once, it is left for good when it breaks or another plan comes.

    gloo has no abort: what ends its collectives is the end of their connections, which are the sockets that appeared
    while the group was built.
    """

    def __init__(self, backend, store, rank, world):
        self.store = store  # C++ keeps no reference to what Python knows of it
        self._lock = threading.Lock()
        self._decided = threading.Event()  # built, failed or aborted
        self._error, self._processes, self._over = "", None, False
        self._alone = world == 1
        self._before = connections()
        self._sockets = None  # of the group, once it is built
        if not self._alone:
            beside(self._build, CONNECT[backend], rank, world)

    def _build(self, connect, rank, world):
        processes, error = None, ""
        try:
            processes = connect(self.store, rank, world, datetime.timedelta(seconds=TIMEOUT_SECONDS))
        except Exception as failure:  # of whatever kind the store or the backend raises
            error = f"connect to the other processes: {failure}"
        with self._lock:
            if not self._over:
                self._processes, self._error = processes, error
                self._sockets = self._appeared()
            self._decided.set()

    def _appeared(self):
        return connections().items() - self._before.items()

    def sum(self, tensor):
        """Adds up a tensor over all processes, in place. RuntimeError: it cannot be done with this group any more."""
        if self._alone:
            return
        self._decided.wait()  # _build ends within the timeout, an abort at once
        with self._lock:
            processes = self._processes
        if processes is None:
            raise RuntimeError(self._error)
        try:
            work = processes.allreduce([tensor])
            work.wait()
            tensor[0].item()  # on a GPU it is only this that waits for the sum: the gate must not be passed before
        finally:
            processes = work = None  # the error's traceback must not keep them

    def abort(self):
        """Ends a sum that is under way, and all later ones. It may be called from any thread."""
        with self._lock:
            if self._over:
                return
            self._over, self._error = True, self._error or "the step was given up"
            sockets = self._appeared() if self._sockets is None else self._sockets & connections().items()
            for file, _ in sockets:
                shut(file)
            if hasattr(self._processes, "abort"):  # NCCL, and gloo of some later PyTorch
                self._processes.abort()
            self._decided.set()

    def leave(self):
        """Lets go of the group. Its destructor waits for what is under way: it runs on a thread of its own."""
        self.abort()
        with self._lock:
            kept, self._processes = [self._processes], None
        beside(kept.clear)


_threads = []  # that may be inside of a process group


def beside(work, *arguments):
    """Runs something that may take as long as a collective on a thread of its own."""
    _threads[:] = [thread for thread in _threads if thread.is_alive()]
    _threads.append(threading.Thread(target=work, args=arguments, daemon=True))
    _threads[-1].start()


@atexit.register
def _await():
    """Waits a while for these threads: one that leaves C++ while Python ends takes the process down with SIGABRT."""
    until = time.monotonic() + EXIT_SECONDS
    for thread in _threads:
        thread.join(max(0, until - time.monotonic()))


def connections():
    """Returns the open sockets of this process: by file, what the kernel calls it."""
    found = {}
    for file in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # closed meanwhile
            name = os.readlink(f"/proc/self/fd/{file}")
            if name.startswith("socket:"):
                found[int(file)] = name
    return found


def shut(file):
    """Shuts a connection over the network, for both of its ends. Other sockets are left."""
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(file)) as connection:
        listens = connection.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        if connection.family in (socket.AF_INET, socket.AF_INET6) and not listens:
            connection.shutdown(socket.SHUT_RDWR)
