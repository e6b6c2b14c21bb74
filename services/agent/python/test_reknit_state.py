"""What reknit_state.py promises, of one process and of two."""

import functools
import threading
import unittest
import unittest.mock

try:
    import torch

    import reknit_gradients
    import reknit_state
    from test_reknit_group import KEPT, connected, in_processes
    from test_reknit_torch import STEPS, loss_of, plain, replica
except ImportError as missing:
    raise unittest.SkipTest(f"PyTorch is not installed: {missing}")


class Trainer:
    """One of two processes, which sum gradients in buckets of 40 bytes."""

    def __init__(self, plane, rank):
        KEPT.append(self)
        reknit_gradients.BUCKET_BYTES = 40
        self.rank, self.group, (self.model, _) = rank, connected(plane, rank, 2), replica()
        self.gradients = reknit_gradients.Gradients(self.model.named_parameters())
        self.gradients.clear()
        self.group.sum(torch.zeros(1))

    def backward(self, last=True):
        self.gradients.backward(loss_of(self.model, [self.rank]), self.group if last else None)

    def sum(self):
        """Sums, and returns the sums and the gradients that they become."""
        self.gradients.sum(self.group)
        sums = [bucket.sums.tolist() for bucket in self.gradients.buckets]
        self.gradients.show()
        return sums, [None if parameter.grad is None else parameter.grad.tolist() for parameter in self.model.parameters()]


def sums_begun(plane, rank):
    """Returns how many sums had begun within the backward pass, how many in all, and how many buckets there are."""
    trainer, begun, inside = Trainer(plane, rank), [], []
    begin = trainer.group.begin
    trainer.group.begin = lambda sums: (begun.append(sums), begin(sums))[1]
    trainer.model[1].register_full_backward_hook(lambda *_: inside.append(len(begun)))
    trainer.backward()
    trainer.sum()
    return inside, len(begun), len(trainer.gradients.buckets)


def two_passes(plane, rank):
    trainer = Trainer(plane, rank)
    trainer.backward(last=False)
    trainer.backward()
    return trainer.sum()


def other_gradients(plane, rank):
    """Makes no gradient of the last layer, or none at all."""
    trainer = Trainer(plane, rank)
    if rank == 0:
        trainer.gradients.backward(trainer.model[0](torch.ones(1, 3)).sum(), trainer.group)
    return trainer.sum()


def alone_until_an_abort(before, plane, rank):
    """Returns, as the first process, what comes of sums that the other one does not make, and the loss that is left."""
    trainer = Trainer(plane, rank)
    if rank == 1:
        return None
    if before:
        trainer.group.abort()
    else:
        threading.Timer(0.1, trainer.group.abort).start()
    trainer.backward()
    try:
        came = trainer.sum()
    except RuntimeError as error:
        came = error
    trainer.gradients.clear()
    return came, trainer.gradients.loss.item()


class Gradients(unittest.TestCase):
    def test_a_bucket_is_full_by_its_bytes_whatever_a_number_takes(self):
        with unittest.mock.patch.object(reknit_gradients, "BUCKET_BYTES", 80):
            for kind, full in ((torch.float16, 40), (torch.float32, 20), (torch.float64, 10)):
                buckets = reknit_gradients.buckets_of([torch.zeros(5, dtype=kind) for _ in range(24)])
                self.assertEqual({sum(each.numel() for each in bucket.parameters) for bucket in buckets}, {full}, kind)

    def test_sums_begin_while_the_backward_pass_goes_on(self):
        for inside, begun, buckets in in_processes(sums_begun, "Plane", 0, 1):
            self.assertEqual([2], inside)  # the loss, and the last layer
            self.assertEqual(buckets, begun)

    def test_sums_are_equal_to_the_bit_and_those_of_all_samples(self):
        (sums, gradients), (other_sums, _) = in_processes(two_passes, "Plane", 0, 1)
        self.assertEqual(sums, other_sums)
        model, _ = replica()
        (4 * loss_of(model, [0, 1])).backward()
        for one, other in zip(model.parameters(), gradients):
            self.assertTrue(torch.allclose(one.grad, torch.tensor(other), atol=1e-6))

    def test_processes_that_make_other_gradients_or_none_sum_the_same_buckets(self):
        (sums, _), (other_sums, (_, first, _, last)) = in_processes(other_gradients, "Plane", 0, 1)
        self.assertEqual(sums, other_sums)
        self.assertEqual(5, sum(first))
        self.assertIsNone(last)  # optimizers leave such a parameter alone

    def test_an_abort_ends_all_sums_that_have_begun(self):
        (came, loss), _ = in_processes(functools.partial(alone_until_an_abort, False), "Plane", 0, 1)
        self.assertIsInstance(came, RuntimeError)
        self.assertEqual(0, loss)

    def test_a_group_that_breaks_within_a_backward_pass_is_told_by_the_sum(self):
        (came, _), _ = in_processes(functools.partial(alone_until_an_abort, True), "Plane", 0, 1)
        self.assertIsInstance(came, RuntimeError)


class State(unittest.TestCase):
    def test_the_state_lies_in_the_units(self):
        model, optimizer = replica()
        state = reknit_state.State(model, optimizer)
        memories = [bytearray(size) for size in state.sizes]
        state.move_in(memories)
        before = bytes(memories[0])
        with torch.no_grad():
            model[0].weight.add_(1)
        self.assertNotEqual(before, bytes(memories[0]))
        memories[0][:] = before
        self.assertTrue(torch.equal(replica()[0][0].weight, model[0].weight))

    def test_a_state_that_another_gave_trains_on_as_its_own(self):
        giver, taker = replica(), replica(seed=2)
        states = [reknit_state.State(*giver), reknit_state.State(*taker)]
        memories = [[bytearray(size) for size in state.sizes] for state in states]
        for state, memory in zip(states, memories):
            state.move_in(memory)
        plain(*giver)
        states[0].give([0], STEPS)
        for given, taken in zip(*memories):
            taken[:] = given
        states[1].adopt(STEPS, [0])
        plain(*giver)
        plain(*taker)
        for one, other in zip(giver[0].parameters(), taker[0].parameters()):
            self.assertTrue(torch.equal(one, other))

    def test_a_state_that_lives_elsewhere_is_copied_when_it_is_given_and_taken(self):
        giver, taker = replica(), replica(seed=2)
        states = [reknit_state.State(*one, mapped=False) for one in (giver, taker)]
        memories = [[bytearray(size) for size in state.sizes] for state in states]
        for state, memory in zip(states, memories):
            state.move_in(memory)
        before = bytes(memories[0][0])
        plain(*giver)
        self.assertEqual(before, bytes(memories[0][0]))
        states[0].give([0], STEPS)
        memories[1][0][:] = memories[0][0]
        states[1].adopt(STEPS, [0])
        plain(*giver)
        plain(*taker)
        for one, other in zip(giver[0].parameters(), taker[0].parameters()):
            self.assertTrue(torch.equal(one, other))

    def test_a_state_that_is_copied_out_where_a_step_was_given_up_in_part_is_that_of_before_the_step(self):
        model, optimizer = replica()
        state = reknit_state.State(model, optimizer, mapped=False)
        state.move_in([bytearray(size) for size in state.sizes])
        before = bytes(state._memory)
        state.begin(1.0)
        optimizer.param_groups[0]["lr"] = 7.0
        with unittest.mock.patch.object(state, "_install", side_effect=KeyboardInterrupt), self.assertRaises(KeyboardInterrupt):
            state.undo()
        state.give(range(len(state.sizes)), 0)
        self.assertEqual(before, bytes(state._memory))

    def test_buffers_that_live_elsewhere_are_given_as_they_were_after_the_last_step(self):
        model = torch.nn.Sequential(torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 2))
        state = reknit_state.State(model, torch.optim.AdamW(model.parameters(), lr=0.1), mapped=False)
        memory = bytearray(state.sizes[0])
        state.move_in([memory])
        before = bytes(memory)
        model(torch.ones(2, 3))
        state.give([0], 0)
        self.assertEqual(before, bytes(memory))
        state.keep()
        state.give([0], 1)
        self.assertNotEqual(before, bytes(memory))
        memory[:] = before
        state.adopt(0, [0])
        self.assertEqual(0, model[0].num_batches_tracked)

    def test_the_digest_is_of_what_stays_and_the_first_state_of_what_a_checkpoint_changes(self):
        states = [reknit_state.State(*replica(seed=seed)) for seed in (1, 1, 2)]
        first, same, other = [state.first() for state in states]
        self.assertEqual((first, states[0].digest("text")), (same, states[1].digest("text")))
        self.assertNotEqual(first, other)
        self.assertEqual(states[0].digest("text"), states[2].digest("text"))
        self.assertNotEqual(states[0].digest("text"), states[0].digest("another text"))
        self.assertNotEqual(states[0].digest("text"), reknit_state.State(*replica(sizes=(3, 4, 2))).digest("text"))

    def test_processes_of_one_job_that_begin_with_other_learning_rates_have_other_first_states(self):
        def begun(rate):
            torch.manual_seed(1)
            model = torch.nn.Linear(3, 2)
            return reknit_state.State(model, torch.optim.SGD(model.parameters(), lr=rate))
        right, same, other = begun(0.1), begun(0.1), begun(0.2)
        self.assertEqual(right.first(), same.first())
        self.assertNotEqual(right.first(), other.first())
        self.assertEqual(right.digest("text"), other.digest("text"))

    def test_who_has_loaded_a_checkpoint_is_of_the_same_job_and_who_has_another_setting_is_not(self):
        def begun(steps, **settings):
            torch.manual_seed(1)
            model = torch.nn.Linear(3, 2)
            optimizer = torch.optim.AdamW(model.parameters(), **{"lr": 0.1, **settings})
            schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.2, total_steps=50)
            average = torch.optim.swa_utils.AveragedModel(model)
            for _ in range(steps):
                optimizer.zero_grad()
                model(torch.ones(1, 3)).sum().backward()
                optimizer.step()
                schedule.step()
                average.update_parameters(model)
            return {"model": model, "optimizer": optimizer, "schedule": schedule, "average": average}

        def state_of(job):
            return reknit_state.State(job["model"], job["optimizer"], {name: job[name] for name in ("schedule", "average")})
        loaded = begun(0)
        for name, one in begun(12).items():
            loaded[name].load_state_dict(one.state_dict())
        fresh, loaded = state_of(begun(0)), state_of(loaded)
        self.assertEqual((fresh.digest("text"), fresh.sizes), (loaded.digest("text"), loaded.sizes))
        self.assertNotEqual(fresh.first(), loaded.first())
        for name, value in {"weight_decay": 0.3, "eps": 1e-3, "amsgrad": True}.items():
            with self.subTest(name):
                self.assertNotEqual(fresh.digest("text"), state_of(begun(0, **{name: value})).digest("text"))

    def test_the_digest_tells_settings_of_groups_of_parameters_apart(self):
        digests = set()
        for first, decays in [([0, 2], (0.1, 0)), ([0, 2], (0, 0.1)), ([0, 2], (0.1, 0.1)), ([0, 3], (0.1, 0))]:
            model, _ = replica()
            groups = [{"params": [p for n, p in enumerate(model.parameters()) if (n in first) == inside], "weight_decay": decay}
                      for inside, decay in zip((True, False), decays)]
            digests.add(reknit_state.State(model, torch.optim.AdamW(groups, lr=0.1)).digest("text"))
        self.assertEqual(4, len(digests))

    def test_an_optimizer_that_cannot_make_a_step_of_gradients_alone_is_refused(self):
        model, _ = replica()
        with self.assertRaisesRegex(TypeError, "optimizer: expected one that makes a step with gradients of zero"):
            reknit_state.State(model, torch.optim.LBFGS(model.parameters()))


if __name__ == "__main__":
    unittest.main()
