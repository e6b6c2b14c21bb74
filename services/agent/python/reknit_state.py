"""The state that a training step with PyTorch changes: a model, its optimizer and whatever else has a state, in units that move."""

import hashlib

import torch

import reknit
import reknit_optimizer
import reknit_values
from reknit_gradients import Gradients, unhide

UNIT_BYTES = 16 << 20  # of state in a unit, about: units are counted, and what moves is a unit
ALIGNMENT = 64  # bytes, of a tensor in its unit
LAYOUT = 3  # version of what lies where in the units: processes of another one are of another job
SPARE_BYTES = 16 << 10  # by which values may grow beyond four times what they take at the join


class State:
    """A model, its optimizer and other objects that have a state_dict, and the units in which their states lie.

    On the CPU parameters and the optimizer's tensors are views of the units' memory, so that nothing is copied. If some
    tensors are elsewhere, all are copied when a unit is given or taken. Tensors that share memory share it in the units.

    A script may change buffers, other modules and values before anybody knows whether the step is made, and while the agent copies
    units. So they lie in memory of their own, and in the units as they were after the last step: that is what others are given.
    Values (settings of the optimizer, what a scheduler counts, extra state) are encoded behind the tensors of the last unit.
    """

    def __init__(self, model, optimizer, others=None, ignore=(), mapped=None, unit_bytes=UNIT_BYTES):
        """others are objects with state_dict and load_state_dict by name; ignore has dotted names of what does not move."""
        self.model, self.optimizer = model, optimizer
        self.modules, self.kept, self.objects = {"model": model}, [], {}
        names = {id(parameter): name for name, parameter in model.named_parameters()}
        for name, one in {"optimizer": optimizer, **(others or {})}.items():
            if isinstance(one, torch.nn.Module):
                self.modules[name] = one
            elif hasattr(one, "param_groups"):
                self.kept.append(reknit_optimizer.Kept(one, names, name))
            else:
                self.objects[name] = one
        self.ignore = frozenset(ignore)
        self._joined = self._modes()
        self.gradients = Gradients(model.named_parameters())
        self.learning_rate_scale = 1.0  # of the plan
        self.update = None  # what makes a step of the gradients that are summed, where it is not the optimizer's step alone
        self._names = {}  # by id: names of tensors, as they stand in errors and in ignore
        self._extras = [each for where, module in self.modules.items() for each in self._extra(where, module)]
        tensors = list(self._tensors())
        self._memory = bytearray(self._room())  # of values, encoded
        self._values = torch.frombuffer(self._memory, dtype=torch.uint8)
        self._encode()
        self._lay_out(clusters_of([*tensors, self._values]), unit_bytes)
        on_cpu = all(tensor.device.type == "cpu" for tensor in tensors)
        self.mapped = on_cpu if mapped is None else mapped
        self.pairs = []  # by unit: pairs of a tensor and where it lies in the unit's memory, or its copy
        self._copies = {}  # by id, of tensors with memory of their own: the tensor, and as it was after the last step
        self._versions = []  # of the parameters when the step began
        self._made = []  # of the parameters when it was made, until what the script does behind it is kept
        self.taken = 0  # times that the state came from others
        self.told = set()  # of settings that this replaced; the layers of a pipeline have one
        self.spoil = lambda: None  # tells the agent that nobody may go on from what the units have
        self._adopted = []  # pairs of a tensor and what it was when the state was taken in the middle of a step

    def _tensors(self):
        """Yields all tensors that training changes, in the order in which they lie in units. Each has a name then."""
        for name, parameter in self.model.named_parameters():
            yield from self._named(f"model.{name}", parameter)
            for kept in self.kept:
                for slot, tensor in kept.slots.get(id(parameter), {}).items():
                    yield from self._named(f"{kept.where}.state.{name}.{slot}", tensor)
        for where, module in self.modules.items():
            known = {id(tensor) for tensor in (*module.parameters(), *module.buffers())}
            for name, value in module.state_dict(keep_vars=True).items():
                if id(value) in known:  # buffers that are not persistent are made anew from others, as where a checkpoint is loaded
                    yield from self._named(f"{where}.{name}", value)

    def _named(self, name, tensor):
        if id(tensor) in self._names or name in self.ignore or tensor.numel() == 0:
            return
        if tensor.layout != torch.strided or tensor.is_quantized or tensor.device.type == "meta":
            raise reknit_values.refusal(name, "a dense tensor", f"one of {tensor.layout} on {tensor.device.type}")
        self._names[id(tensor)] = name
        yield tensor

    def _lay_out(self, clusters, unit_bytes):
        self.units, self.sizes = [], []  # by unit: tuples of a tensor, its first byte and its strides; bytes
        parameters = {id(parameter) for parameter in self.model.parameters()}
        slots = {id(slot) for kept in self.kept for own in kept.slots.values() for slot in own.values()}
        self._in_place = set()  # ids of tensors that become views of the units' memory
        for size, tensors in clusters:
            if not self.units or self.sizes[-1] >= unit_bytes:
                self.units.append([])
                self.sizes.append(0)
            self.units[-1] += [(tensor, self.sizes[-1] + at, stride) for tensor, at, stride in tensors]
            if any(id(tensor) in parameters or id(tensor) in slots for tensor, _, _ in tensors):
                self._in_place.update(id(tensor) for tensor, _, _ in tensors)
            self.sizes[-1] += -(-size // ALIGNMENT) * ALIGNMENT

    # Values

    def _tree(self):
        """Returns the values of everything, by name."""
        tree = {kept.where: kept.values() for kept in self.kept}
        tree.update((name, module.get_extra_state()) for name, module in self._extras)
        tree.update((name, one.state_dict()) for name, one in self.objects.items())
        return tree

    def _room(self):
        """Returns for how many bytes of values there is room: as many after a checkpoint was loaded as before the first step."""
        tree = self._tree()
        for kept in self.kept:
            tree[kept.where]["unmade"] = kept.names_of_slots()
        return 1 << (4 * reknit_values.room(tree) + SPARE_BYTES).bit_length()

    def _extra(self, where, module):
        """Yields the modules within one that have an extra state, with their names. TypeError: its state_dict makes something else."""
        extras = {f"{name}._extra_state".lstrip("."): one for name, one in module.named_modules()
                  if type(one).get_extra_state is not torch.nn.Module.get_extra_state}
        known = {id(tensor) for tensor in (*module.parameters(), *module.buffers())}
        for name, value in module.state_dict(keep_vars=True).items():
            if id(value) not in known and name not in extras and f"{where}.{name}" not in self.ignore:
                raise reknit_values.refusal(f"{where}.{name}", "a parameter, a buffer or an extra state", "what its state_dict made")
        return [(f"{where}.{name}", one) for name, one in extras.items()]

    def _encoded(self):
        """Returns the bytes of all values. TypeError names one that cannot move."""
        tree = self._tree()
        data, most = reknit_values.Encoder(self.ignore).encode(tree), len(self._memory)
        if len(data) > most:
            largest = max(tree, key=lambda name: reknit_values.room(tree[name]))
            raise TypeError(f"{largest}: expected values of {most} bytes in all, four times what they took at the join, got {len(data)}: "
                            "bound what grows there, or keep its tensors in a module that is given to join by name")
        return data

    def _collect(self):
        for kept in self.kept:
            kept.collect()

    def _encode(self):
        """Encodes the values as they are now."""
        self._memory[:] = self._encoded().ljust(len(self._memory), b"\0")

    def _decode(self):
        """Makes the values what is encoded. TypeError names an object that does not take what another one gave."""
        data = bytes(self._memory)
        if data.startswith(self._encoded()):
            return
        for kept in self.kept:
            kept.expect_groups()
        self._install(data)
        if not data.startswith(self._encoded()):
            own, given = self._tree(), reknit_values.decode(data, self._tree())
            encode = reknit_values.Encoder(self.ignore).encode
            name = next(name for name in own if encode(own[name], name) != encode(given[name], name))
            raise reknit_values.refusal(name, "to have what its load_state_dict was given", "something else")

    def _install(self, data):
        """Makes the values what they are in these bytes."""
        tree = reknit_values.decode(data, self._tree())
        for kept in self.kept:
            kept.install(tree[kept.where])
        for name, module in self._extras:
            if name not in self.ignore:
                module.set_extra_state(tree[name])
        for name, one in self.objects.items():
            if name not in self.ignore:
                one.load_state_dict(tree[name])

    # Units

    def static_bytes(self):
        """Returns how much memory the state and its gradients take."""
        return sum(self.sizes) + sum(bucket.sums.numel() * bucket.sums.element_size() for bucket in self.gradients.buckets)

    def digest(self, data):
        """Returns what is equal in all processes of a job whenever they join, and in no others."""
        place = {id(parameter): n for n, parameter in enumerate(self.model.parameters())}
        fixed = reknit_optimizer.fixed_settings_of(self.optimizer)
        words = [data, LAYOUT, type(self.optimizer).__name__, fixed, sorted(self.ignore), self.sizes]
        words += [[place[id(parameter)] for parameter in group["params"]] for group in self.optimizer.param_groups]
        words += [(self._names.get(id(tensor), ""), tuple(tensor.shape), tensor.dtype, at) for unit in self.units for tensor, at, _ in unit]
        return hashlib.sha256(repr(words).encode()).hexdigest()

    def first(self):
        """Returns what is equal where processes begin with equal states and settings."""
        sums = hashlib.sha256(repr(reknit_optimizer.settings_of(self.optimizer)).encode())
        for unit, size in enumerate(self.sizes):
            memory = bytearray(size)
            self.fill(self.views(unit, memory))
            sums.update(memory)
        return sums.hexdigest()

    def settings(self):
        """Returns a number that tells the optimizer's settings, which modes changed since the join, and what the script made of the gradients
        from others. Its square is exact in sums of 32768 processes. It is as in versions that knew of the optimizer alone if no mode and
        no gradient changed."""
        words = reknit_optimizer.settings_of(self.optimizer)
        changed = [sorted(now ^ before) for now, before in zip(self._modes(), self._joined)]
        if any(changed):
            words = [words, *changed]
        gradients = self.gradients.changed()
        if gradients is not None:
            words = [words, gradients]
        return int.from_bytes(hashlib.sha256(repr(words).encode()).digest()[:3], "big")

    def _modes(self):
        """Returns which parameters are frozen, and which modules evaluate, by their numbers."""
        return ({n for n, parameter in enumerate(self.model.parameters()) if not parameter.requires_grad},
                {n for n, module in enumerate(self.model.modules()) if not module.training})

    def views(self, unit, memory):
        """Returns pairs of a tensor of the unit and where it lies in the unit's memory."""
        pairs = []
        for tensor, at, stride in self.units[unit]:
            flat = torch.frombuffer(memory, dtype=tensor.dtype, count=span_of(tensor.shape, stride), offset=at)
            pairs.append((tensor, flat.as_strided(tensor.shape, stride)))
        return pairs

    def fill(self, pairs):
        """Copies tensors, as they were after the last step, to where they lie in a unit."""
        if not self._versions:  # no step is under way
            self._collect()
            self._encode()
            self._after_step(self._values).copy_(self._values)
        for tensor, view in pairs:
            view.copy_(self._after_step(tensor))

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
                if self.mapped and id(tensor) in self._in_place:
                    tensor.data = view
                else:
                    tensor.data.copy_(view)
                if id(tensor) not in self._in_place:
                    self._copies[id(tensor)] = tensor, view if self.mapped else tensor.data.clone()
            self.pairs.append(pairs)
        self._decode()

    def give(self, units, step):
        """Copies units into their memory. It is asked for where they lie elsewhere."""
        for unit in units:
            self.fill(self.pairs[unit])

    def adopt(self, step, took):
        """Goes on from a step, of which these units came from others."""
        for unit in () if self.mapped else took:
            for tensor, view in self.pairs[unit]:
                self._after_step(tensor).copy_(view)
        own = self._all_settings()
        if took:
            self._versions, self.taken = [], self.taken + 1
        self.undo()
        if took and self.taken == 1:
            for told in sorted(set(reknit_optimizer.other_settings(own, self._all_settings())) - self.told):
                self.told.add(told)
                reknit.say(f"reknit: {told}: a job's settings move with its state. To change one, set it from step.index before step.commit()")

    def _all_settings(self):
        """Returns the settings of what moves, by the name of what has them."""
        groups = {f"{kept.where}.param_groups[{n}]": group for kept in self.kept
                  for n, group in enumerate(reknit_optimizer.settings_of(kept.optimizer))}
        return {**groups, **{name: reknit_optimizer.arguments_of(one) for name, one in self.objects.items() if name not in self.ignore}}

    def set_aside(self):
        """Has the next undo bring back the state as it is: taken from others, who have done with the step all that their scripts do."""
        self._adopted = [(tensor, tensor.data.clone()) for pairs in self.pairs for tensor, _ in pairs if id(tensor) in self._in_place]

    def _after_step(self, tensor):
        return self._copies[id(tensor)][1] if id(tensor) in self._copies else tensor.data

    # Steps

    def begin(self, learning_rate_scale):
        """Begins a step, of which the plan scales the learning rate."""
        self.learning_rate_scale, self.update = learning_rate_scale, None
        self._versions, self._made = self._parameter_versions(), []

    def _parameter_versions(self):
        return [parameter._version for parameter in self.model.parameters()]

    def buffer_versions(self):
        """Returns how often each buffer of the model that moves was changed, by name."""
        return {self._names[id(buffer)]: buffer._version for buffer in self.model.buffers() if id(buffer) in self._copies}

    def end(self):
        """Ends the last step of all."""
        unhide(self.gradients)

    def keep(self):
        """Keeps everything as it is: the step is made."""
        self._made = []
        self._encode()
        for tensor, copy in self._copies.values():
            copy.copy_(tensor.data)

    def undo(self):
        """Makes everything what it was before a step that is given up."""
        self.gradients.release()
        self.check_parameters()
        for tensor, copy in [*self._copies.values(), *self._adopted]:
            tensor.data.copy_(copy)
        self._decode()  # a copy that is made where the script ends has the values of before as long as the step counts as under way
        self._adopted, self._versions, self._made = [], [], []

    def apply(self, step):
        """Makes the step of this number, from 1, of the gradients that were summed."""
        reknit_optimizer.apply(self.optimizer, self.learning_rate_scale, self.update)
        self.update = None
        self._collect()
        self.gradients.release()
        self._versions = []
        self.keep()
        self._made = self._parameter_versions()

    def check(self):
        """Raises an error where a script has changed what only a step may change, or keeps what cannot move."""
        self.check_parameters()
        self.check_tensors()
        self._encoded()

    def check_tensors(self):
        """Raises TypeError where training would change another tensor than those with which the process joined."""
        for kept in self.kept:
            kept.expect_groups()
        replaced = next(filter(None, (kept.replaced() for kept in self.kept)), None) or self._moved()
        if replaced:
            raise TypeError(f"{replaced}: expected the tensors with which the process joined, got another one: put values into "
                            "them (copy_), and load checkpoints before reknit_torch.join")

    def check_parameters(self):
        """Raises WrongOrder where a parameter was changed since the step began."""
        if self._versions and (name := self.changed()):
            self.spoil()
            raise reknit.WrongOrder(f"model.{name}: expected it as it was when the step began, but it was changed before step.commit(): "
                                    "change parameters after step.commit(), or in the function that step.commit(update) calls")

    def changed(self):
        """Returns the name of a parameter that was changed since the step began, or was made and what came behind it is not kept; or None."""
        for (name, parameter), version in zip(self.model.named_parameters(), self._versions or self._made):
            if parameter._version != version:
                return name
        return None

    def _moved(self):
        """Returns the name of a parameter or buffer that is another one than at the join, or of a new parameter; or None."""
        now = {id(value) for module in self.modules.values() for value in (*module.parameters(), *module.buffers())}
        slots = {id(slot) for kept in self.kept for own in kept.slots.values() for slot in own.values()}
        for pairs in self.pairs:
            for tensor, view in pairs:
                if tensor is self._values:
                    continue
                gone = id(tensor) not in now and id(tensor) not in slots
                if gone or self.mapped and id(tensor) in self._in_place and tensor.data_ptr() != view.data_ptr():
                    return self._names[id(tensor)]
        for name, parameter in self.model.named_parameters():
            if id(parameter) not in self._names and f"model.{name}" not in self.ignore and parameter.numel():
                return f"model.{name}"  # nobody would sum its gradients
        return None


def span_of(shape, stride):
    """Returns how many elements lie between the first one of a tensor and its last, both included."""
    return 1 + sum((size - 1) * step for size, step in zip(shape, stride))


def clusters_of(tensors):
    """Returns the memory that tensors need, in their order: pairs of bytes, and of tuples (tensor, first byte, strides).

    Tensors whose bytes overlap share memory, and are of one cluster. One that stands alone lies there without gaps.
    O(n log n).
    """
    spans = []
    for order, tensor in enumerate(tensors):
        first = tensor.data_ptr()
        spans.append((tensor.device.type, str(tensor.device), first, first + span_of(tensor.shape, tensor.stride()) * tensor.element_size(), order))
    spans.sort()
    found, end = [], None
    for *device, first, last, order in spans:
        if end is not None and end[0] == device and first < end[1]:
            found[-1].append((first, last, order))
            end = device, max(end[1], last)
        else:
            found.append([(first, last, order)])
            end = device, last
    clusters = []
    for members in sorted(found, key=lambda members: min(order for _, _, order in members)):
        begin = members[0][0]
        own = sorted((order, tensors[order], first - begin) for first, _, order in members)
        if len(own) == 1:
            tensor = own[0][1]
            clusters.append((tensor.numel() * tensor.element_size(), [(tensor, 0, dense_strides(tensor))]))
        else:
            clusters.append((max(last for _, last, _ in members) - begin, [(tensor, at, tensor.stride()) for _, tensor, at in own]))
    return clusters


def dense_strides(tensor):
    """Returns the strides of a tensor without gaps: its own where it has none (channels_last, say), or else those of C."""
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape)):
        if size > 1 and stride != expected:
            return torch.empty(tensor.shape, device="meta").stride()
        expected *= size
    return tensor.stride()
