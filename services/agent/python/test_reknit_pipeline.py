"""What reknit_pipeline.py promises: whatever the plan, processes train what one process trains. tests/torch kills some."""

import contextlib
import functools
import io
import math
import os
import threading
import unittest
import unittest.mock

try:
    import torch

    import reknit
    import reknit_group
    import reknit_pipeline
    import reknit_state
    import reknit_torch
except ImportError as missing:
    raise unittest.SkipTest(f"PyTorch is not installed: {missing}")

from test_reknit_group import KEPT, Shared, connected, in_processes
from test_reknit_routes import plan_of

STEPS, BATCH, MICRO_BATCH, LAYERS, WIDTH = 3, 8, 2, 4, 5
CLIP = 0.5  # less than the norms of the steps
os.environ["GLOO_SOCKET_IFNAME"] = "lo"


def build(n):
    """Returns a layer; the first takes three numbers a sample, the last returns two."""
    return torch.nn.Sequential(torch.nn.Linear(WIDTH if n else 3, WIDTH if n < LAYERS - 1 else 2), torch.nn.Tanh())


def adam(parameters):
    return torch.optim.AdamW(parameters, lr=0.1)


def sample(samples):
    """Returns samples, which are functions of their numbers, and what is to be made of them."""
    numbers = torch.tensor(samples, dtype=torch.float32)
    return torch.stack([numbers.sin(), numbers.cos(), numbers % 3], 1), numbers[:, None].cos()


def run(step, task):
    """Does what a script does with a pass."""
    if task.backward:
        if task.ends:
            step.backward(task.forward.made)
        else:
            task.forward.made.backward(task.input)
        task.output = None if task.begins else task.forward.came.grad
        return
    x, y = sample(task.samples)
    x = task.came = x if task.begins else task.input.requires_grad_()
    for n in task.layers:
        x = step.layers[n](x)
    task.made = task.output = (x - y).pow(2).mean() if task.ends else x


def train(job):
    """Trains to the end, and returns the losses."""
    losses = []
    for step in job.steps():
        for task in step.tasks:
            run(step, task)
        if step.commit():
            losses.append(step.loss)
    return losses


def joined():
    return reknit_pipeline.join(build, LAYERS, adam, between=(WIDTH,), batch=BATCH, micro_batch=MICRO_BATCH, steps=STEPS)


def clipped(job):
    """Trains to the end with gradients that are clipped, and returns their norms."""
    norms = []
    for step in job.steps():
        for task in step.tasks:
            run(step, task)
        norms.append(step.clip_grad_norm_(CLIP).item())
        step.commit()
    return norms


def plain(clip=None):
    """Trains the same as a script without Reknit does, and returns the losses, or the norms of gradients that it clips."""
    layers = []
    for n in range(LAYERS):
        torch.manual_seed(n)
        layers.append(build(n))
    model, losses = torch.nn.Sequential(*layers), []
    optimizer = adam(model.parameters())
    for step in range(STEPS):
        x, y = sample(range(step * BATCH, (step + 1) * BATCH))
        optimizer.zero_grad()
        loss = (model(x) - y).pow(2).mean()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), clip or math.inf)
        optimizer.step()
        losses.append((norm if clip else loss).item())
    return losses


class Board:
    """What the processes of a test tell each other, as agents do."""

    def __init__(self):
        self.values, self.news = {}, threading.Condition()

    def call(self, method, path, body=None):
        key, _, query = path.partition("?")
        with self.news:
            if method == "GET":
                self.news.wait_for(lambda: key in self.values, 10)
                return self.values[key]
            if method == "POST":
                body = b"%d" % (int(self.values.get(key, b"0")) + int(query.partition("=")[2]))
            self.values[key] = body
            self.news.notify_all()
            return body


Shared.register("Board", Board)


class Process(reknit._Alone):
    """An agent of one of several processes, under one plan."""

    def __init__(self, alone, plan, nodes, node, board):
        super().__init__([len(unit) for unit in alone.units], BATCH, MICRO_BATCH, STEPS, lazy=False)
        self.plan, self.nodes, self.node, self.board = plan, nodes, node, board
        self.call = board.call

    def next(self, report, wait=True):
        order = super().next(report, wait)
        if order["order"] == "step":
            order.update(rank=self.nodes.index(self.node), world=len(self.nodes), nodes=self.nodes, plan=self.plan)
        return order


def train_as(plan, nodes, board, node, how=train):
    """Trains in the place of a node, and returns the losses."""
    alone = joined()
    layers = alone.state
    plane = reknit.Job(Process(alone.plane._agent, plan, nodes, node, board), STEPS)
    layers.memories = plane.units
    layers.give(range(LAYERS), 0)
    KEPT.append(reknit_pipeline.Job(plane, layers, "gloo", (WIDTH,)))
    with unittest.mock.patch.object(reknit_group.Group, "leave"):
        return how(KEPT[-1])


class Sending:
    """One that nobody may wait for."""

    def __init__(self, work):
        self.work = work

    def wait(self):
        raise AssertionError("waited for a sending")


def train_without_waiting(*arguments):
    """Does as train_as, where nobody may wait for a sending."""
    send = reknit_group.Group.send
    with unittest.mock.patch.object(reknit_group.Group, "send", lambda *to: Sending(send(*to))):
        return train_as(*arguments)


def clip_as(*arguments):
    """Does as train_as with gradients that are clipped, and returns their norms."""
    return train_as(*arguments, how=clipped)


def train_under(plan, nodes, how=train_as):
    """Trains with a process for each node, and returns the losses of each."""
    return in_processes(functools.partial(how, plan, list(nodes)), "Board", *nodes)


class Training(unittest.TestCase):
    def expect_plain(self, losses, clip=None):
        self.assertEqual(STEPS, len(losses))
        for one, other in zip(plain(clip), losses):
            self.assertAlmostEqual(one, other, places=5)

    def test_without_an_agent_a_script_trains_all_layers(self):
        self.expect_plain(train(joined()))

    def test_stages_of_several_pipelines_train_what_one_process_trains(self):
        plan = plan_of((3, ("a", 1), ("b", 4)), (1, ("c", 2), ("d", 4)),
                       rounds=[[(0, 1, ["a", "c"]), (2, 4, ["b", "d"])], [(1, 2, ["b", "c"])]])
        for losses in train_under(plan, "abcd"):
            self.expect_plain(losses)

    def test_what_a_lost_process_would_have_trained_is_trained(self):
        plan = plan_of((2, ("a", 2), ("b", 4)), (2, ("c", 2), ("lost", 4)), reroutes=[("lost", "b", 2)],
                       rounds=[[(0, 2, ["a", "c"])]])
        for losses in train_under(plan, "abc"):
            self.expect_plain(losses)

    def test_nobody_waits_for_a_sending_of_which_an_abort_may_not_tell_the_end(self):
        plan = plan_of((3, ("a", 1), ("b", 4)), (1, ("c", 2), ("d", 4)),
                       rounds=[[(0, 1, ["a", "c"]), (2, 4, ["b", "d"])], [(1, 2, ["b", "c"])]])
        for losses in train_under(plan, "abcd", train_without_waiting):
            self.expect_plain(losses)

    def test_gradients_are_clipped_by_the_norm_of_all_layers_wherever_they_are(self):
        self.expect_plain(clipped(joined()), CLIP)
        plan = plan_of((3, ("a", 1), ("b", 4)), (1, ("c", 2), ("d", 4)),
                       rounds=[[(0, 1, ["a", "c"]), (2, 4, ["b", "d"])], [(1, 2, ["b", "c"])]])
        for norms in train_under(plan, "abcd", clip_as):
            self.expect_plain(norms, CLIP)

    def test_gradients_that_are_small_enough_are_not_scaled(self):
        job = joined()
        for step in job.steps():
            for task in step.tasks:
                run(step, task)
            step.reduce()
            before = [parameter.grad.clone() for layer in step.layers.values() for parameter in layer.parameters()]
            step.clip_grad_norm_(1e6)
            after = [parameter.grad for layer in step.layers.values() for parameter in layer.parameters()]
            self.assertTrue(all(map(torch.equal, before, after)))
            step.commit()

    def test_a_pass_that_was_left_out_is_told(self):
        step = next(joined().steps())
        next(step.tasks)
        with self.assertRaisesRegex(reknit.WrongOrder, "expected all of step.tasks to be run, 8 are left"):
            step.commit()

    def test_the_loss_is_known_where_the_step_is_made_though_the_gate_breaks_here(self):
        job = joined()
        steps = job.steps()
        self.addCleanup(steps.close)
        step = next(steps)
        for task in step.tasks:
            run(step, task)
        step.reduce()

        def broken(tensor):
            job.state.apply(1)  # as the agent has it done, because others have passed the gate
            raise RuntimeError("Connection closed by peer")
        with unittest.mock.patch.object(job._group, "sum", broken), unittest.mock.patch.object(job, "decided") as decided:
            self.assertTrue(step.commit())
        decided.assert_called_once()
        self.assertAlmostEqual(plain()[0], step.loss, places=5)

    def test_a_step_that_only_others_could_make_is_made_and_its_loss_is_no_number(self):
        job = joined()
        steps = job.steps()
        self.addCleanup(steps.close)
        step = next(steps)
        step._turn.give_up("a process was lost")
        with unittest.mock.patch.object(job, "decided", return_value=True):
            self.assertTrue(step.commit())
        self.assertTrue(math.isnan(step.loss))

    def test_the_random_numbers_of_the_script_are_its_own(self):
        torch.manual_seed(7)
        expected = torch.rand(1)
        torch.manual_seed(7)
        joined()
        self.assertEqual(expected, torch.rand(1))


class Layers(unittest.TestCase):
    def layers(self, **how):
        layers = reknit_pipeline.Layers(build, LAYERS, adam, **how)
        layers.memories = [bytearray(size) for size in layers.sizes]
        return layers

    def test_a_process_makes_only_the_layers_that_it_trains(self):
        layers = self.layers()
        layers.give([1, 2], 0)
        layers.train(range(1, 3))
        self.assertEqual({1, 2}, set(layers.held))
        self.assertFalse(any(layers.memories[0]) or any(layers.memories[3]))

    def test_what_is_not_trained_any_more_is_let_go_once_a_step_is_made_without_it(self):
        layers = self.layers()
        layers.give(range(LAYERS), 0)
        layers.train(range(2))
        layers.train(range(1))
        self.assertEqual({0, 1}, set(layers.held))
        layers.apply(1)
        self.assertEqual({0}, set(layers.held))

    def test_a_layer_that_was_let_go_is_made_anew_where_training_begins_anew(self):
        layers = self.layers()
        layers.give(range(LAYERS), 0)
        first = bytes(layers.memories[3])
        layers.train(range(LAYERS))
        layers.train(range(1))
        layers.apply(1)
        layers.memories[3][:] = bytes(len(first))  # as the agent gives the memory back
        layers.give([3], 0)
        self.assertEqual(first, layers.memories[3])

    def test_a_layer_that_came_is_gone_on_from_and_not_made_anew(self):
        giver, taker = self.layers(), self.layers()
        giver.give([1], 0)
        giver.train(range(1, 2))
        with torch.no_grad():
            giver.held[1].module[0].weight.fill_(3)
        taker.memories[1][:] = giver.memories[1]
        taker.adopt(5, [1])
        taker.give([1], 5)
        taker.train(range(1, 2))
        self.assertTrue((taker.held[1].module[0].weight == 3).all())

    def test_another_model_has_another_digest(self):
        other = reknit_pipeline.Layers(lambda n: build(n).double(), LAYERS, adam)
        self.assertNotEqual(self.layers().digest, other.digest)
        self.assertEqual((self.layers().digest, self.layers().first), (self.layers().digest, self.layers().first))

    def test_layers_that_begin_otherwise_are_of_the_same_job(self):
        def scaled(n):
            layer = build(n)
            with torch.no_grad():
                next(layer.parameters()).mul_(2)
            return layer
        other = reknit_pipeline.Layers(scaled, LAYERS, adam)
        self.assertEqual(self.layers().digest, other.digest)
        self.assertNotEqual(self.layers().first, other.first)

    def test_the_planner_is_told_what_each_layer_takes(self):
        first = self.layers().profiles(10)[0]
        self.assertEqual((80, 80, 40), (first["parameterBytes"], first["gradientBytes"], first["outputBytes"]))
        self.assertEqual(self.layers().sizes[0], first["parameterBytes"] + first["optimizerBytes"])


def add_up_lengths(plane, rank):
    """Returns what comes of tensors of several lengths, which all processes but one of four add up."""
    group = connected(plane, rank, 4)
    KEPT.append(group)
    tensors = [torch.arange(length, dtype=torch.float32) + rank for length in (1, 2, 7)]
    for tensor in tensors if rank != 1 else []:
        reknit_group.add_up(group, tensor, [0, 2, 3], rank, KEPT)
    return [tensor.tolist() for tensor in tensors]


def gate(rates, since, plane, rank):
    """Returns what a process is told at the gate that holds layers with the learning rates by their number, since a step."""
    group = connected(plane, rank, len(rates))
    KEPT.append(group)
    states = {n: reknit_state.State(layer, torch.optim.SGD(layer.parameters(), lr=rate))
              for n, rate in rates[rank] for layer in [build(n)]}
    turn = unittest.mock.Mock(rank=rank, world=len(rates), nodes=list("abcdef"))
    try:
        reknit_torch.pass_gate(turn, group, states, LAYERS, since[rank])
    except (reknit.WrongOrder, reknit.Disagreement) as error:
        group.abort()  # as the cluster has it: nobody else may need this process to be told
        return type(error).__name__, getattr(error, "outvoted", None), turn.take_back.called, str(error)
    return "passed", None, turn.take_back.called, ""


class Sums(unittest.TestCase):
    def test_some_processes_of_a_group_add_up_a_tensor_of_any_length(self):
        of = in_processes(add_up_lengths, "Plane", *range(4))
        for tensors in of[:1] + of[2:]:
            self.assertEqual([[3 * at + 5 for at in range(length)] for length in (1, 2, 7)], tensors)

    def at_the_gate(self, rates, since=(0, 0, 0, 0)):
        """Returns what each process is told that holds layers with these learning rates, without the words."""
        told = in_processes(functools.partial(gate, rates, since), "Plane", *range(len(rates)))
        for kind, _, back, _ in told:
            self.assertEqual(kind != "passed", back, "whether the sums are not to be applied")
        return [one[:2] for one in told]

    def test_settings_are_to_be_equal_in_all_processes_that_hold_a_layer(self):
        tie, outvoted = ("Disagreement", []), ("WrongOrder", None)
        self.assertEqual([("passed", None)] * 2, self.at_the_gate([[(0, 0.1), (1, 0.2)], [(1, 0.2), (2, 0.3)]]))
        self.assertEqual([tie] * 2, self.at_the_gate([[(0, 0.1), (1, 0.2)], [(1, 0.3), (2, 0.3)]]))
        without = ("Disagreement", ["b"])
        self.assertEqual([without, outvoted, without], self.at_the_gate([[(0, 0.1), (1, 0.2)], [(0, 0.1), (1, 0.3)], [(1, 0.2)]]))

    def test_who_trained_before_outvotes_who_joined_where_no_settings_have_the_majority(self):
        rates = [[(0, 0.1)], [(0, 0.2)], [(0, 0.2)], [(0, 0.1)]]
        without = ("Disagreement", ["b", "c"])
        self.assertEqual([without, ("WrongOrder", None), ("WrongOrder", None), without], self.at_the_gate(rates, (7, 30, 30, 7)))
        self.assertEqual([("Disagreement", [])] * 4, self.at_the_gate(rates, (7, 7, 30, 30)))

    def at_a_gate_that_is_cut(self, sums):
        """Returns what is raised in the first of three processes, and what it did, where the second differs and a sum is the last."""
        did, table = [], torch.tensor([[0, 1], [0, 2], [0, 1]])

        def add_up(tensor):
            did.append("sum")
            if did.count("sum") > sums:
                raise RuntimeError("cut")
            tensor.copy_(torch.tensor([3, 1, 1]) if did.count("sum") == 1 else table.view(-1))

        turn = unittest.mock.Mock(rank=0, world=3, nodes=list("abc"))
        turn.take_back.side_effect = lambda: did.append("take back")
        layer = build(0)
        states = {0: reknit_state.State(layer, torch.optim.SGD(layer.parameters(), lr=0.1))}
        with self.assertRaises(Exception) as caught:
            reknit_torch.pass_gate(turn, unittest.mock.Mock(sum=add_up), states, 1, 0)
        return caught.exception, did

    def test_nobody_makes_a_step_whose_settings_differ_though_it_is_not_told_who_is_outvoted(self):
        error, did = self.at_a_gate_that_is_cut(1)
        self.assertIsInstance(error, RuntimeError)
        self.assertEqual(["sum", "take back", "sum"], did)

    def test_the_verdict_is_told_where_another_was_told_first(self):
        error, did = self.at_a_gate_that_is_cut(2)
        self.assertEqual(["b"], error.outvoted)
        self.assertEqual(3, did.count("sum"), "all are to have the table before anybody is told")

    def test_the_nodes_that_differ_are_named(self):
        (*_, right), (*_, wrong), _ = in_processes(functools.partial(gate, [[(0, 0.1)], [(0, 0.2)], [(0, 0.1)]], (0, 0, 0)), "Plane", 0, 1, 2)
        self.assertRegex(right, "b would apply other settings than a, c$")
        self.assertRegex(wrong, "expected the settings of a, c, got others: set them from step.index")
        (*_, tied), _ = in_processes(functools.partial(gate, [[(0, 0.1)], [(0, 0.2)]], (0, 0)), "Plane", 0, 1)
        self.assertRegex(tied, "reknit drain NODE.*: a against b$")

    def test_of_one_against_one_nobody_is_said_to_be_the_majority(self):
        (*_, right), (*_, wrong) = in_processes(functools.partial(gate, [[(0, 0.1)], [(0, 0.2)]], (7, 30)), "Plane", 0, 1)
        self.assertRegex(right, "b would apply other settings than a, which trained before$")
        self.assertRegex(wrong, "expected the settings of a, which trained before, got others: set them from step.index")


class Settings(unittest.TestCase):
    def test_a_setting_that_the_state_of_others_replaced_is_told_once_for_all_layers(self):
        def layers(rate):
            return reknit_pipeline.Layers(build, LAYERS, lambda parameters: torch.optim.SGD(parameters, lr=rate))
        given, joiner, said = layers(0.1), layers(0.5), io.StringIO()
        with contextlib.redirect_stderr(said):
            for n in range(LAYERS):
                state, own = given._make(n).state, joiner._make(n).state
                memories = [bytearray(size) for size in own.sizes]
                own.move_in(memories)
                for unit, memory in enumerate(memories):
                    state.fill(state.views(unit, memory))
                own.adopt(1, range(len(memories)))
        self.assertEqual(1, said.getvalue().count("lr of optimizer.param_groups[0] is 0.1"), said.getvalue())


if __name__ == "__main__":
    unittest.main()
