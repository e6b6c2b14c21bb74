"""A small network and its data, in plain floats. It learns the same to the bit, whoever trains which samples.

    python3 perceptron.py 1000      # trains so many steps alone, and prints the digest that the workers should come to
"""

import array
import hashlib
import math
import random
import struct
import sys

INPUTS, HIDDEN = 2, 8
BATCH, MICRO_BATCH = 24, 2  # samples
RATE, MOMENTUM = 0.05, 0.9


def sample(position):
    """Returns the inputs and the wanted output that stand at a position of the endless data."""
    draw = random.Random(position)
    inputs = [draw.uniform(-1, 1) for _ in range(INPUTS)]
    return inputs, inputs[0] * inputs[1]


class Perceptron:
    """Two layers, which are the two units of the state: the weights of each, and behind them their momentum."""

    def __init__(self):
        draw = random.Random(7)
        sizes = [HIDDEN * (INPUTS + 1), HIDDEN + 1]
        self.units = [array.array("d", [draw.gauss(0, 0.5) for _ in range(size)] + [0.0] * size) for size in sizes]

    def gradient(self, positions):
        """Returns the sum of the samples' losses and, behind it, of their gradients."""
        total = [0.0] * (1 + sum(len(unit) // 2 for unit in self.units))
        for position in positions:
            for n, value in enumerate(self._gradient(*sample(position))):
                total[n] += value
        return total

    def _gradient(self, inputs, wanted):
        first, second = self.units
        inputs = inputs + [1.0]  # for the bias
        width = len(inputs)
        hidden = [math.tanh(sum(first[h * width + i] * inputs[i] for i in range(width))) for h in range(HIDDEN)] + [1.0]
        error = sum(second[h] * hidden[h] for h in range(HIDDEN + 1)) - wanted
        back = [error * second[h] * (1 - hidden[h] ** 2) for h in range(HIDDEN)]
        return [error * error / 2] + [b * x for b in back for x in inputs] + [error * h for h in hidden]

    def apply(self, parts):
        """Makes a step from the parts of all micro-batches, summed in the order in which they come. Returns the loss."""
        loss, *gradient = (sum(column) / BATCH for column in zip(*parts))
        n = 0
        for unit in self.units:
            size = len(unit) // 2
            for w in range(size):
                unit[size + w] = MOMENTUM * unit[size + w] + gradient[n]
                unit[w] -= RATE * unit[size + w]
                n += 1
        return loss

    def read(self, unit):
        """Returns the bytes of a unit."""
        return struct.pack(f"<{len(self.units[unit])}d", *self.units[unit])

    def write(self, unit, content):
        self.units[unit] = array.array("d", struct.unpack(f"<{len(content) // 8}d", content))

    def digest(self):
        return digest(b"".join(self.read(unit) for unit in range(len(self.units))))


def digest(content):
    return "sha256:" + hashlib.sha256(content).hexdigest()


def alone(steps):
    network = Perceptron()
    for first in range(0, steps * BATCH, BATCH):
        micro_batches = range(first, first + BATCH, MICRO_BATCH)
        network.apply([network.gradient(range(n, n + MICRO_BATCH)) for n in micro_batches])
    return network.digest()


if __name__ == "__main__":
    print(alone(int(sys.argv[1])))
