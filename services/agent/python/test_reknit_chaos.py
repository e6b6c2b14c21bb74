"""What reknit_chaos.py promises, without an agent; tests/workers runs the papers' listings in a cluster."""

import os
import signal
import subprocess
import sys
import textwrap
import unittest

try:
    import torch

    import reknit
    import reknit_chaos
    from test_reknit_torch import BATCH, STEPS, loss_of, plain, replica
except ImportError as missing:
    raise unittest.SkipTest(f"PyTorch is not installed: {missing}")


class TheFourCalls(unittest.TestCase):
    def setUp(self):
        os.environ.pop("REKNIT_AGENT", None)
        reknit_chaos._coordinator = None
        for number in (signal.SIGINT, signal.SIGTERM):  # else the tests behind this one outlive their own end, but not their processes
            self.addCleanup(signal.signal, number, signal.getsignal(number))

    def test_a_loop_of_them_trains_as_a_loop_without_reknit(self):
        expected, got = replica(), replica()
        plain(*expected)
        coordinator = reknit_chaos.Trainer()
        coordinator.prepare(*got, batch=BATCH, micro_batch=2, steps=STEPS)
        made = []
        for step in coordinator.steps():
            for samples in step.micro_batches:
                step.backward(loss_of(got[0], samples))
            self.assertTrue(coordinator.update())
            made.append(step.index)
            self.assertEqual(1, coordinator.check_state_replication()["replicas"])
            self.assertIsNone(reknit_chaos.capture_exit_event())
        self.assertEqual(list(range(STEPS)), made)
        for one, other in zip(expected[0].parameters(), got[0].parameters()):
            torch.testing.assert_close(one, other)

    def test_a_call_that_comes_too_early_names_the_one_that_is_due(self):
        coordinator = reknit_chaos.Coordinator()
        for call in coordinator.update, coordinator.check_state_replication, coordinator.request_node_exit:
            with self.assertRaisesRegex(reknit.WrongOrder, r"expected coordinator.prepare\(model, optimizer"):
                call()
        coordinator.prepare(*replica(), batch=BATCH, micro_batch=2, steps=STEPS)
        with self.assertRaisesRegex(reknit.WrongOrder, r"expected it in the loop over coordinator.steps\(\)"):
            coordinator.update()
        with self.assertRaisesRegex(reknit.WrongOrder, "expected one call, got another one"):
            coordinator.prepare(*replica(), batch=BATCH, micro_batch=2, steps=STEPS)

    def test_a_process_has_one_coordinator_at_a_time(self):
        first = reknit_chaos.Coordinator()
        with self.assertRaisesRegex(reknit.WrongOrder, "expected one a process"):
            reknit_chaos.Trainer()
        model, optimizer = replica()
        first.prepare(model, optimizer, batch=BATCH, micro_batch=2, steps=1)
        for step in first.steps():
            for samples in step.micro_batches:
                step.backward(loss_of(model, samples))
            first.update()
        reknit_chaos.Trainer()

    def test_what_prepare_does_not_take_is_named(self):
        model, optimizer = replica()
        good = {"model": model, "optimizer": optimizer, "batch": BATCH, "micro_batch": 2, "steps": STEPS}
        for wrong, kind, said in [
                ({"model": None}, TypeError, "model: expected a torch.nn.Module, got NoneType"),
                ({"model": optimizer, "optimizer": model}, TypeError, "model: expected a torch.nn.Module, got "),
                ({"optimizer": None}, TypeError, "optimizer: expected a torch.optim.Optimizer, got NoneType"),
                ({"backend": "mpi"}, reknit.Refused, "backend: expected gloo or nccl, got 'mpi'"),
                ({"backend": "nccl"}, reknit.Refused, "backend: expected gloo, for the parameters are on the cpu, got 'nccl'"),
                ({"steps": 0}, reknit.Refused, "steps: expected a whole number from 1 to 9007199254740991, got 0"),
                ({"steps": -2}, reknit.Refused, "steps: expected a whole number from 1 to 9007199254740991, got -2"),
                ({"steps": "9"}, reknit.Refused, "steps: expected a whole number from 1 to 9007199254740991, got '9'"),
                ({"batch": 0}, reknit.Refused, "batch: expected a whole number from 1 to"),
                ({"replicas": "same"}, reknit.Refused, "replicas: expected equal or alike, got 'same'"),
                ({"foo": 1}, reknit.Refused, "foo: expected an argument of join or a field of the job")]:
            with self.subTest(wrong), self.assertRaisesRegex(kind, "^" + said):
                reknit_chaos._coordinator = None
                reknit_chaos.Coordinator().prepare(**{**good, **wrong})

    def test_a_loss_that_is_no_number_is_named(self):
        model, optimizer = replica()
        coordinator = reknit_chaos.Coordinator()
        coordinator.prepare(model, optimizer, batch=BATCH, micro_batch=2, steps=STEPS)
        steps = coordinator.steps()
        step = next(steps)
        for loss, got in (torch.zeros(2), r"the shape \[2\]"), (0.5, "float"), (None, "NoneType"):
            with self.subTest(got), self.assertRaisesRegex(TypeError, r"^step.backward\(loss\): expected .*, got " + got):
                step.backward(loss)

    def test_a_signal_is_an_exit_event_and_the_script_ends_after_the_step(self):
        script = subprocess.Popen([sys.executable, "-c", textwrap.dedent("""
            import signal
            signal.signal(signal.SIGINT, signal.default_int_handler)  # where a shell started the tests with & it is ignored
            import torch
            from reknit_chaos import Coordinator, capture_exit_event
            from test_reknit_torch import loss_of, replica
            coordinator = Coordinator()
            model, optimizer = replica()
            coordinator.prepare(model, optimizer, batch=4, micro_batch=2, steps=10**9)
            for step in coordinator.steps():
                for samples in step.micro_batches:
                    step.backward(loss_of(model, samples))
                coordinator.update()
                print(step.index, flush=True)
                coordinator.check_state_replication()
                if why := capture_exit_event():
                    print(why, flush=True)
                    coordinator.request_node_exit()
        """)], stdout=subprocess.PIPE, text=True, cwd=os.path.dirname(os.path.abspath(__file__)))
        self.addCleanup(script.kill)
        self.assertEqual("0\n", script.stdout.readline())
        script.send_signal(signal.SIGINT)
        said = [line.strip() for line in script.stdout]
        self.assertEqual(1, said.count("SIGINT"), said)
        self.assertLessEqual(len(said), said.index("SIGINT") + 2, said)  # the step that had begun is the last
        self.assertEqual(0, script.wait())
        script.stdout.close()


if __name__ == "__main__":
    unittest.main()
