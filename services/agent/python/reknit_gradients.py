"""Gradients of a training step with PyTorch: in buckets, which are summed over the processes while the backward pass goes on."""

import sys
import threading

import torch

import reknit

WHOLE = {1: torch.int8, 2: torch.int16, 4: torch.int32}  # numbers of as many bytes
BUCKET_BYTES = 25 << 20  # of gradients that are summed at once, about: as DistributedDataParallel has it


class Bucket:
    """Gradients side by side, which are summed at once."""

    def __init__(self, parameters, sums):
        self.parameters = parameters
        self.missing = set()  # indexes of gradients that the backward pass is still to make
        self.sum = None  # that was begun
        self.lie_in(sums)

    def lie_in(self, sums):
        """Has the gradients lie in this memory from now on."""
        self.sums, self.views, end = sums, [], 0
        for parameter in self.parameters:
            first, end = end, end + parameter.numel()
            self.views.append(sums[first:end].view(parameter.shape))


def buckets_of(parameters):
    """Returns buckets of one type and device each, in the order in which a backward pass completes them.

    Behind the gradients of the last one there is a number for each parameter: in how many processes it had a gradient.
    """
    found, filling = [], {}  # indexes of parameters by bucket, and by kind in the bucket that has room
    for index in reversed(range(len(parameters))):
        kind = parameters[index].dtype, parameters[index].device
        if kind not in filling:
            filling[kind] = []
            found.append(filling[kind])
        filling[kind].append(index)
        if sum(parameters[each].numel() for each in filling[kind]) * parameters[index].element_size() >= BUCKET_BYTES:
            del filling[kind]
    found.sort(key=min, reverse=True)
    buckets = []
    for indexes in found:
        own = [parameters[index] for index in indexes]
        flags = len(parameters) if indexes is found[-1] else 0
        sums = torch.zeros(sum(parameter.numel() for parameter in own) + flags, dtype=own[0].dtype, device=own[0].device)
        buckets.append(Bucket(own, sums))
    return buckets


def sum_of_bits(gradient):
    """Returns the sum of a gradient's bits, in numbers of as many bytes as its own have: wider ones would be a copy of it."""
    if gradient.layout != torch.strided:
        gradient = gradient.to_dense()
    whole = WHOLE.get(gradient.element_size(), torch.int64)
    return gradient.resolve_conj().resolve_neg().reshape(-1).view(whole).sum(dtype=whole)


class Gradients:
    """The gradients of all parameters, and the loss, in buckets: the last parameters first, as a backward pass makes them.

    Each gradient moves into its bucket when it is made. In the last backward pass of a step the sum of a bucket over
    the processes begins when its gradients are complete, in one order everywhere, while the pass goes on. A parameter that
    had a gradient in no process has none after the sum: optimizers leave it alone, as in a script without Reknit.
    """

    def __init__(self, named):
        """Takes pairs of a name and a parameter, as model.named_parameters() has them."""
        every = list(named)
        self.names = {id(parameter): name for name, parameter in every}
        self.parameters = [parameter for _, parameter in every if parameter.requires_grad]
        self.frozen = [parameter for _, parameter in every if not parameter.requires_grad]
        if not self.parameters:
            raise reknit.mistaken(TypeError, "model: expected parameters that are trained, got none")
        self.buckets = [Bucket([], torch.zeros(1, device=self.parameters[0].device)), *buckets_of(self.parameters)]
        self._find()
        self._place = {id(parameter): at for at, parameter in enumerate(self.parameters)}
        self._failed = None  # why a sum could not begin or end
        self._summed = False
        self._seen = None  # sums of what the script was shown before step.commit()
        self._group = None  # of the last backward pass of a step
        self._in_step = self._in_backward = False
        self._lock = threading.Lock()  # a backward pass has a thread for each device
        self._hooked = [self._hook(bucket, at) for bucket in self.buckets for at in range(len(bucket.parameters))]

    def _find(self):
        self.loss = self.buckets[0].sums
        self._flags = self.buckets[-1].sums[-len(self.parameters):]  # in how many processes each parameter has a gradient

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
        self._failed, self._group, self._in_step, self._summed, self._seen = None, None, True, False, None
        for bucket in self.buckets:
            bucket.sums.zero_()
        self._set([None] * len(bucket.views) for bucket in self.buckets)
        hide(self)

    def open(self):
        """Begins a step in which the script goes backward by itself: its gradients add up in the buckets."""
        self._failed, self._summed, self._seen = None, False, None
        for bucket in self.buckets:
            bucket.sums.zero_()
        self._flags.fill_(1)
        self.show()
        hide(self)

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
            self._flags[self._place[id(parameter)]] = 1
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
        """Waits for the sums that were begun. An abort ends the wait for a sum, and not the sum: PyTorch's Work.wait only looks whether it is
        made, and gloo's thread adds up what has come until it asks a connection again. So a bucket whose sum failed gets other memory."""
        for bucket in self.buckets:
            try:
                if bucket.sum is not None:
                    bucket.sum.wait()
            except RuntimeError as error:
                self._failed = self._failed or error
                self._group.abort()  # or the other sums end much later
                bucket.lie_in(torch.zeros_like(bucket.sums))
                self._find()
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
        self._summed = True

    def show(self):
        """Puts what was summed into the parameters, for a script that changes it; of a step that is given up as well."""
        unhide(self)
        self._set(bucket.views for bucket in self.buckets)
        for parameter, flag in zip(self.parameters, self._flags.tolist() if self._summed else ()):
            if not flag:
                parameter.grad = None

    def watch(self):
        """Notes what the script was shown, as it may change that before the step is made. It takes as long as a norm of all."""
        self._seen = self._bits()

    def changed(self):
        """Returns numbers of the gradients as the script left them, where it changed them since watch; else None."""
        if self._seen is None:
            return None
        left = self._bits()
        return left if left != self._seen else None

    def _bits(self):
        """Returns the sum of each gradient's bits, as whole numbers that wrap around; None for a parameter without one."""
        own = [GRAD.__get__(parameter) for parameter in self.parameters]
        sums = [sum_of_bits(gradient.detach()).to(self.loss.device, torch.int64) for gradient in own if gradient is not None]
        numbers = iter(torch.stack(sums).tolist() if sums else ())
        return [None if gradient is None else next(numbers) for gradient in own]

    def release(self):
        """Ends a step. Its gradients were applied, and must not be once more."""
        self._in_step = False
        unhide(self)
        self._set([None] * len(bucket.views) for bucket in self.buckets)

    def _set(self, gradients):
        for bucket, own in zip(self.buckets, gradients):
            for parameter, gradient in zip(bucket.parameters, own):
                parameter.grad = gradient


# The attribute of every parameter, and the parameters whose gradients are not summed yet, by id.
GRAD = torch.Tensor.grad
_hidden = {}
_hiding = threading.Lock()


def hide(gradients):
    """Makes it an error that a script reads gradients which are not summed yet: it would see none, or a part of them."""
    with _hiding:
        _hidden.update((id(parameter), gradients) for parameter in gradients.parameters)
        torch.nn.Parameter.grad = property(_read, GRAD.__set__, GRAD.__delete__)


def unhide(gradients):
    """Ends hide."""
    with _hiding:
        for parameter in gradients.parameters:
            _hidden.pop(id(parameter), None)
        if not _hidden and "grad" in vars(torch.nn.Parameter):
            del torch.nn.Parameter.grad


def _read(parameter):
    """Returns a parameter's gradient. WrongOrder: a script asks before the sum. Optimizers and modules may: they set it to zero."""
    gradients = _hidden.get(id(parameter))
    if gradients is not None:
        reader = sys._getframe(1).f_globals.get("__name__", "")
        if reader != __name__ and (not reader.startswith("torch.") or reader.startswith("torch.nn.utils")):
            raise reknit.WrongOrder(f"{gradients.names[id(parameter)]}.grad: expected step.reduce() or step.clip_grad_norm_() before it is "
                                    "read, for it is not summed over the processes yet")
    return GRAD.__get__(parameter)
