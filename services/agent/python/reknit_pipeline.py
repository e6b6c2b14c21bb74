"""Pipeline-parallel and data-parallel training with PyTorch, elastic: processes fail, leave and join.

    job = reknit_pipeline.join(build, LAYERS, AdamW, between=(CONTEXT, WIDTH), batch=64, micro_batch=4, steps=1000)
    for step in job.steps():
        for task in step.tasks:                 # passes of micro-batches through the layers of this process
            backward(step, task) if task.backward else forward(step, task)
        if step.commit():                       # False: the step was given up, and comes again
            print(step.index + 1, step.loss)

A model is a row of layers, and build(n) makes one of them. Each process holds the layers of its stage and no others: with
an optimizer of its own a layer is a unit of the state, which moves from process to process as the plan wants it. The
plan says who passes what to whom, what is rerouted from a lost process included. The gate, the store and what
happens without an agent are as in reknit_torch.py.

It needs reknit_torch.py with what that needs, and reknit_routes.py beside it. It is tested with gloo on the CPU.
"""

import collections
import hashlib
import math
import time

import torch

import reknit
import reknit_group
import reknit_profile
import reknit_routes
import reknit_state
import reknit_torch

Layer = collections.namedtuple("Layer", "module state")


def join(build, count, optimizer, between, batch, micro_batch, steps, data="", backend="gloo", **job):
    """Asks for a place in the training of a model of so many layers, and returns a Job.

    build(n) makes layer n, of random numbers that depend on n alone. optimizer(parameters) makes a layer's optimizer.
    Activations between two layers have the shape (samples, *between) and the type of the parameters. The other arguments
    are those of reknit_torch.join; kind, stages, pipelines and layers are fields of the job, as in events.Job.
    """
    reknit.expect_whole("micro_batch", micro_batch, 1)
    try:
        layers = Layers(build, count, optimizer)
    except TypeError as error:
        raise reknit.mistaken(TypeError, str(error)) from None
    backend = reknit_torch.checked(backend, layers.device, steps)
    if layers.has_own_buffers:
        job.setdefault("replicas", "alike")
    job.setdefault("layers", layers.profiles(micro_batch * math.prod(between)))
    plane = reknit.join(units=layers.sizes, batch=batch, micro_batch=micro_batch, total_steps=steps, lazy=True,
                        digest=f"{reknit_group.DATA_PLANE} {layers.digest} {data} {batch} {micro_batch}", first_state=layers.first,
                        state="mapped" if layers.mapped else "copied", **{"kind": "pipeline", **job})
    layers.memories, layers.spoil = plane.units, plane.spoil
    return Job(plane, layers, backend, between)


class Job(reknit_torch.Job):
    """A process's part in a training."""

    def __init__(self, plane, layers, backend, between):
        super().__init__(plane, layers, backend)
        self.between = between

    def _regroup(self, turn):
        self.state.train(reknit_routes.layers_of(turn.plan, turn.nodes[turn.rank]))
        super()._regroup(turn)
        node = turn.nodes[turn.rank]
        self.ranks = {name: rank for rank, name in enumerate(turn.nodes)}
        self.schedule = reknit_routes.tasks(turn.plan, node)
        self.sums = reknit_routes.sums(turn.plan, node)

    def _profile(self):
        layers = [(n, self.state.held[n]) for n in self.state.trained]
        return reknit_profile.Profile([(n, layer.module) for n, layer in layers], self.state.trained,
                                      sum(layer.state.static_bytes() for _, layer in layers),
                                      layers[0][1].state.gradients.loss.device)

    def _step(self, turn):
        return Step(self, turn)


class Step(reknit_torch.AnyStep):
    """A step of the training, and this process's part in it."""

    def __init__(self, job, turn):
        self.index, self.generation = turn.index, turn.generation
        self.rank, self.world = turn.rank, turn.world
        self.layers = {n: job.state.held[n].module for n in job.state.trained}
        self.loss = None  # mean of the batch, once it is summed; nan of a step that was not made here
        self._job, self._turn, self._group = job, turn, job._group
        self._sends = []  # that may be under way: nobody waits for one, and the sum of the loss shows that all have come
        self._share = turn.micro_batch / turn.batch  # of a micro-batch in the step's gradient
        self._left = len(job.schedule)
        self._count = len(job.state.sizes)
        self._states = {n: job.state.held[n].state for n in job.state.trained}
        for state in self._states.values():
            state.gradients.open()
            state.begin(turn.learning_rate_scale)
        self._like = state.gradients.buckets[-1].sums  # of the type and on the device of what comes and goes
        self._lost = torch.zeros_like(self._like[:1])  # loss of this process's micro-batches

    @property
    def tasks(self):
        """The passes of this process, in the plan's order. They end early where the step is given up.

        A pass is yielded when its input is there, and what it leaves as its output goes on afterwards.
        """
        passes = {}
        self._turn.computing()
        for task in self._job.schedule:
            place = (task.micro_batch, task.hop)
            now = Pass(task, self._samples(task), passes.pop(place, None))
            if self._turn.aborted or not self._tried(lambda: self._receive(task, now)):
                return
            began = time.monotonic()
            if self._job.profile.active:
                yield from self._measured(now)
            else:
                yield now
            self._turn.measured(not task.backward, time.monotonic() - began)
            if not self._tried(lambda: self._send(task, now)):
                return
            if not task.backward:
                passes[place] = now
            self._left -= 1
        self._turn.computing(False)

    def _measured(self, now):
        """Yields a pass, and has what it takes measured."""
        self._job.profile.start(now.backward)
        complete = False
        try:
            yield now
            complete = True
        finally:
            self._job.profile.stop(complete)

    def _samples(self, task):
        first = self._turn.consumed + task.micro_batch * self._turn.micro_batch
        return range(first, first + self._turn.micro_batch)

    def _receive(self, task, now):
        if task.source is not None:
            now.input = self._like.new_empty((self._turn.micro_batch, *self._job.between))
            with self._turn.waiting():
                self._group.receive(now.input, self._job.ranks[task.source], self._tag(task, task.hop))

    def _send(self, task, now):
        if task.target is None:
            return
        if now.output is None:
            raise reknit.WrongOrder(f"step {self.index}: expected an output of {task}, for {task.target} waits for it")
        output = now.output.detach().contiguous()
        to = task.hop + (-1 if task.backward else 1)
        self._sends.append(self._group.send(output, self._job.ranks[task.target], self._tag(task, to)))

    def _tag(self, task, hop):
        """Returns the tag of what goes to a hop of a micro-batch, unlike all others of the step."""
        return 2 * (task.micro_batch * len(self._job.state.sizes) + hop) + task.backward

    def backward(self, loss):
        """Goes backward from the mean loss of a micro-batch."""
        loss = reknit_torch.one_number(loss) * self._share
        loss.backward()
        self._lost.add_(loss.detach())

    def reduce(self):
        """Sums the gradients of each layer over the processes that hold it, and the loss. commit does it, too."""
        if self.loss is None:
            self._tried(self._sum)

    def _sum(self):
        if self._left:
            if self._turn.aborted or self._turn.given_up:
                raise reknit.StepAborted(f"step {self.index} is given up")
            raise reknit.WrongOrder(f"step {self.index}: expected all of step.tasks to be run, {self._left} are left")
        for state in self._states.values():
            state.check()
        with self._turn.waiting():
            self._sum_layers()
            self._group.sum(self._lost)
        self._sends.clear()
        for state in self._states.values():
            state.gradients.show()
            if not self._ended:
                state.gradients.watch()
        self.loss = self._lost.item()

    def _sum_layers(self):
        for layers, nodes in self._job.sums:
            ranks = [self._job.ranks[node] for node in nodes]
            for bucket in [bucket for n in layers for bucket in self._states[n].gradients.buckets]:
                reknit_group.add_up(self._group, bucket.sums, ranks, self.rank, self._sends)

    def clip_grad_norm_(self, max_norm, norm_type=2.0):
        """Scales the gradients of the whole batch and all layers, as torch.nn.utils.clip_grad_norm_ does, and returns what their norm was.

        The norms of a process's layers go to all others, those of a layer from one of its holders.
        """
        self.reduce()
        own = [parameter.grad for n in self._first_held() for parameter in self._states[n].gradients.parameters]
        norms = torch.zeros(self.world, dtype=torch.float64, device=self._like.device)
        if own:
            each = torch.stack([torch.linalg.vector_norm(gradient.double(), norm_type) for gradient in own])
            norms[self.rank] = torch.linalg.vector_norm(each, norm_type)
        if self.loss is not None and not self._tried(lambda: self._sum_norms(norms)):
            self.loss = None
        total = torch.linalg.vector_norm(norms, norm_type)
        scale = (max_norm / (total + 1e-6)).clamp(max=1.0)
        for state in self._states.values():
            for parameter in state.gradients.parameters:
                parameter.grad.mul_(scale.to(parameter.grad.dtype))
        return total.to(self._like.dtype)

    def _sum_norms(self, norms):
        with self._turn.waiting():
            self._group.sum(norms)

    def _first_held(self):
        """Returns the layers of this process that no other one of a lower rank holds."""
        lower = {n for layers, nodes in self._job.sums if min(self._job.ranks[node] for node in nodes) < self.rank for n in layers}
        return [n for n in self._states if n not in lower]

    def _tried(self, part):
        made = super()._tried(part)
        if not made:
            self._sends.clear()  # for the error's traceback keeps the list
        return made


class Pass:
    """A micro-batch on its way through layers of this process.

    Forward: the input is what came from the layer before, None at the first one, and the output goes to the next; the
    last one has none, but a loss. Backward: the input is the gradient of that output, and the output the gradient of
    that input; forward is the other pass, on which the script may keep what it needs.
    """

    def __init__(self, task, samples, forward):
        self.layers, self.samples, self.backward, self.forward = task.layers, samples, task.backward, forward
        self.begins, self.ends = task.before is None, task.after is None  # at the first layer, and at the last
        self.input = self.output = None


class Layers:
    """The layers of a model, of which this process holds some. The state of layer n is unit n."""

    def __init__(self, build, count, optimizer):
        self.build, self.optimizer = build, optimizer
        self.memories = []  # of the units
        self.spoil = lambda: None  # as a state has it
        self.held, self.trained = {}, range(0)  # by number; what was trained before is held until a step is made without it
        self._there = set()  # units whose memory has what is to be gone on from
        self.taken = 0  # times that state came from others
        self._told = set()  # of settings that this replaced
        self.has_own_buffers = False
        self.sizes, self._parameters, digests, firsts = [], [], [], []
        for n in range(count):
            layer = self._make(n)  # one at a time: all of them may be more than this process can hold
            self.sizes += layer.state.sizes
            self._parameters.append(sum(p.numel() * p.element_size() for p in layer.module.parameters()))
            digests.append(layer.state.digest(""))
            self.has_own_buffers |= any(map(reknit_torch.has_own_buffers, layer.module.modules()))
            firsts.append(layer.state.first())
        self.mapped, self.device = layer.state.mapped, layer.state.gradients.loss.device
        self.digest = hashlib.sha256(" ".join(digests).encode()).hexdigest()
        self.first = hashlib.sha256(" ".join(firsts).encode()).hexdigest()
        self._number_bytes = layer.state.gradients.buckets[-1].sums.element_size()

    def _make(self, n):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(n)
            module = self.build(n)
        state = reknit_state.State(module, self.optimizer(module.parameters()), unit_bytes=math.inf)
        state.told = self._told
        return Layer(module, state)

    def profiles(self, numbers):
        """Returns what the planner is told of each layer, of which so many numbers go to the next.

        How long they take is measured in the first steps, and all are taken to be equal until then."""
        return [{
            "parameterBytes": parameters, "optimizerBytes": size - parameters, "gradientBytes": parameters,
            "outputBytes": numbers * self._number_bytes,
        } for parameters, size in zip(self._parameters, self.sizes)]

    def train(self, numbers):
        """Makes these layers what is trained from now on, of what is in their units."""
        self.trained = numbers
        for n in set(numbers) - set(self.held):
            self.held[n] = self._make(n)
            self.held[n].state.spoil = self.spoil
            self.held[n].state.settle([self.memories[n]])

    def give(self, units, step):
        """Writes units into their memory: those that live elsewhere, or a first state."""
        for n in units:
            if n not in self.held and n in self._there:
                continue
            layer = self.held.get(n) or self._make(n)
            layer.state.fill(layer.state.views(0, self.memories[n]))
            self._there.add(n)

    def adopt(self, step, took):
        """Goes on from a step, of which these units came from others."""
        self._there.update(took)
        self.taken += bool(took)
        for n in set(took) & set(self.held):
            self.held[n].state.adopt(step, [0])

    def apply(self, step):
        """Makes the step of this number, from 1, of the gradients that were summed. Layers that are not trained any more are let go."""
        for n in self.trained:
            self.held[n].state.apply(step)
        self.held = {n: self.held[n] for n in self.trained}
        self._there.intersection_update(self.trained)

    def set_aside(self):
        """Has the next undo bring back the layers as they are."""
        for n in self.trained:
            self.held[n].state.set_aside()

    def end(self):
        """Ends the last step of all."""
        for layer in self.held.values():
            layer.state.end()

    def keep(self):
        """Keeps the layers as they are: the step is made."""
        for n in self.trained:
            self.held[n].state.keep()

    def changed(self):
        """Returns the name of a parameter that was changed since the step began, or None."""
        return next(filter(None, (layer.state.changed() for layer in self.held.values())), None)

    def undo(self):
        """Makes the layers what they were before a step that is given up."""
        for n in self.trained:
            self.held[n].state.undo()
