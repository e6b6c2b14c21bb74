"""What reknit_profile.py promises, on a clock of its own that modules put forward."""

import tempfile
import types
import unittest
import unittest.mock

try:
    import torch

    import reknit
    import reknit_pipeline
    import reknit_profile
    import reknit_torch
    import test_reknit_pipeline
    import test_reknit_torch
except ImportError as missing:
    raise unittest.SkipTest(f"PyTorch is not installed: {missing}")

STEPS = reknit_profile.WARM_STEPS + reknit_profile.MEASURED_STEPS
CPU = torch.device("cpu")
NOW = [0.0]


class Waits(torch.autograd.Function):
    """Takes so many seconds on the way back."""

    @staticmethod
    def forward(context, x, seconds):
        context.seconds = seconds
        return x.clone()

    @staticmethod
    def backward(context, gradient):
        NOW[0] += context.seconds
        return gradient, None


class Slow(torch.nn.Module):
    """A linear layer that takes so many seconds forward and backward."""

    def __init__(self, forward, backward):
        super().__init__()
        self.seconds, self.linear = (forward, backward), torch.nn.Linear(4, 4, bias=False)

    def forward(self, x):
        NOW[0] += self.seconds[0]
        return Waits.apply(self.linear(x), self.seconds[1])


class Turn:
    """Hears what is told of a step."""

    told = None

    def profiled(self, *told):
        self.told = told


def hooks_of(module):
    """Returns how many hooks there are in a module and those within."""
    return sum(len(each._forward_hooks) + len(each._forward_pre_hooks) for each in module.modules())


def measured(layers, forward, steps=STEPS, broken=()):
    """Returns what is told of some steps, in which forward passes a micro-batch through the layers and returns its loss."""
    profile, turn = reknit_profile.Profile(enumerate(layers), range(len(layers)), 0, CPU), Turn()
    for step in range(steps):
        profile.begin()
        try:
            profile.start()
            loss = forward(step)
            profile.turn_back()
            loss.backward()
            profile.pause()
        except ArithmeticError:
            profile.stop(complete=False)
            continue
        profile.stop(complete=False)
        profile.end(turn)
    profile.close()
    return turn.told


def through(layers):
    def forward(step):
        x = torch.ones(2, 4)
        for layer in layers:
            x = layer(x)
        return x.sum()
    return forward


class Layers(unittest.TestCase):
    def setUp(self):
        clock = unittest.mock.patch.object(reknit_profile, "now", lambda device: NOW[0])
        clock.start()
        self.addCleanup(clock.stop)

    def expect(self, told, *seconds):
        self.assertEqual(list(seconds), [(layer["forwardSeconds"], layer["backwardSeconds"]) for layer in told[0]])

    def test_each_layer_takes_what_it_takes(self):
        layers = [Slow(1, 2), Slow(3, 5), Slow(7, 11)]
        self.expect(measured(layers, through(layers)), (1, 2), (3, 5), (7, 11))

    def test_what_comes_before_the_first_and_behind_the_last_counts_for_these(self):
        layers = [Slow(1, 2), Slow(3, 5)]

        def forward(step):
            NOW[0] += 10  # the samples are read
            loss = through(layers)(step)
            NOW[0] += 100  # the loss
            return Waits.apply(loss, 1000)
        self.expect(measured(layers, forward), (11, 2), (103, 1005))

    def test_a_layer_that_is_called_twice_takes_both(self):
        layers = [Slow(1, 2), Slow(3, 5)]
        self.expect(measured(layers, through([*layers, layers[0]])), (2, 4), (3, 5))

    def test_frozen_layers_have_no_way_back(self):
        layers = [Slow(1, 2), Slow(3, 5)]
        layers[0].requires_grad_(False)
        self.expect(measured(layers, through(layers)), (1, 0), (3, 5))

    def test_layers_are_measured_that_are_compiled(self):
        for how in (lambda layer: torch.compile(layer, backend="eager"), lambda layer: layer.compile(backend="eager") or layer):
            layers = [how(Slow(0, 2)), how(Slow(0, 5))]  # a compiled forward does not put the clock forward each time
            calls = [layer._compiled_call_impl for layer in layers]
            told = measured(layers, through(layers))
            self.assertEqual(2, len(told[0]))
            self.assertTrue(all(layer["activationBytes"] > 0 for layer in told[0]), told)
            self.assertEqual(calls, [layer._compiled_call_impl for layer in layers])
            self.assertEqual([0, 0], [hooks_of(layer) for layer in layers])

    def test_a_compiled_module_without_parameters_is_part_of_the_layer_before_it(self):
        activation = torch.nn.ReLU()
        activation.compile(backend="eager")
        model = torch.nn.Sequential(torch.nn.Linear(3, 4), activation)
        self.assertEqual([model[0]], list(reknit_profile.modules_with_parameters(model)))

    def test_where_no_layer_can_be_seen_they_share_the_pass(self):
        layers = [Slow(1, 2), Slow(3, 5)]
        hidden = [Slow(4, 8), Slow(2, 6)]
        self.expect(measured(layers, through(hidden)), (3, 7), (3, 7))

    def test_a_pass_that_raises_counts_for_nothing_and_leaves_nothing(self):
        layers = [Slow(1, 2), Slow(3, 5)]

        def forward(step):
            x = layers[0](torch.ones(2, 4))
            if step == reknit_profile.WARM_STEPS + 1:
                NOW[0] += 1000
                raise ArithmeticError("the script's")
            return layers[1](x).sum()
        self.expect(measured(layers, forward, STEPS + 1), (1, 2), (3, 5))
        self.assertEqual([0, 0], [hooks_of(layer) for layer in layers])

    def test_activations_are_what_autograd_keeps_once_each_and_no_parameters(self):
        layers = [Slow(1, 2), Slow(3, 5)]
        kept = [layer["activationBytes"] for layer in measured(layers, through(layers))[0]]
        self.assertEqual([2 * 4 * 4] * 2, kept)  # of each linear layer its input, of 2 samples of 4 numbers

    def test_before_the_first_steps_are_over_nothing_is_told_and_afterwards_nothing_is_left(self):
        layers = [Slow(1, 2)]
        self.assertIsNone(measured(layers, through(layers), STEPS - 1))
        told = measured(layers, through(layers), STEPS + 5)
        self.assertEqual(1, len(told[0]))
        self.assertEqual(0, hooks_of(layers[0]))
        self.assertGreaterEqual(told[1], told[2])  # all memory is more than that beside state and activations
        self.assertGreater(told[2], 0)

    def test_data_that_is_mapped_from_a_file_is_no_memory_of_the_process(self):
        with tempfile.NamedTemporaryFile(dir=".") as file:
            file.truncate(256 << 20)
            before = reknit_profile.peak_bytes(CPU)
            data = torch.from_file(file.name, shared=True, size=256 << 20, dtype=torch.uint8)
            data[::4096].sum()
            self.assertLess(reknit_profile.peak_bytes(CPU) - before, 64 << 20)
            del data


class Jobs(unittest.TestCase):
    def told_by(self, train):
        with unittest.mock.patch.object(reknit.Step, "profiled", autospec=True) as told:
            train()
        self.assertEqual(1, told.call_count)
        return told.call_args.args[1:]

    def test_a_pipelined_job_tells_what_each_layer_of_its_stage_takes(self):
        with unittest.mock.patch.object(test_reknit_pipeline, "STEPS", STEPS + 2):
            job = test_reknit_pipeline.joined()
            layers, _, _ = self.told_by(lambda: test_reknit_pipeline.train(job))
        self.assertEqual(test_reknit_pipeline.LAYERS, len(layers))
        self.assertEqual(0, sum(hooks_of(layer.module) for layer in job.state.held.values()))
        for layer in layers:
            self.assertGreater(layer["forwardSeconds"] + layer["backwardSeconds"], 0)
            self.assertGreater(layer["activationBytes"], 0)

    def test_a_data_parallel_job_tells_it_of_its_units_from_a_loader_as_well(self):
        for loader in (False, True):
            model, optimizer = test_reknit_torch.replica()
            job = reknit_torch.join(model, optimizer, batch=4, micro_batch=2, steps=STEPS + 2)

            def train():
                for step in job.steps():
                    for samples in step.batches if loader else step.micro_batches:
                        step.backward(model(torch.ones(len(samples), 3)).sum())
                    step.commit()
            layers, peak, other = self.told_by(train)
            self.assertEqual(len(job.state.units), len(layers))
            self.assertGreater(layers[0]["backwardSeconds"], 0)
            self.assertEqual(loader, layers[0]["activationBytes"] == 0)
            self.assertEqual(0, hooks_of(model))

    def test_what_was_measured_is_in_the_report_of_the_step(self):
        turn = types.SimpleNamespace()
        reknit.Step.profiled(turn, [{"forwardSeconds": 1.0, "backwardSeconds": 2.0}], 3.0, 2)
        self.assertEqual({"layers": [{"forwardSeconds": 1.0, "backwardSeconds": 2.0}], "peakBytes": 3, "otherBytes": 2},
                         turn._profile)


if __name__ == "__main__":
    unittest.main()
