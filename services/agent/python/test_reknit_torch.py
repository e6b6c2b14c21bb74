"""What reknit_torch.py promises, without an agent; tests/torch shows it in a cluster."""

import contextlib
import copy
import hashlib
import io
import math
import os
import pathlib
import tempfile
import unittest
import unittest.mock

try:
    import torch
    from torch.utils import checkpoint, data

    import reknit
    import reknit_gradients
    import reknit_group
    import reknit_optimizer
    import reknit_state
    import reknit_torch
    from test_reknit_group import KEPT, in_processes
    from test_reknit_pipeline import Process
except ImportError as missing:
    raise unittest.SkipTest(f"PyTorch is not installed: {missing}")

STEPS = 5
BATCH = 4
os.environ["GLOO_SOCKET_IFNAME"] = "lo"


def replica(seed=1, sizes=(3, 5, 2)):
    """Returns a model and its optimizer."""
    torch.manual_seed(seed)
    model = torch.nn.Sequential(torch.nn.Linear(*sizes[:2]), torch.nn.Tanh(), torch.nn.Linear(*sizes[1:]))
    return model, torch.optim.AdamW(model.parameters(), lr=0.1)


class Samples(data.Dataset):
    """Samples that are their numbers."""

    def __getitem__(self, number):
        return number


class Scaled(torch.optim.AdamW):
    """As the README of the PyTorch example has it, but for the growth of the scale."""

    def __init__(self, model, **settings):
        super().__init__(model.parameters(), **settings)
        self.model = model

    def step(self):
        gradients = [parameter.grad for parameter in self.model.parameters()]
        finite = all(gradient.isfinite().all() for gradient in gradients)
        if finite:
            for gradient in gradients:
                gradient.div_(self.model.loss_scale)
            super().step()
        else:
            self.model.loss_scale.mul_(0.5)


class Wide(torch.nn.Module):
    """A layer that computes in another type."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer.double()

    def forward(self, x):
        return self.layer(x.double()).float()


def mixed():
    """Returns a model of two types and its optimizer."""
    model, _ = replica()
    model[2] = Wide(model[2])
    return model, torch.optim.AdamW(model.parameters(), lr=0.1)


def loss_of(model, samples):
    """Returns the mean loss of samples, which are functions of their numbers."""
    numbers = torch.tensor(samples, dtype=torch.float32)
    return (model(torch.stack([numbers.sin(), numbers.cos(), numbers % 3], 1)) - numbers[:, None].cos()).pow(2).mean()


def plain(model, optimizer):
    """Trains as a script without Reknit does."""
    for step in range(STEPS):
        optimizer.zero_grad()
        loss_of(model, range(step * BATCH, (step + 1) * BATCH)).backward()
        optimizer.step()


def elastic(model, optimizer, micro_batch=BATCH):
    """Trains with reknit_torch, and returns the losses."""
    losses = []
    job = reknit_torch.join(model, optimizer, batch=BATCH, micro_batch=micro_batch, steps=STEPS)
    for step in job.steps():
        for samples in step.micro_batches:
            step.backward(loss_of(model, samples))
        if step.commit():
            losses.append(step.loss)
    return losses


class TrainingAlone(unittest.TestCase):
    def test_without_an_agent_a_script_trains_as_without_reknit(self):
        expected, got = replica(), replica()
        plain(*expected)
        losses = elastic(*got)
        self.assertEqual(STEPS, len(losses))
        for one, other in zip(expected[0].parameters(), got[0].parameters()):
            self.assertTrue(torch.equal(one, other))

    def test_a_data_loader_with_a_worker_loads_the_samples_of_each_step(self):
        expected, got = replica(), replica()
        elastic(*expected, micro_batch=2)
        batches = []
        loader = data.DataLoader(Samples(), batch_sampler=batches, num_workers=1, persistent_workers=True)
        job = reknit_torch.join(*got, batch=BATCH, micro_batch=2, steps=STEPS)
        for step in job.steps():
            batches[:] = step.batches
            for samples, loaded in zip(step.micro_batches, loader):
                self.assertEqual(list(samples), loaded.tolist())
                step.backward(loss_of(got[0], loaded.tolist()))
            step.commit()
        for one, other in zip(expected[0].parameters(), got[0].parameters()):
            self.assertTrue(torch.equal(one, other))

    def test_each_optimizer_takes_its_first_step_as_without_reknit(self):
        for kind, settings in [(torch.optim.SGD, {"momentum": 0.9, "dampening": 0.5, "weight_decay": 0.1}),
                               (torch.optim.SGD, {"momentum": 0.9, "nesterov": True}), (torch.optim.SGD, {}),
                               (torch.optim.Adam, {"amsgrad": True}), (torch.optim.Adamax, {}), (torch.optim.Adadelta, {}),
                               (torch.optim.RMSprop, {"centered": True, "momentum": 0.9})]:
            (expected, _), (got, _) = replica(), replica()
            plain(expected, kind(expected.parameters(), lr=0.1, **settings))
            elastic(got, kind(got.parameters(), lr=0.1, **settings))
            for one, other in zip(expected.parameters(), got.parameters()):
                self.assertTrue(torch.equal(one, other), (kind, settings))

    def test_a_loss_may_be_scaled_where_the_optimizer_undoes_it(self):
        expected, (got, _) = replica(), replica()
        plain(*expected)
        got.register_buffer("loss_scale", torch.tensor(65536.0))
        job = reknit_torch.join(got, Scaled(got, lr=0.1), batch=BATCH, micro_batch=BATCH, steps=STEPS + 1)
        for step in job.steps():
            for samples in step.micro_batches:
                overflow = torch.inf if step.index == STEPS else 1
                step.backward(loss_of(got, samples) * got.loss_scale * overflow)
            step.commit()
        self.assertEqual(32768, got.loss_scale)
        for one, other in zip(expected[0].parameters(), got.parameters()):
            self.assertTrue(torch.equal(one, other))

    def test_micro_batches_add_up_to_the_batch(self):
        whole, parts = replica(), replica()
        for one, other in zip(elastic(*whole), elastic(*parts, micro_batch=1)):
            self.assertAlmostEqual(one, other, places=5)

    def test_gradients_that_were_set_to_none_count(self):
        expected, got = replica(), replica()
        plain(*expected)
        job = reknit_torch.join(*got, batch=BATCH, micro_batch=BATCH, steps=STEPS)
        for step in job.steps():
            got[1].zero_grad(set_to_none=True)
            for samples in step.micro_batches:
                step.backward(loss_of(got[0], samples))
            step.commit()
        for one, other in zip(expected[0].parameters(), got[0].parameters()):
            self.assertTrue(torch.equal(one, other))

    def test_gradients_may_be_clipped_between_reduce_and_commit(self):
        model, optimizer = replica()
        before = [parameter.detach().clone() for parameter in model.parameters()]
        job = reknit_torch.join(model, optimizer, batch=BATCH, micro_batch=BATCH, steps=1)
        for step in job.steps():
            for samples in step.micro_batches:
                step.backward(loss_of(model, samples))
            step.reduce()
            for parameter in model.parameters():
                parameter.grad.zero_()
            step.commit()
        decay = 1 - optimizer.defaults["lr"] * optimizer.defaults["weight_decay"]
        for one, other in zip(before, model.parameters()):
            self.assertTrue(torch.allclose(one * decay, other))


    def test_a_step_that_is_given_up_while_it_computes_is_not_summed_and_comes_again(self):
        expected, got = replica(), replica()
        plain(*expected)
        job = reknit_torch.join(*got, batch=BATCH, micro_batch=1, steps=STEPS)
        words = job.plane._agent.get
        trained, given_up = [], []
        for step in job.steps():
            for samples in step.micro_batches:
                step.backward(loss_of(got[0], samples))
                if step.index == 2 and not given_up:
                    given_up.append(step)
                    job.plane._agent.get = lambda word: 1 << 62  # as the agent tells it
            step.reduce()
            for parameter in got[0].parameters():
                parameter.grad.clamp_(-10, 10)  # whatever became of the step
            if step.index == 2 and len(given_up) == 1:
                self.assertFalse(step.commit())
                self.assertTrue(math.isnan(step.loss))
                given_up.append("once")
                job.plane._agent.get = words
            elif step.commit():
                trained.append(step.index)
        self.assertEqual(list(range(STEPS)), trained)
        for one, other in zip(expected[0].parameters(), got[0].parameters()):
            self.assertTrue(torch.allclose(one, other, atol=1e-5))

    def test_a_step_that_only_others_could_make_is_made_and_its_loss_is_no_number(self):
        job = reknit_torch.join(*replica(), batch=BATCH, micro_batch=BATCH, steps=STEPS)
        steps = job.steps()
        self.addCleanup(steps.close)
        step = next(steps)
        lost = unittest.mock.patch.object(step, "_sum", side_effect=RuntimeError("Connection closed by peer"))
        with lost, unittest.mock.patch.object(job, "decided", return_value=True):
            self.assertTrue(step.commit())
        self.assertTrue(math.isnan(step.loss))

    def test_a_micro_batch_that_was_left_out_is_told(self):
        job = reknit_torch.join(*replica(), batch=BATCH, micro_batch=1, steps=STEPS)
        step = next(job.steps())
        with self.assertRaisesRegex(reknit.WrongOrder, "step.micro_batches, 4 times more"):
            step.commit()

    def test_gradients_count_by_the_weight_that_the_plan_says(self):
        model, optimizer = replica()
        job = reknit_torch.join(model, optimizer, batch=BATCH, micro_batch=1, steps=STEPS)
        turn = next(job.plane.steps(job.state))
        turn.weight = 0.25  # of all local data
        step, losses = reknit_torch.Step(job, turn), []
        for samples in step.micro_batches:
            losses.append(loss_of(model, samples).item())
            step.backward(loss_of(model, samples))
        self.assertAlmostEqual(0.25 * sum(losses) / BATCH, job.state.gradients.loss.item(), places=6)

    def test_a_parameter_that_is_unfrozen_later_is_refused_for_nobody_would_sum_its_gradients(self):
        model, optimizer = replica()
        model[0].requires_grad_(False)
        job = reknit_torch.join(model, optimizer, batch=BATCH, micro_batch=BATCH, steps=STEPS)
        with self.assertRaisesRegex(TypeError, "frozen when the process joined"):
            for step in job.steps():
                model[0].requires_grad_(step.index > 0)
                for samples in step.micro_batches:
                    step.backward(loss_of(model, samples))
                step.commit()
        self.assertEqual(1, job.plane.done)

    def test_an_optimizer_of_more_than_the_model_is_refused(self):
        model, _ = replica()
        optimizer = torch.optim.SGD([*model.parameters(), torch.nn.Parameter(torch.ones(1))], lr=0.1)
        with self.assertRaisesRegex(TypeError, "parameters of the model only, got 1 others"):
            reknit_state.State(model, optimizer)

    def test_replicas_of_a_model_that_keeps_statistics_are_only_alike(self):
        for model, expected in [(torch.nn.Linear(2, 2), None), (torch.nn.BatchNorm1d(2), "alike")]:
            with unittest.mock.patch("reknit.join") as join:
                join.return_value.units = [bytearray(1 << 16)]
                reknit_torch.join(model, torch.optim.SGD(model.parameters(), lr=0.1), batch=1, micro_batch=1, steps=1)
            self.assertEqual(expected, join.call_args.kwargs.get("replicas"))

    def test_a_model_of_two_types_trains(self):
        expected, got = mixed(), mixed()
        plain(*expected)
        elastic(*got)
        for one, other in zip(expected[0].parameters(), got[0].parameters()):
            self.assertTrue(torch.equal(one, other))


def normalised():
    """Returns a model whose forward pass changes buffers, the statistics of BatchNorm, and its optimizer."""
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.BatchNorm1d(5), torch.nn.Linear(5, 2))
    return model, torch.optim.AdamW(model.parameters(), lr=0.1)


class Statistics(unittest.TestCase):
    def setUp(self):
        self.model, self.optimizer = normalised()
        self.job = reknit_torch.join(self.model, self.optimizer, batch=BATCH, micro_batch=2, steps=STEPS)

    def taken(self):
        """Returns the model of a process that takes the units as they are now."""
        model, optimizer = normalised()
        state = reknit_state.State(model, optimizer)
        memories = [bytearray(size) for size in state.sizes]
        state.move_in(memories)
        for memory, unit in zip(memories, self.job.plane.units):
            memory[:] = unit
        state.adopt(self.job.plane.done, range(len(memories)))
        return model

    def same(self, one, other):
        for name, value in one.state_dict().items():
            self.assertTrue(torch.equal(value, other.state_dict()[name]), name)

    def test_others_are_given_those_of_the_last_step_while_a_step_computes(self):
        after = copy.deepcopy(self.model)
        for step in self.job.steps():
            for samples in step.micro_batches:
                step.backward(loss_of(self.model, samples))
                self.same(after, self.taken())
            step.commit()
            after = copy.deepcopy(self.model)
            self.same(after, self.taken())
        self.assertEqual(STEPS * BATCH / 2, after[1].num_batches_tracked)

    def test_those_of_a_step_that_is_given_up_count_for_nothing(self):
        words, given_up = self.job.plane._agent.get, False
        for step in self.job.steps():
            for samples in step.micro_batches:
                step.backward(loss_of(self.model, samples))
                if step.index == 2 and not given_up:
                    self.job.plane._agent.get = lambda word: 1 << 62  # as the agent tells it
            given_up |= not step.commit()
            self.job.plane._agent.get = words
        expected, optimizer = normalised()
        elastic(expected, optimizer, micro_batch=2)
        self.assertTrue(given_up)
        self.same(expected, self.model)

    def test_what_a_script_changes_after_a_step_goes_with_it(self):
        for step in self.job.steps():
            for samples in step.micro_batches:
                step.backward(loss_of(self.model, samples))
            step.commit()
            self.model[1].running_mean.fill_(step.index)
        self.assertEqual([STEPS - 1] * 5, self.taken()[1].running_mean.tolist())


class SeenFromOutside(unittest.TestCase):
    """What the control page says that the process does: 0 neither, 1 it computes, 2 it waits for others."""

    def test_who_is_outside_of_its_micro_batches_and_in_no_sum_is_said_to_do_neither(self):
        page, does = {}, []
        model, optimizer = replica()

        def seen(*_):
            does.append(page.get(reknit._WORK, 0))

        def looks(method):
            def looked(group, tensor):
                seen()
                return method(group, tensor)
            return looked

        group = reknit_torch.Group
        with unittest.mock.patch.multiple(reknit._Alone, get=lambda _, word: page.get(word, 0) if word == reknit._WORK else 0,
                                          set=lambda _, word, value: page.update({word: value}), replicas=True), \
                unittest.mock.patch.object(group, "sum", looks(group.sum)), unittest.mock.patch.object(group, "finish", looks(group.finish)):
            for step in reknit_torch.join(model, optimizer, batch=BATCH, micro_batch=2, steps=1).steps():
                seen()
                for samples in step.micro_batches:
                    seen()
                    step.backward(loss_of(model, samples))
                seen()
                step.reduce()
                seen()
                step.commit(lambda: (seen(), optimizer.step()))
                seen()
        sums = [2, 2]  # of the gradients with the loss, and of the gate, whose last number ends a sum
        self.assertEqual([0, 1, 1, 0, 2, 0, *sums, 1, 0], does)


class Cut:
    """A group whose sums fail, and write into their memory later."""

    connected = True

    def __init__(self):
        self.begun = []

    def begin(self, tensor):
        self.begun.append(tensor)
        return self

    def wait(self):
        raise RuntimeError("the connection is gone")

    def abort(self):
        """Does nothing: a sum that is sending may not wake."""

    def write(self):
        for tensor in self.begun:
            tensor.add_(7)


class CutSums(unittest.TestCase):
    def test_a_sum_that_was_cut_changes_no_later_step(self):
        for pass_ in ("backward", "sum"):
            with self.subTest(begun_in=pass_):
                model, cut = torch.nn.Linear(3, 2), Cut()
                gradients = reknit_gradients.Gradients(model.named_parameters())
                gradients.clear()
                gradients.backward(model(torch.ones(1, 3)).sum(), cut if pass_ == "backward" else None)
                with self.assertRaisesRegex(RuntimeError, "gone"):
                    gradients.sum(cut)
                self.assertEqual(2, len(cut.begun))  # of the loss, and of the gradients
                gradients.clear()
                loss = model(torch.full((1, 3), 2.0)).sum()
                gradients.backward(loss)
                cut.write()
                gradients.sum(reknit_group.Group("gloo", unittest.mock.Mock(), 0, 1))
                gradients.show()
                self.assertEqual(loss.item(), gradients.loss.item())
                self.assertEqual([[2.0] * 3] * 2, model.weight.grad.tolist())
                self.assertEqual([1.0] * 2, model.bias.grad.tolist())


class WrongUse(unittest.TestCase):
    """What a script that was made for DistributedDataParallel may still have in it."""

    def setUp(self):
        self.model, self.optimizer = replica()
        self.job = reknit_torch.join(self.model, self.optimizer, batch=BATCH, micro_batch=1, steps=STEPS)

    def train(self, before=lambda: None, after=lambda: None):
        """Trains, with calls before each micro-batch and after each step."""
        for step in self.job.steps():
            for samples in step.micro_batches:
                before()
                step.backward(loss_of(self.model, samples))
            step.commit()
            after()

    def same(self):
        """Checks that the model is that of a script that makes no such calls."""
        expected = replica()
        elastic(*expected, micro_batch=1)
        for one, other in zip(expected[0].parameters(), self.model.parameters()):
            self.assertTrue(torch.equal(one, other))

    def test_gradients_set_to_zero_between_micro_batches_are_not_lost(self):
        self.train(before=self.optimizer.zero_grad)
        self.same()

    def test_gradients_set_to_none_between_micro_batches_are_not_lost(self):
        self.train(before=lambda: self.optimizer.zero_grad(set_to_none=True))
        self.same()

    def test_an_optimizer_that_steps_by_itself_as_well_has_nothing_to_apply(self):
        self.train(before=self.optimizer.step, after=self.optimizer.step)
        self.same()

    def test_who_catches_the_error_that_ended_the_steps_does_not_take_training_for_complete(self):
        with self.assertRaisesRegex(reknit.WrongOrder, "call step.commit"):
            for _ in self.job.steps():
                pass
        with self.assertRaisesRegex(SystemExit, "training is not complete"):
            self.train()

    def test_who_breaks_out_of_the_steps_goes_on_with_them_and_is_told_that_they_are_complete(self):
        for _ in range(STEPS + 1):
            for step in self.job.steps():
                for samples in step.micro_batches:
                    step.backward(loss_of(self.model, samples))
                step.commit()
                break
        self.same()

    def test_a_backward_pass_of_the_scripts_own_is_told(self):
        step = next(self.job.steps())
        with self.assertRaisesRegex(reknit.WrongOrder, "expected step.backward"):
            loss_of(self.model, next(iter(step.micro_batches))).backward()

    def test_a_backward_pass_between_two_steps_counts_for_nothing(self):
        self.train(after=lambda: loss_of(self.model, [0]).backward())
        self.same()

    def test_a_loss_that_is_counted_twice_is_told(self):
        step = next(self.job.steps())
        for samples in step.micro_batches:
            step.backward(loss_of(self.model, samples))
        with self.assertRaisesRegex(reknit.WrongOrder, "got one more"):
            step.backward(loss_of(self.model, samples))

    def test_a_step_that_is_ended_twice_is_told(self):
        for again in (reknit_torch.Step.commit, reknit_torch.Step.share_buffers):
            self.setUp()
            with self.assertRaisesRegex(reknit.WrongOrder, "of step 0: expected it once, before step.commit"):
                for step in self.job.steps():
                    for samples in step.micro_batches:
                        step.backward(loss_of(self.model, samples))
                    step.commit()
                    again(step)

    def test_a_group_of_parameters_that_is_added_behind_the_join_is_named(self):
        for at in (0, 2):
            self.setUp()
            with self.assertRaisesRegex(TypeError, "optimizer.param_groups: expected the parameters with which the process joined.*before"):
                for step in self.job.steps():
                    if step.index == at:
                        self.optimizer.add_param_group({"params": [torch.nn.Parameter(torch.zeros(3))]})
                    for samples in step.micro_batches:
                        step.backward(loss_of(self.model, samples))
                    step.commit()

    def test_a_gradient_that_comes_when_its_sum_has_begun_is_told(self):
        def twice(x):
            return checkpoint.checkpoint(self.model, checkpoint.checkpoint(self.model, x))
        self.model, self.optimizer = replica(sizes=(3, 3, 3))
        self.job = reknit_torch.join(self.model, self.optimizer, batch=1, micro_batch=1, steps=STEPS)
        step = next(self.job.steps())
        with self.assertRaisesRegex(reknit.WrongOrder, "use_reentrant=False"):
            step.backward(twice(torch.ones(1, 3, requires_grad=True)).sum())


    def test_a_state_that_a_script_changed_in_its_step_is_given_to_nobody(self):
        page = {}
        with unittest.mock.patch.object(reknit._Alone, "set", lambda _, word, value: page.update({word: value})):
            step = next(self.job.steps())
            for samples in step.micro_batches:
                step.backward(loss_of(self.model, samples))
            with torch.no_grad():
                self.model[0].weight.add_(1)
            with self.assertRaisesRegex(reknit.WrongOrder, "changed before"):
                step.commit()
        self.assertEqual(reknit._CHANGING, page[reknit._PHASE])

    def test_a_state_that_a_script_changed_is_given_to_nobody_whatever_ends_the_script(self):
        page = {}
        with unittest.mock.patch.object(reknit._Alone, "set", lambda _, word, value: page.update({word: value})), \
                unittest.mock.patch.object(reknit._Alone, "copied", False, create=True):
            steps = self.job.steps()
            next(steps)
            self.job.plane._copy_out()
            self.assertEqual(reknit._IN_STEP, page[reknit._PHASE])
            with torch.no_grad():
                self.model[0].weight.add_(1)
            self.job.plane._copy_out()  # as where an error of its own ends it
        self.assertEqual(reknit._CHANGING, page[reknit._PHASE])

    def test_weights_that_a_script_swaps_behind_its_step_are_given_to_nobody_where_an_error_ends_it_before_they_are_back(self):
        page = {}
        with unittest.mock.patch.object(reknit._Alone, "set", lambda _, word, value: page.update({word: value})), \
                unittest.mock.patch.object(reknit._Alone, "get", lambda _, word: page.get(word, 0)), \
                unittest.mock.patch.object(reknit._Alone, "copied", False, create=True):
            steps = self.job.steps()
            for ends in (False, True):
                step = next(steps)
                for samples in step.micro_batches:
                    step.backward(loss_of(self.model, samples))
                step.commit()
                self.job.plane._copy_out()
                self.assertEqual(reknit._APPLYING, page[reknit._PHASE])  # it is whole, for the step counts
                with torch.no_grad():
                    self.model[0].weight.add_(1)
                if ends:
                    self.job.plane._copy_out()
        self.assertEqual(reknit._CHANGING, page[reknit._PHASE])

    def test_a_script_that_ends_while_it_copies_values_behind_its_step_leaves_no_whole_state(self):
        page, phases = {}, []
        with unittest.mock.patch.object(reknit._Alone, "set", lambda _, word, value: page.update({word: value})), \
                unittest.mock.patch.object(self.job.state, "_encode", lambda: phases.append(page[reknit._PHASE])):
            steps = self.job.steps()
            step = next(steps)
            for samples in step.micro_batches:
                step.backward(loss_of(self.model, samples))
            self.assertTrue(step.commit())
            next(steps)
        self.assertEqual([reknit._APPLYING, reknit._CHANGING], phases)

    def test_a_copy_that_ctrl_c_cuts_off_behind_a_step_leaves_no_whole_state(self):
        page, copied = {}, []

        def cut():
            copied.append(page[reknit._PHASE])
            if len(copied) == 2:  # the first is the step's own
                raise KeyboardInterrupt
        with unittest.mock.patch.object(reknit._Alone, "set", lambda _, word, value: page.update({word: value})), \
                unittest.mock.patch.object(reknit._Alone, "get", lambda _, word: page.get(word, 0)), \
                unittest.mock.patch.object(reknit._Alone, "copied", True, create=True), \
                unittest.mock.patch.object(self.job.state, "_encode", cut):
            steps = self.job.steps()
            step = next(steps)
            for samples in step.micro_batches:
                step.backward(loss_of(self.model, samples))
            step.commit()
            with self.assertRaises(KeyboardInterrupt):
                next(steps)
            self.job.plane._copy_out()  # as at the end of the script
        self.assertEqual(reknit._CHANGING, page[reknit._PHASE])
        self.assertNotIn(reknit._OUT, page)

    def test_a_model_whose_parameters_are_replaced_is_told(self):
        for replace in (
                lambda: setattr(self.model[0], "weight", torch.nn.Parameter(torch.zeros(5, 3))),
                lambda: setattr(self.model[0].weight, "data", torch.zeros(5, 3)),
                lambda: self.model[0].register_parameter("scale", torch.nn.Parameter(torch.ones(1))),
                lambda: self.optimizer.load_state_dict(copy.deepcopy(self.optimizer.state_dict()))):  # as a checkpoint has it
            self.setUp()
            with self.assertRaisesRegex(TypeError, "expected the tensors with which the process joined"):
                self.train(after=replace)
            self.assertEqual(1, self.job.plane.done)

    def test_a_parameter_that_is_replaced_before_the_first_step_is_named(self):
        self.model[0].weight = torch.nn.Parameter(torch.zeros(5, 3))
        with self.assertRaisesRegex(TypeError, "model.0.weight: expected the tensors with which the process joined"):
            self.train()


class SavedModel(unittest.TestCase):
    """As the page for who writes trainers has it."""

    def test_the_model_is_saved_whole_and_without_the_rest_of_the_memory_that_it_lies_in(self):
        page = (pathlib.Path(__file__).parent.parent / "README.md").read_text()
        _, snippet = page.split("```python\nif made", 1)
        model, optimizer = replica()
        job = reknit_torch.join(model, optimizer, batch=BATCH, micro_batch=BATCH, steps=STEPS)
        made = None
        for step in job.steps():
            for samples in step.micro_batches:
                step.backward(loss_of(model, samples))
            if step.commit():
                made = step
        memory = torch.zeros(1 << 20)  # as an agent's: the model's tensors are a part of it
        for parameter in model.parameters():
            parameter.data = memory[:parameter.numel()].view_as(parameter).copy_(parameter.data)
            memory = memory[parameter.numel():]
        there = os.getcwd()
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            try:
                exec("if made" + snippet.split("```")[0], {"made": made, "model": model, "torch": torch, "os": os})
                self.assertEqual(["model.pt"], os.listdir())
                self.assertLess(os.path.getsize("model.pt"), 100_000)
                read, _ = replica(seed=2)
                read.load_state_dict(torch.load("model.pt"))
            finally:
                os.chdir(there)
        for one, other in zip(model.parameters(), read.parameters()):
            self.assertTrue(torch.equal(one, other))

    def test_the_snippet_of_the_top_readme_trains_and_saves_as_it_stands(self):
        page = (pathlib.Path(__file__).parents[3] / "README.md").read_text()
        snippet = page.split("```python\n")[1].split("```")[0]
        self.assertIn("batch=24, micro_batch=2, steps=10000", snippet)
        model, optimizer = replica()
        there = os.getcwd()
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()) as printed:
            os.chdir(folder)
            try:
                exec(snippet.replace("steps=10000", f"steps={STEPS}"),
                     {"model": model, "optimizer": optimizer, "text": None, "loss_of": lambda model, _, samples: loss_of(model, samples)})
                read, _ = replica(seed=2)
                read.load_state_dict(torch.load("model.pt"))
            finally:
                os.chdir(there)
        self.assertEqual(STEPS, len(printed.getvalue().splitlines()))
        for one, other in zip(model.parameters(), read.parameters()):
            self.assertTrue(torch.equal(one, other))


def slower(index):
    """Returns the learning rate of a step."""
    return 0.1 / (1 + index)


def slower_by_turns(index):
    return slower(index % 2)


def halved(index):
    return slower(index) / 2


def thirded(index):
    return slower(index) / 3


def rounded(index):
    """Returns the learning rate as another machine may round it."""
    return math.nextafter(slower(index), 1)


def frozen_from_2(model, index):
    model[2].weight.requires_grad_(index < 2)


def evaluated_in_2(model, index):
    """Has a script forget to call train() behind an evaluation."""
    model.train(index < 2)


def clipped_in_2(model, index):
    if index == 2:
        model.under_way.clip_grad_norm_(1e-3)


def scaled_in_2(model, index):
    """Has a script change gradients by their values, which no version counts, and put others in their place."""
    if index == 2:
        model.under_way.reduce()
        model[0].weight.grad.data.mul_(2)
        model[2].weight.grad = model[2].weight.grad * 2


def looked_at_in_2(model, index):
    if index == 2:
        model.under_way.reduce()
        model.norm = torch.nn.utils.get_total_norm([model[0].weight.grad])


def fine_tuned(model, index):
    model[2].weight.requires_grad_(False)
    model.eval()


def of_an_older_build(model, index):
    """Has the gate compare the optimizer's settings alone."""
    def settings(self):
        return int.from_bytes(hashlib.sha256(repr(reknit_optimizer.settings_of(self.optimizer)).encode()).digest()[:3], "big")
    reknit_state.State.settings = settings


def train_on_samples(board, node_and_wrong):
    """Trains as one of two nodes, of which one may have samples without a loss in step 1, and returns what it says."""
    node, wrong = node_and_wrong
    model, optimizer = replica()
    job = reknit_torch.join(model, optimizer, batch=BATCH, micro_batch=BATCH, steps=STEPS)
    job.plane._agent = Process(job.plane._agent, None, ["a", "b"], node, board)
    KEPT.append(job)
    said = io.StringIO()
    with unittest.mock.patch.object(reknit_torch.Group, "leave"), contextlib.redirect_stderr(said):
        for step in job.steps():
            for samples in step.micro_batches:
                step.backward(loss_of(model, samples) * (math.nan if wrong and step.index == 1 else 1))
            step.commit()
    return said.getvalue()


class Telling(Process):
    """One that keeps what its trainer reports of a step that is given up, and has no more steps after it."""

    def next(self, report, wait=True):
        if report.get("broken"):
            self.told = report
            return {"order": "finished", "id": self.order + 1}
        return super().next(report, wait)


def train_with(board, node_and_rate):
    """Trains as one of three nodes, with the learning rate of each step and whatever else is changed in it and before the join (step -1), and
    returns completed steps, and what was raised or reported."""
    node, rate_of, *changes = node_and_rate
    model, optimizer = replica()
    for change in changes:
        change(model, -1)
    job = reknit_torch.join(model, optimizer, batch=BATCH, micro_batch=BATCH, steps=STEPS)
    agent = job.plane._agent = Telling(job.plane._agent, None, ["a", "b", "c"], node, board)
    KEPT.append(job)
    try:
        with unittest.mock.patch.object(reknit_torch.Group, "leave"):
            for step in job.steps():
                for samples in step.micro_batches:
                    step.backward(loss_of(model, samples))
                optimizer.param_groups[0]["lr"] = rate_of(step.index)
                model.under_way = step
                for change in changes:
                    change(model, step.index)
                step.commit()
    except reknit.WrongOrder as error:
        return job.plane.done, str(error)
    return job.plane.done, getattr(agent, "told", "")


class Votes(unittest.TestCase):
    """A row is a process: since which step it trains, and the number of its settings for a state; zero: it has not that state."""

    def test_more_than_half_decide_and_half_do_not(self):
        self.assertEqual(({2}, []), reknit_torch.vote([[0, 7], [0, 7], [0, 8]]))
        self.assertEqual((set(), [[0, 1], [2], [3]]), reknit_torch.vote([[0, 7], [0, 7], [0, 8], [0, 9]]))
        self.assertEqual(({0}, []), reknit_torch.vote([[0, 8], [0, 7], [0, 7], [0, 0]]))

    def test_where_nobody_has_most_the_side_decides_that_has_trained_for_longest(self):
        self.assertEqual(({0, 1, 2}, []), reknit_torch.vote([[5, 7], [5, 7], [5, 8], [1, 9]]))
        self.assertEqual((set(), [[0], [1]]), reknit_torch.vote([[1, 7], [1, 8]]))


class TwoProcesses(unittest.TestCase):
    # The model is spoilt for all from the next step on, and nobody could tell whose samples were wrong.
    def test_whose_samples_have_no_finite_loss_says_so_once_and_nobody_else_does(self):
        right, wrong = in_processes(train_on_samples, "Board", ("a", False), ("b", True))
        self.assertEqual(("", 1), (right, wrong.count("that of the samples of this process")), right + wrong)
        self.assertIn("step 1: the loss is not finite, and it is that of the samples of this process, 8 to 15: look at these first", wrong)


class ThreeProcesses(unittest.TestCase):
    def test_who_has_another_learning_rate_is_told_before_anybody_applies_it_and_no_other_script_ends(self):
        (*right, (done, told)) = in_processes(train_with, "Board", ("a", slower), ("b", slower), ("c", slower_by_turns))
        self.assertEqual(2, done)
        self.assertRegex(told, "expected the settings of a, b, got others.*from step.index")
        for done, report in right:
            self.assertEqual((2, 2, False, ["c"], False), (done, *(report[field] for field in ("done", "ready", "outvoted", "tied"))))

    def test_who_alone_freezes_a_parameter_or_evaluates_in_a_step_is_told(self):
        for change in (frozen_from_2, evaluated_in_2):
            (*right, (done, told)) = in_processes(train_with, "Board", ("a", slower), ("b", slower), ("c", slower, change))
            self.assertEqual(2, done)
            self.assertRegex(told, r"requires_grad, train\(\) and eval\(\).*: expected the settings of a, b, got others")
            self.assertEqual([["c"]] * 2, [report["outvoted"] for _, report in right])

    # The replicas drifted apart for up to a hundred steps, and a job of two ended well with two models.
    def test_who_alone_changes_gradients_behind_the_sum_is_told_before_anybody_applies_them(self):
        for change in (clipped_in_2, scaled_in_2):
            (*right, (done, told)) = in_processes(train_with, "Board", ("a", slower), ("b", slower, looked_at_in_2), ("c", slower, change))
            self.assertEqual(2, done)
            self.assertRegex(told, "gradients that the script changed: expected the settings of a, b, got others")
            self.assertEqual([["c"]] * 2, [report["outvoted"] for _, report in right])

    def test_what_all_clip_and_who_alone_looks_at_gradients_is_no_difference(self):
        for done, told in in_processes(train_with, "Board", *((node, slower, clipped_in_2, *([looked_at_in_2] * (node == "c"))) for node in "abc")):
            self.assertEqual((3, ""), (done, told))

    def test_gradients_of_any_kind_have_a_sum_of_bits(self):
        complex_one = torch.randn(3, dtype=torch.complex128)
        for one in (torch.zeros(0), torch.tensor(1.0), torch.randn(5).half(), torch.randn(2, 3).t(), torch.eye(3).to_sparse(), complex_one,
                    complex_one.conj(), complex_one.conj().imag):
            self.assertEqual((), tuple(reknit_gradients.sum_of_bits(one).shape))
        self.assertNotEqual(reknit_gradients.sum_of_bits(complex_one), reknit_gradients.sum_of_bits(complex_one.conj()))

    def test_what_all_freeze_and_evaluate_is_no_difference(self):
        for done, told in in_processes(train_with, "Board", *((node, slower, frozen_from_2, evaluated_in_2) for node in "abc")):
            self.assertEqual((3, ""), (done, told))

    # The gate of before compared no modes: a process of this build was outvoted by two of that one.
    def test_a_build_that_compares_modes_trains_what_was_frozen_before_the_join_beside_those_that_compare_none(self):
        old = slower, fine_tuned, of_an_older_build
        for done, told in in_processes(train_with, "Board", ("a", *old), ("b", *old), ("c", slower, fine_tuned)):
            self.assertEqual((3, ""), (done, told))

    def test_where_nobody_is_in_the_majority_no_script_ends(self):
        for done, report in in_processes(train_with, "Board", ("a", slower), ("b", halved), ("c", thirded)):
            self.assertEqual((0, False, [], True), (done, *(report[field] for field in ("ready", "outvoted", "tied"))))

    def test_a_learning_rate_may_differ_by_what_another_machine_rounds(self):
        for done, told in in_processes(train_with, "Board", ("a", slower), ("b", rounded), ("c", slower)):
            self.assertEqual((3, ""), (done, told))


if __name__ == "__main__":
    unittest.main()
