"""What a training step with PyTorch changes: parameters and the optimizer's state, in units that move; gradients, in buckets."""

import hashlib
import itertools
import threading

import torch

import reknit

UNIT_BYTES = 16 << 20  # of state in a unit, about: units are counted, and what moves is a unit
BUCKET_BYTES = 25 << 20  # of gradients that are summed at once, about: as DistributedDataParallel has it
ALIGNMENT = 64  # bytes, of a tensor in its unit

# Their state begins at zero, so that it can be made before the first step.
KNOWN_OPTIMIZERS = (
    torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.Adamax, torch.optim.RMSprop, torch.optim.Adadelta)


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

    On the CPU parameters and the optimizer's tensors are views of the units' memory, so that nothing is copied. Where some
    tensors are elsewhere, all are copied when a unit is given or taken.

    The forward pass may change buffers, before anybody knows whether the step is made and while the agent copies units. So
    each lies in memory of its own, and beside it as it was after the last step: that is what others are given.
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
        self._buffers = {id(buffer) for buffer in model.buffers()}
        self._kept = {}  # by id of a buffer: the buffer, and as it was after the last step

    def static_bytes(self):
        """Returns how much memory the state and its gradients take."""
        return sum(self.sizes) + sum(bucket.sums.numel() * bucket.sums.element_size() for bucket in self.gradients.buckets)

    def digest(self, data):
        """Returns what is equal in all processes of a job, and in no others."""
        place = {id(parameter): n for n, parameter in enumerate(self.model.parameters())}
        words = [data, type(self.optimizer).__name__, settings_of(self.optimizer)]
        words += [[place[id(parameter)] for parameter in group["params"]] for group in self.optimizer.param_groups]
        words += [(tuple(tensor.shape), tensor.dtype) for unit in self.units for tensor, _ in unit]
        sums = hashlib.sha256(repr(words).encode())
        for unit, size in enumerate(self.sizes):
            memory = bytearray(size)
            self.fill(self.views(unit, memory))
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
            self.fill(self.views(unit, memory))
        self.settle(memories)

    def settle(self, memories):
        """Goes on from what is in the units' memory, and keeps it there from now on."""
        for unit, memory in enumerate(memories):
            pairs = self.views(unit, memory)
            for tensor, view in pairs:
                if self.mapped and id(tensor) not in self._buffers:
                    tensor.data = view
                else:
                    tensor.data.copy_(view)
                if id(tensor) in self._buffers:
                    self._kept[id(tensor)] = tensor, view if self.mapped else tensor.data.clone()
            self.pairs.append(pairs)

    def give(self, units, step):
        """Copies units into their memory. It is asked for where they lie elsewhere."""
        for unit in units:
            self.fill(self.pairs[unit])

    def adopt(self, step, took):
        """Goes on from a step, of which these units came from others."""
        for unit in () if self.mapped else took:
            for tensor, view in self.pairs[unit]:
                self._after_step(tensor).copy_(view)
        self.undo()

    def fill(self, pairs):
        """Copies tensors, as they were after the last step, to where they lie in a unit."""
        for tensor, view in pairs:
            view.copy_(self._after_step(tensor))

    def _after_step(self, tensor):
        return self._kept[id(tensor)][1] if id(tensor) in self._kept else tensor.data

    def keep(self):
        """Keeps the buffers as they are: the step is made."""
        for buffer, kept in self._kept.values():
            kept.copy_(buffer.data)

    def undo(self):
        """Makes the buffers what they were before a step that is given up."""
        for buffer, kept in self._kept.values():
            buffer.data.copy_(kept)

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
        self.keep()

    def check(self):
        """Raises TypeError where model and optimizer train other tensors than those that others are given."""
        own = list(itertools.chain(*self.pairs))
        now = tensors_of(self.model, self.optimizer)
        if len(now) != len(own) or any(
                tensor is not known or id(tensor) not in self._kept and self.mapped and tensor.data_ptr() != view.data_ptr()
                for tensor, (known, view) in zip(now, own)):
            raise TypeError("model, optimizer: expected the tensors with which the process joined, got others: put values into "
                            "them (copy_), and load checkpoints before reknit_torch.join")


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
