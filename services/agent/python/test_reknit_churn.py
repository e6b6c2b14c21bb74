"""Drawn trainings equal a plain loop of PyTorch, through kills, joins, leaves, broken steps and gates that only some processes passed.

Processes are threads, of which one runs at a time: it hands on where it waits for others. Their agents and their sums are made here; the
state, gradients, the gate and the loop are those of the product. Numbers have 64 bits, and equal is to 1e-7: micro-batches are
added up in another order than in one process, which changes a gradient by 1e-16 of it, and Adam divides by gradients that are small.

    REKNIT_DRAWN=2000 python3 -m unittest test_reknit_churn
"""

import contextlib
import copy
import functools
import io
import os
import random
import threading
import unittest
import unittest.mock

try:
    import torch

    import reknit
    import reknit_torch
    from test_reknit_moves import CountingAdamW, GlobalAdamW, Lazy, SCHEDULERS
except ImportError as missing:
    raise unittest.SkipTest(f"PyTorch is not installed: {missing}")

DRAWN = int(os.environ.get("REKNIT_DRAWN", "40"))
FIRST = int(os.environ.get("REKNIT_FIRST", "1"))
BATCH, MICRO_BATCH, STEPS = 8, 2, 6
FAULTS = ["kill", "join", "leave", "break", "gate", "gate and join", "restart"]
BETWEEN = ("join", "leave", "restart")  # faults that come between two steps
OPTIMIZERS = [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.NAdam, torch.optim.RMSprop, torch.optim.Adagrad,
              CountingAdamW, GlobalAdamW, Lazy]


class Killed(BaseException):
    """The end of a process, which nothing in it may catch."""


class Cluster:
    """Processes under plans: who trains, what is summed, and what breaks in which step."""

    def __init__(self, script, faults, dice):
        self.script, self.faults, self.dice = script, dict(faults), dice
        self.baton, self.running = threading.Condition(), None
        self.members, self.threads, self.errors = [], [], []
        self.generation = self.order = self.done = self.aborted = 0
        self.fault, self.sums, self.happened = "", {}, []
        self.snapshot = None  # the units of all, where nobody lives who had them

    def run(self, count):
        """Trains to the end with so many processes at first, and returns what each that came there has."""
        self.results, self.running = [], threading.current_thread()
        for _ in range(count):
            self.add()
        with self.baton:  # nobody trains before all are there
            self.running = None
            self.baton.notify_all()
        for thread in self.threads:  # it grows
            thread.join(120)
        if self.errors:
            raise self.errors[0]
        return self.results

    def add(self):
        member = Agent(self)
        self.members.append(member)
        self.threads.append(threading.Thread(target=self.live, args=(member,), daemon=True))
        self.threads[-1].start()

    def live(self, member):
        self.wait(lambda: True)
        try:
            self.results.append(self.script(member))
        except (Killed, reknit.Left):
            pass
        except BaseException as error:  # the test raises it
            self.errors.append(error)
        if member in self.members:
            self.members.remove(member)
        with self.baton:
            self.running = None
            self.baton.notify_all()

    def wait(self, ready):
        """Lets others run until it is the caller's turn, and ready."""
        me = threading.current_thread()
        with self.baton:
            if self.running is me:
                self.running = None
                self.baton.notify_all()
            if not self.baton.wait_for(lambda: self.running is None and (ready() or self.errors), 60):
                raise AssertionError(f"nobody goes on: {self.happened}")
            self.running = me
        if self.errors:
            raise Killed

    def decide(self):
        """Gives orders once all have reported: to make up a step, to take the state of others, or to train the next one."""
        if self.snapshot:
            done, units = self.snapshot
            self.snapshot = None
            for member in self.members:
                member.takes(done, units)
            return
        done = max(member.report["done"] for member in self.members)
        behind = [member for member in self.members if member.report["done"] < done or member.job.plane.done < done]
        ahead = next(member for member in self.members if member not in behind)
        for member in behind:
            if member.report.get("ready") and member.report["done"] == done - 1:
                member.orders.append({"order": "apply", "step": done})
            else:
                member.takes(done, ahead.gives(done))
        if not behind and not self.change(done):
            self.begin(done)

    def change(self, done):
        """Begins the next plan, and returns whether somebody is still to come for it."""
        fault = self.fault if "join" in self.fault else self.faults.get(done, "") if self.faults.get(done) in BETWEEN else ""
        if self.faults.get(done) in BETWEEN:
            del self.faults[done]
        self.fault = ""
        if fault == "restart":
            self.happened.append((done, "restarted"))
            self.snapshot = done, self.members[0].gives(done)
            for member in self.members:
                member.orders.append({"order": "die"})
            for _ in range(self.dice.randint(1, 2)):
                self.add()
            return True
        if "join" in fault:
            self.happened.append((done, "joined"))
            self.add()
            return True
        if fault == "leave" and len(self.members) > 1:
            self.happened.append((done, "left"))
            gone = self.members.pop(self.dice.randrange(len(self.members)))
            gone.orders.append({"order": "left"})
        return False

    def begin(self, done):
        self.generation += 1  # a plan a step: it is new, or it might be
        self.order += 1
        self.sums = {}
        self.fault = self.faults.pop(done, "") if done < STEPS else ""
        self.victim = self.dice.randrange(len(self.members))
        parts = self.dice.choices(range(len(self.members)), k=BATCH // MICRO_BATCH)
        bounds = [sum(part < rank for part in parts) * MICRO_BATCH for rank in range(len(self.members) + 1)]
        for rank, member in enumerate(self.members):
            own = [[bounds[rank], bounds[rank + 1]]]
            member.orders.append({"order": "finished"} if done == STEPS else {
                "order": "step", "index": done, "generation": self.generation, "switched": True, "resume": done, "rank": rank,
                "world": len(self.members), "nodes": [""] * len(self.members), "samples": own, "consumed": done * BATCH, "batch": BATCH,
                "microBatch": MICRO_BATCH, "weight": (own[0][1] - own[0][0]) / BATCH})

    def strike(self, member, gate):
        """Has the fault of a step happen, where a member waits for a sum."""
        rank = self.members.index(member)
        if self.fault == "kill" and rank == self.victim and len(self.members) > 1:
            self.happened.append((self.order, "killed"))
            self.members.remove(member)
            self.aborted, self.fault = self.order, ""
            raise Killed
        if self.fault == "break" or self.fault == "kill" and len(self.members) == 1:
            self.happened.append((self.order, "broke"))
            self.aborted, self.fault = self.order, ""
        if gate and self.fault.startswith("gate") and rank > self.victim:
            self.happened.append((self.order, "gate broke"))
            member.broke = self.order


class Agent(reknit._Alone):
    """The agent of one process."""

    def __init__(self, cluster):
        super().__init__([1], BATCH, MICRO_BATCH, STEPS, lazy=False)
        self.cluster, self.orders, self.report, self.broke, self.job = cluster, [], None, 0, None

    def next(self, report, wait=True):
        self.report = report
        if not self.orders and all(member.report and not member.orders for member in self.cluster.members):
            self.cluster.decide()
        self.cluster.wait(lambda: self.orders or all(member.report and not member.orders for member in self.cluster.members))
        if not self.orders:
            return self.next(report)
        self.report, order = None, self.orders.pop(0)
        if order["order"] == "die":
            raise Killed
        return {"id": self.cluster.order, **order}

    def gives(self, done):
        """Returns what the units have, once a state that lies elsewhere is copied there."""
        if not self.job.state.mapped:
            self.job.state.give(range(len(self.job.plane.units)), done)
        return [bytes(unit) for unit in self.job.plane.units]

    def takes(self, done, units):
        """Has the process go on from the units of others."""
        for own, other in zip(self.job.plane.units, units):
            own[:] = other
        self.orders.append({"order": "adopt", "step": done, "took": list(range(len(units)))})

    def _give_up(self, step):
        """A sum looks by itself whether its step is given up."""

    def get(self, word):
        return max(self.cluster.aborted, self.broke) if word == reknit._ABORT else 0


class Group(reknit_torch.Group):
    """Sums over the processes of a plan."""

    connected = True

    def __init__(self, backend, store, rank, world):
        self.agent, self.count, self.order = store.plane._agent, 0, store.plane._agent.cluster.order

    def begin(self, tensor):
        self.count += 1
        self.agent.cluster.sums.setdefault((self.order, self.count), {})[self.agent] = tensor.clone()
        return Sum(self, tensor, (self.order, self.count))

    def finish(self, tensor):
        pass

    def abort(self):
        pass

    leave = abort


class Sum:
    """A sum that was begun."""

    def __init__(self, group, tensor, key):
        self.agent, self.tensor, self.key = group.agent, tensor, key

    def wait(self):
        cluster, (order, _) = self.agent.cluster, self.key
        cluster.strike(self.agent, gate=self.tensor.dtype == torch.int64)
        given, members = cluster.sums[self.key], list(cluster.members)
        cluster.wait(lambda: cluster.aborted >= order or all(member in given for member in members))
        if max(cluster.aborted, self.agent.broke) >= order:
            raise RuntimeError("Connection closed by peer")
        self.tensor.copy_(sum(given[member] for member in members))


class Drawn:
    """A training that a seed has drawn, as a plain loop and as a script with Reknit."""

    def __init__(self, seed):
        dice = self.dice = random.Random(seed)
        self.kind, self.schedule = dice.choice(OPTIMIZERS), dice.choice(SCHEDULERS)
        self.tied, self.frozen, self.rare = (dice.random() < 0.3 for _ in range(3))
        self.dropout, self.average, self.resumed, self.inside = (dice.random() < 0.5 for _ in range(4))
        self.clip = dice.choice([None, 0.05, 10.0])
        self.faults = {step: dice.choice(FAULTS) for step in range(STEPS) if dice.random() < 0.5}
        if any(fault == "gate and join" for fault in self.faults.values()):
            self.inside = True  # who follows a step behind its commit may be a call behind for who joins then: the page says so
        self.copied, self.groups = dice.random() < 0.3, dice.random() < 0.3  # the state lies elsewhere; two groups of parameters
        self.changed = dice.choice([{}, {"lr": 0.003}, {"weight_decay": 0.1}])  # settings, from a step on
        self.changed_at = dice.randrange(STEPS)

    def build(self, seed):
        torch.manual_seed(seed)
        layer = torch.nn.Linear
        model = torch.nn.ModuleDict({"one": layer(3, 4), "two": layer(4, 4), "three": layer(4, 4), "rare": layer(4, 4), "last": layer(4, 1)}).double()
        if self.tied:
            model["three"].weight.data = model["two"].weight.data
        trained = list(model.parameters())
        if self.groups:
            trained = [{"params": trained[:3], "lr": 0.02}, {"params": trained[3:]}]
        optimizer = self.kind(trained, lr=0.01, **({"momentum": 0.9, "dampening": 0.5} if self.kind is torch.optim.SGD else {}))
        scheduler = self.schedule(optimizer)
        average = torch.optim.swa_utils.AveragedModel(model, avg_fn=lambda mean, weight, _: torch.lerp(mean, weight, 0.2))
        if self.resumed:
            for step in range(2):
                self.loss_of(model, range(step, step + 2)).backward()
                optimizer.step()
                optimizer.zero_grad()
        model["one"].requires_grad_(not self.frozen)
        return model, optimizer, scheduler, average

    def loss_of(self, model, samples):
        numbers = torch.tensor(samples, dtype=torch.float64)
        x = model["one"](torch.stack([numbers.sin(), numbers.cos(), numbers % 3], 1)).tanh()
        if self.dropout:
            x = x * torch.bernoulli(torch.full_like(x, 0.8))
        x = model["three"](model["two"](x).tanh()).tanh()
        if self.rare and samples[0] % 16 == 14:
            x = x + model["rare"](x)
        return (model["last"](x) - numbers[:, None].cos()).square().mean()

    def change(self, optimizer, step):
        """Changes settings on purpose, as the page says: from the number of the step."""
        for group in optimizer.param_groups if step >= self.changed_at else ():
            group.update({name: value for name, value in self.changed.items() if name in group})

    def follow(self, scheduler, average, model):
        scheduler.step()
        if self.average:
            average.update_parameters(model)

    def plain(self):
        model, optimizer, scheduler, average = self.build(1)
        for step in range(STEPS):
            optimizer.zero_grad()
            self.change(optimizer, step)
            for first in range(step * BATCH, (step + 1) * BATCH, MICRO_BATCH):
                samples = range(first, first + MICRO_BATCH)
                torch.manual_seed(reknit_torch.seed_of(samples[0], len(samples)))
                (self.loss_of(model, samples) * MICRO_BATCH / BATCH).backward()
            if self.clip:
                torch.nn.utils.clip_grad_norm_(model.parameters(), self.clip)
            optimizer.step()
            self.follow(scheduler, average, model)
        return model, optimizer, scheduler, average

    def script(self, agent):
        """Trains as a process of a cluster; whoever joins later begins with other weights, which must not count."""
        model, optimizer, scheduler, average = built = self.build(1 if agent.cluster.done == 0 and not agent.cluster.order else 2)
        job = agent.job = reknit_torch.join(model, optimizer, batch=BATCH, micro_batch=MICRO_BATCH, steps=STEPS, scheduler=scheduler, average=average)
        job.plane._agent = agent

        def update():
            optimizer.step()
            self.follow(scheduler, average, model)
        for step in job.steps():
            self.change(optimizer, step.index)
            for samples in step.micro_batches:
                with step.seeded(samples):
                    step.backward(self.loss_of(model, samples))
            if self.clip:
                step.clip_grad_norm_(self.clip)
            if step.commit(update if self.inside else None) and not self.inside:
                self.follow(scheduler, average, model)
        return built


class Churn(unittest.TestCase):
    def equal(self, one, other, name=""):
        """Checks that two trees of values are equal, to the tolerance."""
        if torch.is_tensor(one):
            self.assertTrue(torch.allclose(one, other, rtol=1e-7, atol=1e-7), (name, one, other))
        elif isinstance(one, dict):
            self.assertEqual(set(one), set(other), name)
            for key in one:
                self.equal(one[key], other[key], f"{name}.{key}")
        elif isinstance(one, (list, tuple)):
            self.assertEqual(len(one), len(other), name)
            for at, pair in enumerate(zip(one, other)):
                self.equal(*pair, f"{name}.{at}")
        elif isinstance(one, float):
            self.assertAlmostEqual(one, other, places=7, msg=name)
        elif not callable(one):
            self.assertEqual(one, other, name)

    def test_drawn_trainings_equal_a_plain_loop_whatever_happens_to_their_processes(self):
        happened = []
        for seed in range(FIRST, FIRST + DRAWN):
            drawn = Drawn(seed)
            expected = [copy.deepcopy(one.state_dict()) for one in drawn.plain()]
            cluster = Cluster(drawn.script, drawn.faults, drawn.dice)
            state = functools.partial(reknit_torch.State, mapped=not drawn.copied)
            with self.subTest(seed=seed), contextlib.redirect_stderr(io.StringIO()), \
                    unittest.mock.patch.multiple(reknit_torch, Group=Group, State=state):
                results = cluster.run(drawn.dice.randint(1, 3))
                self.assertTrue(results)
                for result in results:
                    for name, one, other in zip(("model", "optimizer", "scheduler", "average"), expected, result):
                        self.equal(one, other.state_dict(), f"{name} through {cluster.happened}")
            happened += [what for _, what in cluster.happened]
        for what in ("killed", "joined", "left", "broke", "gate broke", "restarted") if DRAWN >= 40 else ():
            self.assertIn(what, happened)


if __name__ == "__main__":
    unittest.main()
