"""The Python listings of the pages run as they stand, without an agent; what a listing leaves to its reader is given here."""

import contextlib
import importlib.util
import io
import os
import pathlib
import pickle
import random
import re
import struct
import tempfile
import unittest

try:
    import torch
    from torch.utils import data

    import reknit_chaos
    import reknit_data
    import reknit_torch
except ImportError as missing:
    raise unittest.SkipTest(f"PyTorch is not installed: {missing}")

ROOT = pathlib.Path(__file__).parents[3]
FASTER = {r"steps=\d+": "steps=3", "num_workers=4": "num_workers=1"}


def listings(page):
    """Returns the Python listings of a page, in order, each to be compiled with the page's name and lines."""
    text = (ROOT / page).read_text()
    for found in re.finditer(r"```python\n(.*?)```", text, re.DOTALL):
        listing = found[1]
        for usual, faster in FASTER.items():
            listing = re.sub(usual, faster, listing)
        yield compile("\n" * text[:found.start(1)].count("\n") + listing, page, "exec")


class Pairs(data.Dataset):
    """Three numbers and their sum, by the number of the sample."""

    def __getitem__(self, number):
        x = torch.tensor([number, 1.0, 2.0]) / 1000
        return x, x.sum().reshape(1)


class Runs:
    """What makes a folder, ran, where a reader believes it."""

    def __reduce__(self):
        return os.mkdir, ("ran",)


class Pages(unittest.TestCase):
    def setUp(self):
        os.environ.pop("REKNIT_AGENT", None)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(folder.name)
        torch.manual_seed(1)
        self.model = torch.nn.Linear(3, 1)
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        self.before = self.parameters()

    def parameters(self):
        return torch.cat([parameter.detach().flatten() for parameter in self.model.parameters()]).tolist()

    def run_listing(self, listing, **given):
        """Runs a listing with names that it leaves out, and returns its names."""
        names = {"model": self.model, "optimizer": self.optimizer, "torch": torch, "os": os, **given}
        with contextlib.redirect_stdout(io.StringIO()):
            exec(listing, names)
        return names

    def loss_of(self, samples):
        x = torch.tensor([[float(number), 1.0, 2.0] for number in samples]) / 1000
        return (self.model(x) - x.sum(1, keepdim=True)).square().mean()

    def test_what_a_script_of_ones_own_needs(self):
        [listing] = listings("README.md")
        names = self.run_listing(listing, text="", loss_of=lambda model, text, samples: self.loss_of(samples))
        self.assertEqual(2, names["made"].index)
        self.assertNotEqual(self.before, self.parameters())
        [saving] = listings("services/agent/README.md")
        os.remove("model.pt")
        self.run_listing(saving, made=names["made"])
        reader = torch.nn.Linear(3, 1)
        reader.load_state_dict(torch.load("model.pt"))
        self.assertEqual(self.parameters(), torch.cat([p.detach().flatten() for p in reader.parameters()]).tolist())

    def test_a_snapshot_of_the_example_is_read_and_runs_no_code(self):
        found = importlib.util.spec_from_file_location("gpt", ROOT / "services/agent/examples/pytorch/gpt.py")
        gpt = importlib.util.module_from_spec(found)
        found.loader.exec_module(gpt)
        self.model(torch.ones(3)).backward()
        self.optimizer.step()
        gpt.save("snapshot.pt", 7, self.model, self.optimizer)
        self.assertEqual(7, gpt.load("snapshot.pt", torch.nn.Linear(3, 1), torch.optim.AdamW(self.model.parameters())))
        torch.save({"step": 7, "model": Runs()}, "snapshot.pt")
        with self.assertRaises(pickle.UnpicklingError):
            gpt.load("snapshot.pt", self.model, self.optimizer)
        self.assertFalse(os.path.exists("ran"))

    def test_the_calls_of_the_papers(self):
        [listing] = listings("services/agent/python/README.md")
        self.addCleanup(setattr, reknit_chaos, "_coordinator", None)
        names = {}
        with contextlib.redirect_stdout(io.StringIO()):
            exec(listing, names)  # nothing is left to its reader
        self.assertEqual(2, names["step"].index)

    def test_data_from_a_file_a_loader_and_a_scaled_loss(self):
        [from_file, by_loader, together, scaled] = listings("services/agent/examples/pytorch/README.md")
        self.from_a_file(from_file)
        job = reknit_torch.join(self.model, self.optimizer, batch=4, micro_batch=2, steps=3)
        losses = {"loss_of": lambda got, y: (got - y).square().mean()}
        self.run_listing(by_loader, job=job, dataset=Pairs(), DataLoader=data.DataLoader, **losses)
        self.assertEqual(3, job.plane.done)
        self.assertNotEqual(self.before, self.parameters())
        names = self.run_listing(together, reknit_torch=reknit_torch, loss_of=lambda model, samples: self.loss_of(samples))
        self.assertEqual((3, 3), (names["scheduler"].last_epoch, names["ema"].n_averaged))
        self.scale(scaled)

    def from_a_file(self, listing):
        numbers = [random.Random(1).randrange(50) for _ in range(4096)]
        pathlib.Path("corpus.bin").write_bytes(struct.pack(f"<{len(numbers)}H", *numbers))
        table = torch.nn.Embedding(50, 50)
        losses = {"loss_of": lambda got, y: torch.nn.functional.cross_entropy(got.transpose(1, 2), y)}
        names = self.run_listing(listing, model=table, reknit_data=reknit_data, samples=range(2), **losses)
        self.assertTrue(names["loss"].isfinite())

    def scale(self, listing):
        class Backward:
            def backward(self, loss):
                loss.backward()

        names = self.run_listing(listing, step=Backward(), loss=self.loss_of([1]))
        names["Scaled"](self.model, lr=0.1).step()
        self.assertGreater(self.model.loss_scale.item(), 65536)


if __name__ == "__main__":
    unittest.main()
