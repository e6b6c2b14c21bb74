"""Whatever has a state moves to a process that joins, and goes back with a step that is not made; what cannot is refused by name."""

import copy
import contextlib
import io
import random
import unittest
import unittest.mock

try:
    import torch

    import reknit
    import reknit_optimizer
    import reknit_state
    import reknit_torch
    from test_reknit_torch import BATCH, STEPS, loss_of, replica
except ImportError as missing:
    raise unittest.SkipTest(f"PyTorch is not installed: {missing}")


def plain(model, optimizer, first=0, steps=STEPS, after=lambda: None):
    """Trains as a script without Reknit does."""
    for step in range(first, first + steps):
        optimizer.zero_grad(set_to_none=True)
        loss_of(model, range(step * BATCH, (step + 1) * BATCH)).backward()
        optimizer.step()
        after()


def join(model, optimizer, **more):
    return reknit_torch.join(model, optimizer, **{"batch": BATCH, "micro_batch": BATCH, "steps": STEPS, **more})


def train(job, model, after=lambda: None, update=None, gives_up=(), before=lambda step: None):
    """Trains to the end; some steps are given up once, when their backward passes are made."""
    words, left = job.plane._agent.get, set(gives_up)
    for step in job.steps():
        before(step.index)
        for samples in step.micro_batches:
            step.backward(loss_of(model, samples))
        if step.index in left:
            left.remove(step.index)
            job.plane._agent.get = lambda word: 1 << 62  # as the agent tells it
        if step.commit(update):
            after()
        job.plane._agent.get = words
    return job


def taken(state, *joiner, **others):
    """Has a joiner take the units of a state, as they are now, and returns its own state."""
    own = reknit_state.State(*joiner, others)
    memories = [bytearray(size) for size in own.sizes]
    own.move_in(memories)
    for unit, memory in enumerate(memories):
        state.fill(state.views(unit, memory))
    own.adopt(1, range(len(memories)))
    return own


class Same(unittest.TestCase):
    def same(self, one, other):
        """Checks that models or states are equal to the bit."""
        for (name, a), (_, b) in zip(one.state_dict().items(), other.state_dict().items()):
            self.assertTrue(torch.equal(a, b) if torch.is_tensor(a) else a == b, name)

    def same_optimizer(self, one, other):
        one, other = one.state_dict(), other.state_dict()
        self.assertEqual(one["param_groups"], other["param_groups"])
        self.assertEqual(list(one["state"]), list(other["state"]))
        for place, kept in one["state"].items():
            for name, value in kept.items():
                self.assertTrue(torch.equal(torch.as_tensor(value), torch.as_tensor(other["state"][place][name])), (place, name))


class LoadedCheckpoint(Same):
    """A fine-tuning of plain PyTorch: the optimizer has all parameters, the first layer is frozen or was not used yet."""

    def restored(self, frozen):
        model, optimizer = replica()
        model[0].requires_grad_(False)
        plain(model, optimizer)
        weights, moments = copy.deepcopy(model.state_dict()), copy.deepcopy(optimizer.state_dict())
        model, optimizer = replica(seed=2)
        model[0].requires_grad_(not frozen)
        model.load_state_dict(weights)
        optimizer.load_state_dict(moments)
        return model, optimizer

    def test_the_optimizers_state_is_what_it_was(self):
        for frozen in (True, False):
            expected, got = self.restored(frozen), self.restored(frozen)
            join(*got)
            self.same_optimizer(expected[1], got[1])

    def test_training_goes_on_as_without_reknit(self):
        for frozen in (True, False):
            expected, got = self.restored(frozen), self.restored(frozen)
            plain(*expected)
            train(join(*got), got[0])
            self.same(expected[0], got[0])
            self.same_optimizer(expected[1], got[1])


class CountingAdamW(torch.optim.AdamW):
    """Warms up by a count of its own, as FusedAdam, schedule-free AdamW and Prodigy keep theirs."""

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            group["k"] = group.get("k", 0) + 1
            base = group["lr"]
            group["lr"] = base * min(1.0, group["k"] / 4)
        super().step(closure)
        for group in self.param_groups:
            group["lr"] = base


class GlobalAdamW(torch.optim.AdamW):
    """Keeps what is not of one parameter, as gradient-norm trackers do."""

    @torch.no_grad()
    def step(self, closure=None):
        norm = sum(p.grad.pow(2).sum() for g in self.param_groups for p in g["params"] if p.grad is not None).sqrt()
        known = self.state.setdefault("global", {"norm": torch.zeros(()), "steps": 0})
        known["norm"].mul_(0.9).add_(0.1 * norm)
        known["steps"] += 1
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    p.grad.mul_(1 / (1 + known["norm"]))
        super().step(closure)


class Lazy(torch.optim.Optimizer):
    """An optimizer of nobody's, whose state does not begin at zero."""

    def __init__(self, parameters, lr):
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    scale = self.state[p].setdefault("scale", torch.ones_like(p))
                    scale.mul_(0.9)
                    p.sub_(group["lr"] * scale * p.grad.sign())


KINDS = [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.Adamax, torch.optim.NAdam, torch.optim.RAdam, torch.optim.Rprop,
         torch.optim.RMSprop, torch.optim.Adadelta, torch.optim.Adagrad, torch.optim.ASGD, CountingAdamW, GlobalAdamW, Lazy]


class Optimizers(Same):
    def test_each_trains_as_without_reknit_where_a_parameter_is_used_late(self):
        for kind in KINDS:
            (expected, _), (got, _) = replica(), replica()
            one, other = (kind(model.parameters(), lr=0.01) for model in (expected, got))
            for model in (expected, got):
                model[0].bias.requires_grad_(False)
            plain(expected, one)
            train(join(got, other), got)
            with self.subTest(kind.__name__):
                self.same(expected, got)
                self.same_optimizer(one, other)

    def test_each_state_moves_to_a_joiner_who_trains_on_as_the_giver(self):
        for kind in KINDS:
            (giver, _), (joiner, _) = replica(), replica(seed=2)
            one, other = (kind(model.parameters(), lr=0.01) for model in (giver, joiner))
            job = train(join(giver, one), giver)
            with self.subTest(kind.__name__):
                taken(job.state, joiner, other)
                self.same_optimizer(one, other)
                plain(giver, one)
                plain(joiner, other)
                self.same(giver, joiner)

    def test_a_step_that_is_given_up_leaves_no_trace(self):
        for kind in KINDS:
            (expected, _), (got, _) = replica(), replica()
            one, other = (kind(model.parameters(), lr=0.01) for model in (expected, got))
            plain(expected, one)
            train(join(got, other), got, gives_up=[0, 3])
            with self.subTest(kind.__name__):
                self.same(expected, got)
                self.same_optimizer(one, other)

    def test_a_dampening_counts_from_the_second_gradient_of_each_parameter_on(self):
        (expected, _), (got, _) = replica(), replica()
        one, other = (torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, dampening=0.5) for model in (expected, got))
        plain(expected, one)
        train(join(got, other), got)
        self.same(expected, got)

    def test_a_learning_rate_that_the_plan_scales_is_put_back_where_the_optimizer_leaves_it(self):
        for rate, sets, expected in ((0.5, None, 0.5), (0.5, 0.125, 0.125), (torch.tensor(0.5), None, 0.5)):
            seen = []

            class One(torch.optim.SGD):
                def step(self):
                    seen.append(float(self.param_groups[0]["lr"]))
                    if sets is not None:
                        self.param_groups[0]["lr"] = sets
            optimizer = One([torch.nn.Parameter(torch.ones(1))], lr=rate)
            reknit_optimizer.apply(optimizer, 0.5)
            self.assertEqual(([0.25], expected), (seen, float(optimizer.param_groups[0]["lr"])))
            reknit_optimizer.apply(optimizer, 0.5, lambda: (optimizer.step(), optimizer.param_groups[0].update(lr=3.0)))
            self.assertEqual(3, optimizer.param_groups[0]["lr"])
            self.assertNotIn("step", vars(optimizer))


class Settings(Same):
    def test_who_takes_the_state_of_others_is_told_which_of_its_settings_were_replaced(self):
        job, joiner, said = join(*replica()), replica(), io.StringIO()
        joiner[1].param_groups[0]["lr"] = 0.5
        with contextlib.redirect_stderr(said):
            state = taken(job.state, *joiner)
            self.assertIn(f"lr of optimizer.param_groups[0] is {joiner[1].param_groups[0]['lr']:.6g}, as where the state came from, "
                          "and not 0.5, as in this script", said.getvalue())
            said.truncate(0)
            state.adopt(2, range(len(state.sizes)))
        self.assertEqual("", said.getvalue().strip("\0"))

    def test_so_is_who_brings_another_schedule_and_what_it_counts_is_no_setting(self):
        given, joiner, said = replica(), replica(), io.StringIO()
        scheduler = schedule.StepLR(given[1], 2, 0.5)
        job = train(join(*given, scheduler=scheduler), given[0], after=scheduler.step)
        with contextlib.redirect_stderr(said):
            taken(job.state, *joiner, scheduler=schedule.StepLR(joiner[1], 7, 0.5))
        self.assertIn("step_size of scheduler is 2, as where the state came from, and not 7, as in this script", said.getvalue())
        for same in ("gamma", "last_epoch"):
            self.assertNotIn(f"{same} of scheduler", said.getvalue())

    def test_a_setting_that_the_step_decides_goes_as_without_reknit_though_its_step_comes_again(self):
        def changed(optimizer, step):
            if step >= 2:
                optimizer.param_groups[0].update(lr=0.003, weight_decay=0.5)
        expected, got = replica(), replica()
        for step in range(STEPS):
            changed(expected[1], step)
            plain(*expected, first=step, steps=1)
        train(join(*got), got[0], before=lambda step: changed(got[1], step), gives_up=[2, 3])
        self.same(expected[0], got[0])
        self.same_optimizer(expected[1], got[1])


class Average(torch.nn.Module):
    """A mean of a model's weights in a module of its own."""

    def __init__(self, model):
        super().__init__()
        self.weights = copy.deepcopy(model)

    @torch.no_grad()
    def update(self, model):
        for mean, weight in zip(self.weights.parameters(), model.parameters()):
            mean.lerp_(weight, 0.1)


schedule = torch.optim.lr_scheduler
SCHEDULERS = [
    lambda optimizer: schedule.StepLR(optimizer, 2, 0.5),
    lambda optimizer: schedule.LambdaLR(optimizer, lambda step: 1 / (1 + step)),
    lambda optimizer: schedule.MultiStepLR(optimizer, [1, 3], 0.1),
    lambda optimizer: schedule.CosineAnnealingWarmRestarts(optimizer, 2),
    lambda optimizer: schedule.OneCycleLR(optimizer, 0.5, total_steps=3 * STEPS, cycle_momentum=bool({"betas", "momentum"} & set(optimizer.defaults))),
    lambda optimizer: schedule.SequentialLR(optimizer, [schedule.ConstantLR(optimizer, 0.1, 2), schedule.ExponentialLR(optimizer, 0.9)], [2]),
]


class NamedObjects(Same):
    def test_each_scheduler_of_the_loop_or_of_the_step_goes_as_without_reknit_and_with_whoever_joins(self):
        for kind in range(len(SCHEDULERS)):
            for inside in (False, True):
                expected, got, joiner = replica(), replica(), replica(seed=2)
                one, other, third = (SCHEDULERS[kind](optimizer) for _, optimizer in (expected, got, joiner))
                plain(*expected, after=one.step)
                job = join(*got, scheduler=other)
                if inside:
                    train(job, got[0], update=lambda: (got[1].step(), other.step()), gives_up=[1])
                else:
                    train(job, got[0], after=other.step, gives_up=[1])
                with self.subTest(type(one).__name__, inside=inside):
                    self.same(expected[0], got[0])
                    self.same(one, other)
                    taken(job.state, *joiner, scheduler=third)
                    self.same(one, third)
                    self.assertEqual(one.get_last_lr(), [group["lr"] for group in joiner[1].param_groups])

    def test_an_average_of_the_weights_goes_with_the_step(self):
        expected, got, joiner = replica(), replica(), replica(seed=2)
        one, other, third = (Average(model) for model, _ in (expected, got, joiner))
        plain(*expected, after=lambda: one.update(expected[0]))
        job = train(join(*got, ema=other), got[0], after=lambda: other.update(got[0]), gives_up=[2])
        self.same(one, other)
        taken(job.state, *joiner, ema=third)
        self.same(one, third)

    def test_a_scaler_and_an_object_of_ones_own_move(self):
        class Best:
            def __init__(self):
                self.best, self.shadow = float("inf"), torch.zeros(3)

            def state_dict(self):
                return {"best": self.best, "shadow": self.shadow}

            def load_state_dict(self, state):
                self.best, self.shadow = state["best"], state["shadow"]
        got, joiner = replica(), replica(seed=2)
        best, scaler = [Best(), Best()], [torch.amp.GradScaler("cpu", init_scale=8.0), torch.amp.GradScaler("cpu")]

        def after():
            best[0].best = min(best[0].best, 0.5)
            best[0].shadow += 1
            scaler[0].update(32.0)
        scaler[0].scale(torch.ones(()))
        scaler[1].scale(torch.ones(()))
        job = train(join(*got, best=best[0], scaler=scaler[0]), got[0], after=after, gives_up=[1, 4])
        self.assertEqual(STEPS, best[0].shadow[0])
        taken(job.state, *joiner, best=best[1], scaler=scaler[1])
        self.assertEqual((0.5, [STEPS] * 3), (best[1].best, best[1].shadow.tolist()))
        self.assertEqual(32.0, scaler[1].get_scale())

    def test_what_cannot_move_is_refused_at_the_join_by_its_name(self):
        model, optimizer = replica()
        scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))
        scheduler.notes = print
        with self.assertRaisesRegex(TypeError, r"scheduler.notes: expected tensors.*got builtin.*ignore=\['scheduler.notes'\]"):
            join(model, optimizer, scheduler=scheduler)
        job = train(join(model, optimizer, scheduler=scheduler, ignore=["scheduler.notes"]), model, after=scheduler.step, gives_up=[1])
        self.assertIs(print, scheduler.notes)
        self.assertEqual(STEPS, scheduler.last_epoch)
        self.assertEqual(STEPS, job.plane.done)

    def test_an_object_that_does_not_take_what_another_gave_is_told(self):
        class Deaf:
            count = 0

            def state_dict(self):
                return {"count": self.count}

            def load_state_dict(self, state):
                pass
        got, joiner, deaf = replica(), replica(), Deaf()
        job = train(join(*got, counter=deaf), got[0], after=lambda: setattr(deaf, "count", deaf.count + 1))
        with self.assertRaisesRegex(TypeError, "counter: expected to have what its load_state_dict was given"):
            taken(job.state, *joiner, counter=Deaf())

    def test_values_that_grow_without_a_bound_are_told_before_the_step_is_made(self):
        class History:
            def __init__(self):
                self.lines = []

            def state_dict(self):
                return {"lines": self.lines}

            def load_state_dict(self, state):
                self.lines = state["lines"]
        got, history = replica(), History()
        job = join(*got, history=history)
        step = next(steps := job.steps())
        history.lines += ["x" * 100] * 1000
        step.backward(loss_of(got[0], next(iter(step.micro_batches))))
        with self.assertRaisesRegex(TypeError, "history: expected values of .* bytes in all.*bound what grows"):
            step.commit()
        steps.close()


class Greatest(torch.nn.Module):
    """A layer with extra state, as FP8 layers keep their scales."""

    def __init__(self, layer):
        super().__init__()
        self.layer, self.greatest = layer, 0.0

    def get_extra_state(self):
        return {"greatest": self.greatest}

    def set_extra_state(self, state):
        self.greatest = state["greatest"]

    def forward(self, x):
        self.greatest = max(self.greatest, x.abs().max().item())
        return self.layer(x / max(self.greatest, 1e-3))


class Models(Same):
    def test_extra_state_moves_and_is_undone(self):
        def build(seed):
            model, _ = replica(seed)
            model[2] = Greatest(model[2])
            return model, torch.optim.AdamW(model.parameters(), lr=0.1)
        expected, got, joiner = build(1), build(1), build(2)
        plain(*expected)
        job = train(join(*got), got[0], gives_up=[2])
        self.same(expected[0], got[0])
        taken(job.state, *joiner)
        self.same(expected[0], joiner[0])

    def test_parameters_and_buffers_that_share_memory_stay_tied(self):
        def tied():
            torch.manual_seed(1)
            model = torch.nn.Sequential(torch.nn.Linear(3, 3, bias=False), torch.nn.Tanh(), torch.nn.Linear(3, 3, bias=False))
            model[2].weight.data = model[0].weight.data
            model.register_buffer("row", model[0].weight.data[1])
            return model, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        expected, got, joiner = tied(), tied(), tied()
        plain(*expected)
        job = train(join(*got), got[0])
        self.same(expected[0], got[0])
        taken(job.state, *joiner)
        for model in (expected[0], got[0], joiner[0]):
            self.assertTrue(torch.equal(model[0].weight, model[2].weight))
            self.assertTrue(torch.equal(model[0].weight[1], model.row))

    def test_the_order_of_memory_stays_that_of_the_tensor(self):
        model = torch.nn.Conv2d(3, 4, 2).to(memory_format=torch.channels_last)
        stride = model.weight.stride()
        join(model, torch.optim.SGD(model.parameters(), lr=0.1))
        self.assertEqual(stride, model.weight.stride())

    def test_a_parameter_that_changes_within_a_step_is_named(self):
        model, optimizer = replica()
        with self.assertRaisesRegex(reknit.WrongOrder, "model.2.bias: expected it as it was when the step began"):
            for step in join(model, optimizer).steps():
                with torch.no_grad():
                    model[2].bias.mul_(0.9)
                for samples in step.micro_batches:
                    step.backward(loss_of(model, samples))
                step.commit()

    def test_a_parameter_may_change_after_the_step_or_in_its_update(self):
        @torch.no_grad()
        def shrink(model):
            model[2].bias.mul_(0.9)
        expected, inside, behind = replica(), replica(), replica()
        plain(*expected, after=lambda: shrink(expected[0]))
        train(join(*behind), behind[0], after=lambda: shrink(behind[0]), gives_up=[2])
        train(join(*inside), inside[0], update=lambda: (inside[1].step(), shrink(inside[0])), gives_up=[2])
        self.same(expected[0], behind[0])
        self.same(expected[0], inside[0])

    def test_layers_with_buffers_of_their_own_are_only_alike_and_others_are_named(self):
        class Counts(torch.nn.Linear):
            def __init__(self, *sizes):
                super().__init__(*sizes)
                self.register_buffer("calls", torch.zeros(()))

            def forward(self, x):
                self.calls.add_(1)
                return super().forward(x)
        spectral = torch.nn.utils.parametrizations.spectral_norm(torch.nn.Linear(3, 2))
        for layer, alike in ((spectral, True), (torch.nn.utils.spectral_norm(torch.nn.Linear(3, 2)), True), (torch.nn.BatchNorm1d(3), True),
                             (torch.nn.LayerNorm(3), False)):
            self.assertEqual(alike, any(map(reknit_torch.has_own_buffers, torch.nn.Sequential(layer).modules())))
        model = torch.nn.Sequential(Counts(3, 2))
        for more in ({"replicas": "alike"}, {"ignore": ["model.0.calls"]}, {}):
            job = join(model, torch.optim.SGD(model.parameters(), lr=0.1), micro_batch=2, **more)
            told = contextlib.nullcontext() if more else self.assertRaisesRegex(
                reknit.Refused, 'model.0.calls: expected a buffer that no forward pass changes.*replicas="alike"')
            with told:
                train(job, model)


class Calls(Same):
    def test_gradients_are_clipped_as_without_reknit(self):
        expected, got = replica(), replica()
        for step in range(STEPS):
            expected[1].zero_grad()
            loss_of(expected[0], range(step * BATCH, (step + 1) * BATCH)).backward()
            torch.nn.utils.clip_grad_norm_(expected[0].parameters(), 0.1)
            expected[1].step()
        for step in join(*got).steps():
            for samples in step.micro_batches:
                step.backward(loss_of(got[0], samples))
            self.assertGreater(step.clip_grad_norm_(0.1), 0.1)
            step.commit()
        self.same(expected[0], got[0])

    def test_a_gradient_that_is_read_before_the_sum_is_told(self):
        model, optimizer = replica()
        for clip in (lambda: torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0), lambda: model[0].bias.grad):
            job = join(model, optimizer)
            step = next(steps := job.steps())
            step.backward(loss_of(model, next(iter(step.micro_batches))))
            with self.assertRaisesRegex(reknit.WrongOrder, "grad: expected step.reduce.. or step.clip_grad_norm_"):
                clip()
            optimizer.zero_grad()
            model.zero_grad()
            step.reduce()
            self.assertIsNotNone(model[0].bias.grad)
            self.assertTrue(step.commit())
            steps.close()
            self.assertIsNone(model[0].bias.grad)
            self.assertNotIn("grad", vars(torch.nn.Parameter))

    def test_random_numbers_follow_the_samples_and_leave_the_others_alone(self):
        model, optimizer = replica()
        seen = {}
        for micro_batch in (1, 1, 2):
            torch.manual_seed(len(seen))
            random.seed(len(seen))
            job = join(model, optimizer, micro_batch=micro_batch, steps=2)
            for step in job.steps():
                for samples in step.micro_batches:
                    before, own = torch.get_rng_state(), random.getstate()
                    with step.seeded(samples, 1) as number:
                        noise = (torch.rand(()).item(), random.random(), number)
                    self.assertTrue(torch.equal(before, torch.get_rng_state()))
                    self.assertEqual(own, random.getstate())
                    self.assertEqual(noise, seen.setdefault(tuple(samples), noise))
                    step.backward(loss_of(model, samples))
                step.commit()
        self.assertEqual(2 * BATCH + BATCH, len(set(seen.values())))
        self.assertNotEqual(reknit_torch.seed_of(1, 2), reknit_torch.seed_of(2, 1))


if __name__ == "__main__":
    unittest.main()
