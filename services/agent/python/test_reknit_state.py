"""What reknit_state.py promises, of one process and of two."""

import threading
import unittest
import unittest.mock
from concurrent import futures

try:
    import torch

    import reknit_group
    import reknit_state
    from test_reknit_group import Plane
    from test_reknit_torch import STEPS, loss_of, plain, replica
except ImportError as missing:
    raise unittest.SkipTest(f"PyTorch is not installed: {missing}")


class Gradients(unittest.TestCase):
    """Two processes, as threads of this one, which sum gradients in buckets of 40 bytes."""

    def setUp(self):
        patch = unittest.mock.patch.object(reknit_state, "BUCKET_BYTES", 40)
        patch.start()
        self.addCleanup(patch.stop)
        plane = Plane()
        self.groups = [reknit_group.Group("gloo", reknit_group.Store(plane, 1), rank, 2) for rank in range(2)]
        self.models = [replica()[0] for _ in self.groups]
        self.gradients = [reknit_state.Gradients(model.parameters()) for model in self.models]
        for gradients in self.gradients:
            gradients.clear()

    def tearDown(self):
        for group in self.groups:
            group.leave()

    def both(self, work):
        """Runs what each process does, with its rank, and returns what comes of it."""
        with futures.ThreadPoolExecutor() as pool:
            return list(pool.map(work, range(2)))

    def connect(self):
        self.both(lambda rank: self.groups[rank].sum(torch.zeros(1)))

    def loss(self, rank):
        return loss_of(self.models[rank], [rank])

    def sums(self):
        return [[bucket.sums for bucket in gradients.buckets] for gradients in self.gradients]

    def test_sums_begin_while_the_backward_pass_goes_on(self):
        self.connect()
        begun = []
        begin = self.groups[0].begin
        self.groups[0].begin = lambda sums: (begun.append(sums), begin(sums))[1]
        inside = []
        self.models[0][1].register_full_backward_hook(lambda *_: inside.append(len(begun)))
        self.both(lambda rank: self.gradients[rank].backward(self.loss(rank), self.groups[rank]))
        self.both(lambda rank: self.gradients[rank].sum(self.groups[rank]))
        self.assertEqual([2], inside)  # the loss, and the last layer
        self.assertEqual(len(self.gradients[0].buckets), len(begun))

    def test_sums_are_equal_to_the_bit_and_those_of_all_samples(self):
        self.connect()
        for last in (False, True):
            self.both(lambda rank: self.gradients[rank].backward(self.loss(rank), self.groups[rank] if last else None))
        self.both(lambda rank: self.gradients[rank].sum(self.groups[rank]))
        for one, other in zip(*self.sums()):
            self.assertTrue(torch.equal(one, other))
        self.gradients[0].show()
        model, _ = replica()
        (4 * loss_of(model, [0, 1])).backward()
        for one, other in zip(model.parameters(), self.models[0].parameters()):
            self.assertTrue(torch.allclose(one.grad, other.grad, atol=1e-6))

    def test_processes_that_make_other_gradients_or_none_sum_the_same_buckets(self):
        self.connect()
        self.gradients[0].backward(self.models[0][0](torch.ones(1, 3)).sum(), self.groups[0])  # nothing of the last layer
        self.both(lambda rank: self.gradients[rank].sum(self.groups[rank]))
        for one, other in zip(*self.sums()):
            self.assertTrue(torch.equal(one, other))
        self.gradients[1].show()
        self.assertEqual(5, self.models[1][0].bias.grad.sum())
        self.assertEqual(0, self.models[1][2].bias.grad.sum())

    def test_an_abort_ends_all_sums_that_have_begun(self):
        self.connect()
        self.gradients[0].backward(self.loss(0), self.groups[0])  # the other one never comes
        threading.Timer(0.1, self.groups[0].abort).start()
        with self.assertRaises(RuntimeError):
            self.gradients[0].sum(self.groups[0])
        self.gradients[0].clear()
        self.assertEqual(0, self.gradients[0].loss)

    def test_a_group_that_breaks_within_a_backward_pass_is_told_by_the_sum(self):
        self.connect()
        self.groups[0].abort()
        self.gradients[0].backward(self.loss(0), self.groups[0])
        with self.assertRaises(RuntimeError):
            self.gradients[0].sum(self.groups[0])


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
        for given, taken in zip(*memories):
            taken[:] = given
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

    def test_the_digest_tells_models_apart_that_do_not_begin_alike(self):
        digest = reknit_state.State(*replica()).digest("text")
        self.assertEqual(digest, reknit_state.State(*replica()).digest("text"))
        self.assertNotEqual(digest, reknit_state.State(*replica(seed=2)).digest("text"))
        self.assertNotEqual(digest, reknit_state.State(*replica()).digest("another text"))

    def test_the_digest_tells_settings_of_groups_of_parameters_apart(self):
        digests = set()
        for first, decays in [([0, 2], (0.1, 0)), ([0, 2], (0, 0.1)), ([0, 2], (0.1, 0.1)), ([0, 3], (0.1, 0))]:
            model, _ = replica()
            groups = [{"params": [p for n, p in enumerate(model.parameters()) if (n in first) == inside], "weight_decay": decay}
                      for inside, decay in zip((True, False), decays)]
            digests.add(reknit_state.State(model, torch.optim.AdamW(groups, lr=0.1)).digest("text"))
        self.assertEqual(4, len(digests))

    def test_an_optimizer_whose_state_does_not_begin_at_zero_is_refused(self):
        model, _ = replica()
        with self.assertRaisesRegex(TypeError, "optimizer: expected one of SGD"):
            reknit_state.State(model, torch.optim.Rprop(model.parameters()))


if __name__ == "__main__":
    unittest.main()
