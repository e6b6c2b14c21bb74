"""What reknit_values.py promises."""

import collections
import math
import random
import unittest

try:
    import torch

    import reknit_values
except ImportError as missing:
    raise unittest.SkipTest(f"PyTorch is not installed: {missing}")


def encode(values, ignore=(), name=""):
    return reknit_values.Encoder(ignore).encode(values, name)


def drawn(dice, depth=0):
    """Returns values of every kind, within each other."""
    leaves = [None, True, 7, -2**70, 0.1, math.inf, "text", b"\x00\xff", 1 + 2j, torch.float16, torch.device("cpu")]
    if depth == 3 or dice.random() < 0.3:
        return dice.choice(leaves)
    kind = dice.choice([list, tuple, collections.deque, dict, collections.OrderedDict, collections.Counter, set, frozenset])
    if issubclass(kind, dict):
        return kind({dice.choice(["a", 1, (2, "b"), None]): drawn(dice, depth + 1) for _ in range(3)})
    if kind in (set, frozenset):
        return kind(dice.choice(leaves) for _ in range(3))
    return kind(drawn(dice, depth + 1) for _ in range(dice.randrange(4)))


class Values(unittest.TestCase):
    def test_drawn_values_come_back_as_they_were(self):
        for seed in range(300):
            values = drawn(random.Random(seed))
            back = reknit_values.decode(encode(values) + bytes(64))
            self.assertEqual((type(values), values), (type(back), back), seed)

    def test_tensors_of_each_type_and_shape_come_back_to_the_bit(self):
        for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.bool, torch.uint8, torch.complex64):
            for shape in ((), (0,), (3,), (2, 3)):
                tensor = (torch.arange(math.prod(shape)).reshape(shape) % 2).to(dtype)
                back = reknit_values.decode(encode({"t": [tensor]}))["t"][0]
                self.assertEqual((dtype, tensor.shape), (back.dtype, back.shape))
                self.assertTrue(torch.equal(tensor, back))

    def test_a_number_that_is_none_comes_back_and_so_do_the_states_of_generators(self):
        self.assertTrue(math.isnan(reknit_values.decode(encode(math.nan))))
        state = random.Random(5).getstate()
        self.assertEqual(state, reknit_values.decode(encode(state)))

    def test_equal_dicts_and_sets_have_equal_bytes_in_whatever_order_they_were_filled(self):
        one, other = set([0, 8]), set([8, 0])
        self.assertNotEqual(list(one), list(other), "their numbers collide: expected an order that follows how a set was filled")
        for kind in (set, frozenset):
            self.assertEqual(encode(kind(one)), encode(kind(other)))
        self.assertEqual(encode({"a": 1, "b": one}), encode({"b": other, "a": 1}))
        self.assertNotEqual(encode({"a": 1}), encode({"a": 1.0}))

    def test_what_cannot_move_is_refused_by_its_name(self):
        for value, got in ((print, "builtin_function_or_method"), (object(), "object"), (torch.nn.Linear(1, 1), "Linear")):
            with self.assertRaisesRegex(TypeError, rf"scheduler.lambdas.1: expected tensors and plain values.*got {got}.*ignore=\['scheduler.lambdas.1'\]"):
                encode({"lambdas": [0, value]}, name="scheduler")
        endless = []
        endless.append(endless)
        with self.assertRaisesRegex(TypeError, "at most 64 containers within each other"):
            encode(endless)

    def test_what_is_ignored_stays_as_ones_own(self):
        given = encode({"a": 1, "b": [print, 2]}, ignore=["s.b.0"], name="s")
        self.assertEqual({"a": 1, "b": [repr, 2]}, reknit_values.decode(given, {"a": 5, "b": [repr, 6]}))

    def test_bytes_of_something_else_and_of_a_newer_build_are_told(self):
        with self.assertRaisesRegex(ValueError, "expected b'reknit1"):
            reknit_values.decode(bytes(100))
        with self.assertRaisesRegex(ValueError, "a kind that this build knows, got 'cube'"):
            reknit_values.decode(encode(["x"]).replace(b'"list"', b'"cube"'))

    def test_the_room_does_not_follow_the_digits_of_numbers(self):
        self.assertEqual(reknit_values.room({"a": [1, 0.5]}), reknit_values.room({"a": [123456789, 1 / 3]}))
        self.assertLess(len(encode({str(n): [1 / 3, n] for n in range(100)})), reknit_values.room({str(n): [1 / 3, n] for n in range(100)}))


if __name__ == "__main__":
    unittest.main()
