"""Tests of reknit_data.py. They hold it to what shared/ledger says in Go."""

import array
import concurrent.futures
import json
import os
import pathlib
import tempfile
import types
import unittest
import unittest.mock

import reknit_data

GOLDEN = pathlib.Path(__file__).parents[3] / "shared" / "ledger" / "testdata" / "order.json"


class TheOrder(unittest.TestCase):
    def test_is_that_of_the_other_language(self):
        golden = json.loads(GOLDEN.read_text())
        self.assertTrue(golden)
        for g in golden:
            self.assertEqual(reknit_data.Order(g["samples"], g["seed"])[g["position"]], g["sample"], g)

    def test_has_every_sample_once_an_epoch_in_another_order(self):
        for samples in (1, 2, 3, 17, 1000):
            order = reknit_data.Order(samples, 7)
            epochs = [[order[epoch * samples + at] for at in range(samples)] for epoch in range(2)]
            for epoch in epochs:
                self.assertEqual(sorted(epoch), list(range(samples)))
            if samples > 3:
                self.assertNotEqual(epochs[0], epochs[1])

    def test_takes_the_whole_numbers_of_other_packages(self):
        class Number:
            """As those of numpy, which overflow where Python's do not."""

            def __init__(self, number):
                self.number = number

            def __index__(self):
                return self.number

        self.assertEqual(reknit_data.Order(50, 7)[123], reknit_data.Order(Number(50), Number(7))[Number(123)])

    def test_refuses_what_is_no_position(self):
        for wrong, said in [
                ({"samples": 0}, "samples: expected a whole number of at least 1, got 0"),
                ({"samples": "5"}, "samples: expected a whole number of at least 1, got '5'"),
                ({"samples": 5.5}, "samples: expected a whole number of at least 1, got 5.5"),
                ({"samples": 5, "seed": "x"}, "seed: expected a whole number, got 'x'")]:
            with self.subTest(wrong), self.assertRaisesRegex(ValueError, "^" + said):
                reknit_data.Order(**wrong)
        with self.assertRaisesRegex(IndexError, "position: expected at least 0, got -1"):
            reknit_data.Order(4)[-1]


class Files(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = os.path.join(self.folder.name, "data")

    def write(self, data):
        with open(self.path, "wb") as file:
            file.write(data)

    def test_windows_of_tokens_share_one_token(self):
        self.write(array.array("H", range(10)).tobytes())
        tokens = reknit_data.Tokens(self.path, window=3)
        self.assertEqual([list(tokens[k]) for k in range(len(tokens))], [[0, 1, 2, 3], [3, 4, 5, 6], [6, 7, 8, 9]])
        with self.assertRaisesRegex(IndexError, "expected 0 to 2, got 3"):
            tokens[3]
        with self.assertRaisesRegex(ValueError, "expected at least 11 tokens"):
            reknit_data.Tokens(self.path, window=10)
        for window in (0, -1, "3", None, 2.5):
            with self.assertRaisesRegex(ValueError, f"^window: expected a whole number of at least 1, got {window!r}"):
                reknit_data.Tokens(self.path, window)
        self.write(b"")
        for kind in (lambda path: reknit_data.Tokens(path, 3), reknit_data.Records):
            with self.assertRaisesRegex(ValueError, f"^{self.path}: expected data, got an empty file"):
                kind(self.path)

    def test_records_are_found_by_their_number(self):
        lines = [f"record {k} {'x' * (k % 7)}".encode() for k in range(100)]
        self.write(b"\n".join(lines))  # the last without its newline
        for _ in range(2):  # the index is built, then found
            records = reknit_data.Records(self.path)
            self.assertEqual([records[k] for k in range(len(records))], lines)

    def read_only(self, *folders):
        """Has no file be made in some folders, as on a read-only disk."""
        make = tempfile.mkstemp

        def refuse(prefix, dir):
            if os.path.abspath(dir) in folders:
                raise OSError(30, "Read-only file system")
            return make(prefix=prefix, dir=dir)
        self.enterContext(unittest.mock.patch.object(tempfile, "mkstemp", refuse))

    def test_of_records_on_a_read_only_disk_the_index_is_this_users_in_the_temporary_directory(self):
        own = self.enterContext(tempfile.TemporaryDirectory())
        self.enterContext(unittest.mock.patch.object(tempfile, "tempdir", own))
        self.read_only(self.folder.name)
        with open(self.path, "wb") as file:
            file.write(b"one\ntwo\n")
        for _ in range(2):
            self.assertEqual([b"one", b"two"], [reknit_data.Records(self.path)[k] for k in range(2)])
        at, = os.listdir(own)
        self.assertEqual(["data"], os.listdir(self.folder.name))
        os.rename(os.path.join(own, at), os.path.join(own, "another's"))
        os.symlink("another's", os.path.join(own, at))  # as another user may put it there
        self.assertEqual(b"two", reknit_data.Records(self.path)[1])
        self.assertFalse(os.path.islink(os.path.join(own, at)))

    def test_where_no_index_can_be_written_it_is_said_what_to_do(self):
        own = self.enterContext(tempfile.TemporaryDirectory())
        self.enterContext(unittest.mock.patch.object(tempfile, "tempdir", own))
        self.read_only(self.folder.name, own)
        with open(self.path, "wb") as file:
            file.write(b"one\n")
        with self.assertRaisesRegex(OSError, "data: an index can be written neither beside it .* name another place with index="):
            reknit_data.Records(self.path)

    def test_an_index_is_made_anew_where_the_file_changed_or_the_index_is_torn(self):
        self.write(b"a\nb\n")
        self.assertEqual(len(reknit_data.Records(self.path)), 2)
        self.write(b"a\nb\nc\n")
        self.assertEqual(reknit_data.Records(self.path)[2], b"c")
        os.truncate(self.path + ".index", 40)
        self.assertEqual(reknit_data.Records(self.path)[2], b"c")

    def test_a_file_that_grows_while_its_index_is_made_is_refused(self):
        self.write(b"one\n")
        make = tempfile.mkstemp

        def grown(**named):
            self.write(b"one\ntwo\n")
            return make(**named)
        with unittest.mock.patch.object(tempfile, "mkstemp", grown), \
                self.assertRaisesRegex(ValueError, "expected a file that nobody writes to, got 8 bytes where 4 were when it was opened"):
            reknit_data.Records(self.path)
        self.assertEqual(["data"], os.listdir(self.folder.name))

    def test_who_opens_a_file_at_once_finds_the_same(self):
        self.write(b"".join(b"%d\n" % k for k in range(5000)))
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            found = pool.map(lambda _: reknit_data.Records(self.path)[4321], range(8))
        self.assertEqual(list(found), [b"4321"] * 8)
        self.assertEqual(sorted(os.listdir(self.folder.name)), ["data", "data.index"])

    def test_a_ledger_is_what_the_check_reads(self):
        with reknit_data.Ledger(self.path) as ledger:
            for index in range(2):
                step = types.SimpleNamespace(generation=1, index=index, consumed=4 * index, samples=[[0, 1], [1, 4]])
                ledger.note(step)
                with open(self.path, encoding="ascii") as file:  # a trainer that is killed closes nothing
                    entries = [json.loads(line) for line in file]
                self.assertIsNone(reknit_data.check([plan(1, 0, 0, 4)], entries, index + 1))


def plan(generation, resume, consumed, batch):
    return {"generation": generation, "resumeStep": resume, "data": {"globalBatch": batch, "consumedSamples": consumed}}


def entry(generation, step, first, end):
    return {"generation": generation, "step": step, "first": first, "end": end}


class TheCheck(unittest.TestCase):
    """A batch of 4 for two steps, of 6 from step 2 on; step 3 is undone, and goes on with 4."""

    def setUp(self):
        self.plans = [plan(1, 0, 0, 4), plan(2, 2, 8, 6), plan(3, 3, 14, 4)]
        self.entries = [
            entry(1, 0, 0, 2), entry(1, 0, 2, 4), entry(1, 1, 4, 8), entry(2, 2, 12, 14), entry(2, 2, 8, 12),
            entry(2, 3, 14, 16), entry(3, 3, 14, 18),
        ]

    def test_counts_what_is_undone_and_trained_again_once(self):
        self.assertIsNone(reknit_data.check(self.plans, self.entries, 4))

    def test_finds_each_fault(self):
        self.assertRegex(reknit_data.check(self.plans, self.entries[1:], 4), "step 0, .*: samples 0 to 2 were skipped")
        self.assertRegex(reknit_data.check(self.plans, self.entries[:1] + self.entries, 4), "samples 0 to 2 .* twice")
        self.assertRegex(reknit_data.check(self.plans, self.entries[:-1], 4), "step 3, generation 3: .* skipped")
        self.assertRegex(reknit_data.check(self.plans, self.entries + [entry(3, 3, 18, 20)], 4), "a step early")
        self.assertRegex(reknit_data.check(self.plans[1:], self.entries, 4), "step 0: no plan")
        self.plans[1]["data"]["consumedSamples"] = 12
        self.assertRegex(reknit_data.check(self.plans, self.entries, 4), "generation 2 goes on at sample 12")


if __name__ == "__main__":
    unittest.main()
