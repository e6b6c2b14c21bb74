"""What a step does at which moment: mistakes in it train another model, or lose a step, and no sum tells."""

import functools
import unittest
import unittest.mock

try:
    import torch

    import reknit
    import reknit_pipeline
    import reknit_torch
    from test_reknit_group import KEPT, in_processes
    from test_reknit_pipeline import Process, adam, build, run
    from test_reknit_torch import BATCH, STEPS, Telling, loss_of, normalised, replica
except ImportError as missing:
    raise unittest.SkipTest(f"PyTorch is not installed: {missing}")


def scaled(agent, scales):
    """Has the agent order each step with a scale of the learning rate, of one plan."""
    ordered = agent.next

    def next_order(report, wait=True):
        order = ordered(report, wait)
        if order["order"] == "step":
            order["learningRateScale"] = scales[order["index"]]
        return order
    agent.next = next_order


class LearningRate(unittest.TestCase):
    def test_each_step_has_the_scale_that_its_order_tells_and_not_that_of_the_plans_first(self):
        scales = [0.1 * (step + 1) for step in range(STEPS)]  # a warm-up under one plan
        expected, got = replica(), replica()
        for step, scale in enumerate(scales):
            expected[1].zero_grad()
            loss_of(expected[0], range(step * BATCH, (step + 1) * BATCH)).backward()
            expected[1].param_groups[0]["lr"] = 0.1 * scale
            expected[1].step()
        job = reknit_torch.join(*got, batch=BATCH, micro_batch=BATCH, steps=STEPS)
        scaled(job.plane._agent, scales)
        for step in job.steps():
            for samples in step.micro_batches:
                step.backward(loss_of(got[0], samples))
            step.commit()
        for one, other in zip(expected[0].parameters(), got[0].parameters()):
            self.assertTrue(torch.equal(one, other), f"{one} {other}")

    def test_a_pipeline_has_the_scale_that_each_order_tells(self):
        scales = [0.1 * (step + 1) for step in range(3)]
        job = reknit_pipeline.join(build, 4, adam, between=(5,), batch=8, micro_batch=2, steps=3)
        scaled(job.plane._agent, scales)
        seen = []
        for step in job.steps():
            for task in step.tasks:
                run(step, task)
            seen.append({job.state.held[n].state.learning_rate_scale for n in range(4)})
            step.commit()
        self.assertEqual([{scale} for scale in scales], seen)


class Gate(unittest.TestCase):
    def test_a_process_says_that_it_is_ready_before_it_comes_to_the_gate(self):
        """Who is asked between the two answers by what the agent reads: others may have passed the gate, and made the step."""
        job = reknit_torch.join(*replica(), batch=BATCH, micro_batch=BATCH, steps=STEPS)
        told = []
        through = reknit_torch.pass_gate

        def at_the_gate(*arguments):
            told.append(step._turn._ready)
            return through(*arguments)
        with unittest.mock.patch.object(reknit_torch, "pass_gate", at_the_gate):
            for step in job.steps():
                for samples in step.micro_batches:
                    step.backward(loss_of(job.state.model, samples))
                self.assertFalse(step._turn._ready, "ready before its sums are complete")
                step.commit()
        self.assertEqual([True] * STEPS, told)


class Buffers(unittest.TestCase):
    def trained(self, gives_up):
        """Returns the statistics of the first layer after three steps, of which one may be given up once."""
        job = reknit_pipeline.join(
            lambda n: torch.nn.Sequential(build(n), torch.nn.BatchNorm1d(5)) if n == 0 else build(n), 4, adam,
            between=(5,), batch=8, micro_batch=2, steps=3)
        words, given_up = job.plane._agent.get, False
        for step in job.steps():
            for task in step.tasks:
                run(step, task)
            now = gives_up and step.index == 1 and not given_up
            if now:
                given_up = True
                job.plane._agent.get = lambda word: 1 << 62  # as the agent tells it
            self.assertEqual(not now, step.commit())
            job.plane._agent.get = words
        self.assertEqual(gives_up, given_up)
        norm = job.state.held[0].module[1]
        return norm.num_batches_tracked.item(), norm.running_mean.tolist()

    def test_what_a_step_that_is_given_up_did_to_them_counts_for_nothing_in_a_pipeline(self):
        self.assertEqual(self.trained(gives_up=False), self.trained(gives_up=True))


def shares_alone(own, board, node):
    """Trains as one of three processes, of which own say whether they share their buffers in step 1. Returns what ended it."""
    model, optimizer = normalised()
    job = reknit_torch.join(model, optimizer, batch=BATCH, micro_batch=1, steps=STEPS)
    job.plane._agent = agent = Telling(job.plane._agent, None, ["a", "b", "c"], node, board)
    KEPT.append(job)
    try:
        with unittest.mock.patch.object(reknit_torch.Group, "leave"):
            for step in job.steps():
                for samples in step.micro_batches:
                    step.backward(loss_of(model, samples))
                if step.index == 1 and node in own:
                    step.share_buffers()
                step.commit()
    except reknit.Error as error:
        return str(error)
    return getattr(agent, "told", "")


def shares(board, node):
    """Trains as one of two processes, whose statistics differ, and returns them after each step: they are shared in every second one."""
    model, optimizer = normalised()
    job = reknit_torch.join(model, optimizer, batch=BATCH, micro_batch=2, steps=STEPS)
    job.plane._agent = Telling(job.plane._agent, None, ["a", "b"], node, board)
    KEPT.append(job)
    seen = []
    with unittest.mock.patch.object(reknit_torch.Group, "leave"):
        for step in job.steps():
            for samples in step.micro_batches:
                step.backward(loss_of(model, samples))
            model[1].running_mean.fill_(step.index - 0.1 * step.rank)
            model[1].num_batches_tracked.fill_(1000 * step.index + 300 * step.rank)
            if step.index % 2:
                step.share_buffers()
            step.commit()
            seen.append((model[1].running_mean.tolist(), model[1].num_batches_tracked.item()))
    return seen


class SharedBuffers(unittest.TestCase):
    # A sum of another size than that of the others had gloo end their processes.
    def test_who_shares_them_in_a_step_in_which_most_do_not_is_told_and_nobody_else_ends(self):
        for own in ("c", "ab"):
            *right, wrong = in_processes(functools.partial(shares_alone, own), "Board", "a", "b", "c")
            self.assertIn("expected in all processes at the same steps, by step.index say, or in none, got another call than in a, b", wrong)
            for report in right:
                self.assertEqual((["c"], False), (report["outvoted"], report["tied"]))

    def test_they_are_those_of_the_first_process_everywhere_in_the_steps_in_which_all_share_them(self):
        first, second = in_processes(shares, "Board", "a", "b")
        self.assertEqual([0, 1000, 2000], [passes for _, passes in first])
        for step, (one, other) in enumerate(zip(first, second)):
            self.assertEqual(step % 2 == 1, one == other, f"step {step}: {one} and {other}")
