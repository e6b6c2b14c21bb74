"""Measures what each layer of a PyTorch model takes, in the first steps under a plan. Afterwards nothing of it is left in the model.

Seconds are those between marks: a layer begins where its forward is called and, on the way back, where the gradient of its
output is there. It lasts until the next one begins, or the pass ends. So what a pass does beside layers (the loss, say) counts
for the layer before it, all layers together take as long as the pass, and it does not matter how often a module is called,
whether it is frozen, compiled, or raises. Time that no mark tells of is dealt to the layers in equal parts.

Activations are the tensors that autograd keeps from forward to backward, each storage once, without the parameters.
"""

import collections
import sys
import time

import torch

WARM_STEPS = 2  # under a plan that are not measured: the first ones compile, and warm caches
MEASURED_STEPS = 5


class Profile:
    """Measures a process's layers under one plan, and its memory.

    modules are pairs of a layer's number and a module of it, numbers all of this process's layers, and static_bytes is how
    much of its memory is state and gradients. O(modules) a step while it measures, and nothing later.
    """

    def __init__(self, modules, numbers, static_bytes, device):
        self.modules, self.numbers, self.static_bytes, self.device = list(modules), list(numbers), static_bytes, device
        self.active = False
        self._steps = 0
        self._handles = []  # of what is to be removed from modules
        self._passes = []  # that came to their ends: whether backward, and the marks
        self._marks = None  # of the pass under way: pairs of a layer and when it began
        self._hooks = None  # that see which tensors autograd keeps
        self._kept = collections.Counter()  # bytes of activations by layer, of the pass under way
        self._storages = set()
        self._activations = collections.defaultdict(int)  # the most of any pass
        self._in_flight = self._most_in_flight = 0
        self._parameters = {storage_of(parameter).data_ptr() for _, module in self.modules for parameter in module.parameters()}

    def begin(self):
        """Begins a step."""
        self._drop()
        self._in_flight = 0
        if self._steps == WARM_STEPS and not self.active:
            self.active = True
            reset_peak(self.device)
            for number, module in self.modules:
                self._watch(number, module)

    def end(self, turn):
        """Ends a step that was made. After the last of those that are measured the turn tells what they took."""
        self._drop()
        self._steps += 1
        if self.active and self._steps == WARM_STEPS + MEASURED_STEPS:
            peak = peak_bytes(self.device)
            self.close()
            layers = self._costs()
            if layers:
                kept = self._most_in_flight * sum(layer["activationBytes"] for layer in layers)
                turn.profiled(layers, peak, max(0, peak - self.static_bytes - kept))
            self._passes = []

    def close(self):
        """Takes everything out of the modules again."""
        self.active = False
        self._drop()
        for remove in self._handles:
            remove()
        self._handles = []

    def start(self, backward=False, keeps=True):
        """Begins a pass. Kept tensors are only looked at where the same block of the script calls stop."""
        if self.active:
            self._drop()
            self._backward, self._marks = backward, [(None, now(self.device))]
            if keeps and not backward:
                self._hooks = torch.autograd.graph.saved_tensors_hooks(self._keep, _as_it_is)
                self._hooks.__enter__()

    def stop(self, complete=True):
        """Ends a pass, of which nothing counts unless it is complete."""
        if self._marks is not None and complete:
            self._passes.append((self._backward, [*self._marks, (None, now(self.device))]))
            self._in_flight += -1 if self._backward else 1
            self._most_in_flight = max(self._most_in_flight, self._in_flight)
            for number, size in self._kept.items():
                self._activations[number] = max(self._activations[number], size)
        self._drop()

    def turn_back(self):
        """Ends a forward pass, and begins the one backward, with what autograd keeps still looked at."""
        hooks, self._hooks = self._hooks, None
        self.stop()
        self.start(backward=True)
        self._hooks = hooks

    def pause(self):
        """Ends the pass backward. The time until the script's next micro-batch is no part of it."""
        hooks, self._hooks = self._hooks, None
        self.stop()
        self._hooks = hooks  # until stop, at the end of the script's block

    def _drop(self):
        """Forgets the pass under way."""
        self._marks = None
        self._kept.clear()
        self._storages.clear()
        hooks, self._hooks = self._hooks, None
        if hooks is not None:
            hooks.__exit__(None, None, None)

    def _watch(self, number, module):
        """Has the beginnings of a module's passes marked."""
        def before(*_):
            self._mark(number)

        def after(_, __, output):
            for tensor in tensors_in(output):
                if tensor.requires_grad and tensor.grad_fn is not None:
                    tensor.register_hook(before)  # goes with the tensor

        compiled = getattr(module, "_compiled_call_impl", None)
        if compiled is None:
            self._handles += [module.register_forward_pre_hook(untraced(before)).remove,
                              module.register_forward_hook(untraced(after)).remove]
            return

        def call(*args, **named):  # module.compile() would compile hooks along with the module
            before()
            output = compiled(*args, **named)
            after(module, args, output)
            return output

        module._compiled_call_impl = call
        self._handles.append(lambda: setattr(module, "_compiled_call_impl", compiled))

    def _mark(self, number):
        if not self.active:
            return  # of a tensor that outlived the measurement
        if self._marks is None:  # in a script whose samples come from a loader nobody else says when a pass begins
            self.start(keeps=False)
        self._marks.append((number, now(self.device)))

    def _keep(self, tensor):
        if self._marks is not None and not self._backward:
            storage = storage_of(tensor)
            if storage.data_ptr() not in self._storages and storage.data_ptr() not in self._parameters:
                self._storages.add(storage.data_ptr())
                first = self._marks[1][0] if len(self._marks) > 1 else self.numbers[0]
                number = self._marks[-1][0]
                self._kept[first if number is None else number] += storage.nbytes()
        return tensor

    def _costs(self):
        """Returns what a micro-batch took in each layer; nothing where there was no pass in some direction."""
        seconds, passes = {True: collections.Counter(), False: collections.Counter()}, collections.Counter()
        for backward, marks in self._passes:
            passes[backward] += 1
            own = [number for number, _ in marks[1:-1]]
            for at in range(len(marks) - 1):
                took = between(marks[at][1], marks[at + 1][1])
                numbers = own[max(0, at - 1):][:1] or self.numbers
                for number in numbers:
                    seconds[backward][number] += took / len(numbers)
        if not passes[True] or not passes[False]:
            return []
        return [{
            "forwardSeconds": float(f"{seconds[False][number] / passes[False]:.4g}"),
            "backwardSeconds": float(f"{seconds[True][number] / passes[True]:.4g}"),
            "activationBytes": self._activations[number],
        } for number in self.numbers]


class Nothing:
    """A profile before there is a plan."""

    active = False

    def close(self):
        """There is nothing to take out."""


def _as_it_is(tensor):
    return tensor


def storage_of(tensor):
    """Returns the memory of a tensor, which others may share."""
    return tensor.untyped_storage() if hasattr(tensor, "untyped_storage") else tensor.storage()  # before PyTorch 2


def untraced(function):
    """Returns a function that is called as it is where the module around it is compiled."""
    dynamo = sys.modules.get("torch._dynamo")  # to import it takes seconds
    return dynamo.disable(function) if dynamo is not None else function


def tensors_in(output):
    """Yields the tensors of what a module returns."""
    if torch.is_tensor(output):
        yield output
    elif isinstance(output, dict):
        for value in output.values():
            yield from tensors_in(value)
    elif isinstance(output, (list, tuple)):
        for value in output:
            yield from tensors_in(value)


def modules_with_parameters(module):
    """Yields modules that have parameters of their own. A compiled one is yielded whole: hooks within would be compiled, too."""
    if getattr(module, "_compiled_call_impl", None) is not None or type(module).__name__ == "OptimizedModule":
        if next(module.parameters(), None) is not None:
            yield module
        return
    if next(module.parameters(recurse=False), None) is not None:
        yield module
    for child in module.children():
        yield from modules_with_parameters(child)


def now(device):
    """Returns a moment: seconds on the CPU, and an event in the stream of a GPU, which is behind its script."""
    if device.type != "cuda":
        return time.perf_counter()
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def between(first, second):
    """Returns the seconds between two moments."""
    if isinstance(first, float):
        return second - first
    second.synchronize()
    return first.elapsed_time(second) / 1000


def reset_peak(device):
    """Has the peak of the memory begin anew."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        return
    try:
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
    except OSError:
        pass  # then the peak is that since the process began


def peak_bytes(device):
    """Returns the most memory that was in use: of the GPU, or of the process as the kernel counts it; zero: not known.

    Pages of files that are mapped do not count: libraries and memory-mapped data, which the kernel takes back where memory is short.
    """
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    try:
        with open("/proc/self/status") as file:
            size = {line.split(":")[0]: int(line.split()[1]) * 1024 for line in file if line.startswith(("Rss", "VmHWM"))}
        return max(size["VmHWM"] - size["RssFile"], size["RssAnon"] + size["RssShmem"])
    except (OSError, KeyError):
        return 0


def memory_bytes(device):
    """Returns how much memory a GPU has; zero of a CPU, for the agent knows the machine."""
    return torch.cuda.get_device_properties(device).total_memory if device.type == "cuda" else 0
