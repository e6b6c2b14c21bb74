"""The state that an optimizer keeps: tensors of each parameter, which lie in units of the state, and everything else, which is encoded."""

import collections
import copy
import functools
import inspect

import torch



class Kept:
    """An optimizer's state.

    A slot is a tensor that the optimizer keeps of a parameter. It has a place in the state before the optimizer makes it: which
    slots there will be, a step of a copy shows. A slot that is not made yet is zero, and no part of optimizer.state: so an optimizer
    begins as it does in a script without Reknit, and a loaded checkpoint stays what it was.
    """

    def __init__(self, optimizer, names, where="optimizer"):
        """names are those of the model's parameters, by id."""
        self.optimizer, self.where = optimizer, where
        self.parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        others = sum(id(parameter) not in names for parameter in self.parameters)
        if others:
            raise TypeError(f"{where}: expected parameters of the model only, got {others} others: put all into one module")
        self.names = {id(parameter): names[id(parameter)] for parameter in self.parameters}
        self._grouped = self._groups()
        self.slots = {}  # by id of the parameter: tensors by name
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                self._find(parameter, group)

    def _groups(self):
        return [[id(parameter) for parameter in group["params"]] for group in self.optimizer.param_groups]

    def expect_groups(self):
        """Raises TypeError where other parameters are in the groups than at the join. O(parameters)."""
        if self._groups() != self._grouped:
            raise TypeError(f"{self.where}.param_groups: expected the parameters with which the process joined, got others: call "
                            "add_param_group before reknit_torch.join")

    def _find(self, parameter, group):
        own = self.optimizer.state.get(parameter, {})
        found = {name: kept for name, kept in own.items() if torch.is_tensor(kept)}
        if parameter.requires_grad and (not own or any(kept is None for kept in own.values())):  # a frozen one has no gradient, and gets no state
            made = {name: torch.zeros_like(kept) for name, kept in self._probe(parameter, group).items() if torch.is_tensor(kept)}
            found = {**made, **found}
        self.slots[id(parameter)] = {name: kept for name, kept in sorted(found.items()) if kept.numel()}

    def _probe(self, parameter, group):
        """Returns what a copy of the optimizer keeps of a parameter once it has made a step. TypeError: it cannot make one."""
        optimizer, kind = self.optimizer, type(self.optimizer)
        known = [base for base in kind.__mro__ if base.__module__.startswith("torch.optim") and base is not torch.optim.Optimizer]
        twin = torch.nn.Parameter(torch.zeros_like(parameter))
        twin.grad = torch.zeros_like(twin)
        probe = object.__new__(kind)
        vars(probe).update({name: collections.OrderedDict() if name.endswith("_hooks") else value for name, value in vars(optimizer).items()})
        probe.param_groups = [{**{name: copy.deepcopy(value) for name, value in group.items() if name != "params"}, "params": [twin]}]
        probe.state = collections.defaultdict(dict)
        try:
            (known or [kind])[0].step(probe)  # a subclass may do more than keep state
        except Exception as error:
            raise TypeError(f"{self.where}: expected one that makes a step with gradients of zero, or that has made its state before join, "
                            f"got {kind.__name__}, which says: {error}") from error
        return probe.state.get(twin, {})

    def collect(self):
        """Puts what the optimizer made since into its slots. O(slots)."""
        for parameter in self.parameters:
            own = self.optimizer.state.get(parameter, {})
            for name, slot in self.slots[id(parameter)].items():
                kept = own.get(name)
                if kept is not slot and torch.is_tensor(kept) and kept.shape == slot.shape and kept.dtype == slot.dtype:
                    slot.data.copy_(kept)
                    own[name] = slot

    def replaced(self):
        """Returns the name of a tensor in whose place another one is, or None."""
        for parameter in self.parameters:
            own = self.optimizer.state.get(parameter, {})
            for name, slot in self.slots[id(parameter)].items():
                if own.get(name, slot) is not slot and torch.is_tensor(own[name]):
                    return f"{self.where}.state: {name} of {self.names[id(parameter)]}"
        return None

    def names_of_slots(self):
        """Returns the names of the slots of each parameter that has some, by its name."""
        return {self.names[parameter]: list(slots) for parameter, slots in self.slots.items() if slots}

    def values(self):
        """Returns everything but the tensors in slots: settings, other values of parameters, and what belongs to none. O(slots)."""
        groups = [{name: value for name, value in group.items() if name != "params"} for group in self.optimizer.param_groups]
        unmade, rest = {}, {}
        for parameter in self.parameters:
            own, slots = self.optimizer.state.get(parameter, {}), self.slots[id(parameter)]
            lacking = [name for name, slot in slots.items() if own.get(name) is not slot]
            if lacking:
                unmade[self.names[id(parameter)]] = lacking
            if len(own) > len(slots) - len(lacking):
                rest[self.names[id(parameter)]] = {name: kept for name, kept in own.items() if kept is not slots.get(name, self)}
        others = {key if not torch.is_tensor(key) else f"(a tensor of the shape {list(key.shape)})": kept
                  for key, kept in self.optimizer.state.items() if not torch.is_tensor(key) or id(key) not in self.names}
        return {"param_groups": groups, "unmade": unmade, "state": rest, "others": others}

    def install(self, values):
        """Makes values those of the optimizer. The tensors in slots are what they are."""
        for group, new in zip(self.optimizer.param_groups, values["param_groups"]):
            for name in [name for name in group if name != "params" and name not in new]:
                del group[name]
            for name, value in new.items():
                group[name] = in_place(group.get(name), value)
        state, others = self.optimizer.state, values["others"]
        for key in [key for key in state if not torch.is_tensor(key) and key not in others]:
            del state[key]
        for key, value in others.items():
            state[key] = in_place(state.get(key), value)
        for parameter in self.parameters:
            name, slots = self.names[id(parameter)], self.slots[id(parameter)]
            made = {one: slot for one, slot in slots.items() if one not in values["unmade"].get(name, ())}
            own = {**made, **values["state"].get(name, {})}
            state.pop(parameter, None)
            if own:
                state[parameter].update(own)


def in_place(own, value):
    """Returns a value; where one's own is a tensor of the same kind or a dictionary, that one, with the value in it."""
    if torch.is_tensor(own) and torch.is_tensor(value) and own.shape == value.shape and own.dtype == value.dtype:
        own.data.copy_(value)
        return own
    if type(own) is dict and type(value) is dict:
        new = {name: in_place(own.get(name), one) for name, one in value.items()}
        own.clear()
        own.update(new)
        return own
    return value


def settings_of(optimizer):
    """Returns the settings of each group of parameters, without the last digits, in which machines may differ."""
    return [{name: _rounded(value) for name, value in group.items() if name != "params"} for group in optimizer.param_groups]


def _rounded(value):
    """Returns a list of one value, or of those in a list."""
    value = value.tolist() if hasattr(value, "tolist") else value  # of a tensor, wherever it is, or an array
    return [f"{one:.6g}" if isinstance(one, float) else one for one in (value if isinstance(value, (list, tuple)) else [value])]


def arguments_of(one):
    """Returns what an object's state has of the arguments with which it was made, but for last_epoch, by which a scheduler counts."""
    try:
        names, state = inspect.signature(type(one)).parameters, one.state_dict()
    except (TypeError, ValueError):  # a type of C tells no arguments
        return {}
    return {name: _rounded(state[name]) for name in names if name != "last_epoch" and isinstance(state, dict) and name in state}


def other_settings(own, now):
    """Yields a text for each setting that is not one's own any more, by the name of what has it: the state of others has brought it."""
    for where, before in own.items():
        for name in sorted(before.keys() & now[where].keys()):
            if before[name] != now[where][name]:
                yield (f"{name} of {where} is {', '.join(map(str, now[where][name]))}, as where the state came from, "
                       f"and not {', '.join(map(str, before[name]))}, as in this script")


FIXED = ("weight_decay", "eps")  # numbers that no schedule and no checkpoint changes


def fixed_settings_of(optimizer):
    """Returns what stays as it is while a job trains, of each group: a loaded checkpoint has rates, momenta and counts of its own.

    The gate compares all settings at each step (reknit_state.State.settings).
    """
    return [{name: value for name, value in rounded.items() if name in FIXED or isinstance(group[name], (bool, str, type(None)))}
            for group, rounded in zip(optimizer.param_groups, settings_of(optimizer))]


def apply(optimizer, scale, update=None):
    """Makes a step, by update() or the optimizer's step(), which has learning rates that are scaled.

    Each rate is put back where the optimizer leaves it as it was given. Everything else that an optimizer sets is its own.
    """
    own = vars(optimizer).get("step")
    step = optimizer.step

    @functools.wraps(step)
    def scaled(*arguments, **named):
        before = [group["lr"] for group in optimizer.param_groups]
        given = [rate * scale for rate in before]  # a tensor is not changed
        for group, rate in zip(optimizer.param_groups, given):
            group["lr"] = rate
        result = step(*arguments, **named)
        for group, rate, other in zip(optimizer.param_groups, before, given):
            if group["lr"] is other or not torch.is_tensor(other) and group["lr"] == other:
                group["lr"] = rate
        return result

    if scale == 1:
        (update or step)()
        return
    optimizer.step = scaled
    try:
        (update or scaled)()
    finally:
        del optimizer.step
        if own is not None:
            optimizer.step = own
