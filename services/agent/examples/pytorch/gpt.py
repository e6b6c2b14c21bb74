"""A small GPT and a text to train it on: what ddp.py and elastic.py have in common."""

import argparse
import json
import os
import time

import torch
from torch import nn
from torch.nn import functional

BATCH = 24  # samples of a step, whoever trains them
CONTEXT = 64  # characters that a sample predicts
WIDTH = 128
BLOCKS = 2
HEADS = 4
CHARACTERS = 256  # the text is bytes
SNAPSHOT_EVERY = 20
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"  # CUDA_VISIBLE_DEVICES= hides all GPUs


def options():
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--text", required=True, help="file to train on")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--snapshot", default="snapshot.pt", help="file that ddp.py begins with where it is there")
    parser.add_argument("--model", default="model.pt", help="file that rank 0 of ddp.py or elastic.py saves the trained model in")
    parser.add_argument("--timeout", type=float, default=1800, help="seconds for which ddp.py waits for a collective")
    return parser.parse_args()


class Text:
    """A text as windows of CONTEXT characters. Sample number n is the same window in every process."""

    def __init__(self, path, device=DEVICE):
        with open(path, "rb") as file:
            self.characters = torch.frombuffer(bytearray(file.read()), dtype=torch.uint8).long().to(device)
        windows = (len(self.characters) - 1) // CONTEXT
        self.order = torch.randperm(windows, generator=torch.Generator().manual_seed(1))

    def batch(self, samples):
        """Return the characters of samples, and those that follow each of them."""
        starts = self.order[torch.tensor(samples) % len(self.order)] * CONTEXT
        places = (starts[:, None] + torch.arange(CONTEXT)).to(self.characters.device)
        return self.characters[places], self.characters[places + 1]


class Block(nn.Module):
    """Attention and a perceptron, each added to what came in."""

    def __init__(self):
        super().__init__()
        self.before_attention, self.before_perceptron = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
        self.perceptron = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x, mask):
        normal = self.before_attention(x)
        x = x + self.attention(normal, normal, normal, attn_mask=mask, need_weights=False)[0]
        return x + self.perceptron(self.before_perceptron(x))


class GPT(nn.Module):
    """Predicts the next character from those before it."""

    def __init__(self):
        super().__init__()
        self.characters, self.places = nn.Embedding(CHARACTERS, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(BLOCKS))
        self.normal, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, CHARACTERS)
        self.register_buffer("future", torch.full((CONTEXT, CONTEXT), -torch.inf).triu(1), persistent=False)

    def forward(self, x):
        x = self.characters(x) + self.places.weight
        for block in self.blocks:
            x = block(x, self.future)
        return self.head(self.normal(x))


def loss_of(model, text, samples):
    """Return the mean loss of samples."""
    x, y = text.batch(samples)
    return functional.cross_entropy(model(x).flatten(0, 1), y.flatten())


def report(step, loss, world, plan=None):
    """Print a line for whoever looks on: a completed step, under which plan or in which process."""
    line = {"step": step, "loss": float(loss), "world": world, "under": plan or os.getpid(), "time": time.time()}
    print(json.dumps(line), flush=True)


def save(path, step, model, optimizer):
    """Write a snapshot, whole or not at all."""
    torch.save({"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, path + ".new")
    os.replace(path + ".new", path)


def export(path, model):
    """Write the trained parameters, whole or not at all: copies, for they may lie in memory that holds more."""
    torch.save({name: tensor.clone().cpu() for name, tensor in model.state_dict().items()}, path + ".new")
    os.replace(path + ".new", path)


def load(path, model, optimizer):
    """Take over the snapshot, if there is one, and return the number of completed steps."""
    if not os.path.exists(path):
        return 0
    snapshot = torch.load(path, map_location=DEVICE, weights_only=True)
    model.load_state_dict(snapshot["model"])
    optimizer.load_state_dict(snapshot["optimizer"])
    return snapshot["step"]
