"""Which samples a trainer reads, and in which order: for a job whose trainers come and go.

    data = reknit_data.Records("corpus.jsonl")               # or Tokens("corpus.bin", window=1024)
    order = reknit_data.Order(samples=len(data), seed=1)
    for step in job.steps(state):
        for positions in step.micro_batches:
            batch = [data[order[position]] for position in positions]

A step's positions are its numbers in the endless run of the data (the plan's consumedSamples, and on from there). An
order turns a position into a sample, epoch by epoch, at the same cost anywhere and without a table: a trainer that
joins, goes back or starts again is at its place at once. Files may be larger than memory.

Standard library, Python 3.9 or newer.
"""

import hashlib
import json
import mmap
import operator
import os
import struct
import sys
import tempfile

_64 = (1 << 64) - 1


class Order:
    """The order of so many samples in every epoch, an order of its own in each. The seed decides it.

    The same as shared/ledger of Reknit (Go) says: a Feistel network over the position within the epoch, again and
    again until the result is a sample."""

    _ROUNDS = 8

    def __init__(self, samples, seed=0):
        self.samples, self.seed = _whole("samples", samples, 1), _whole("seed", seed) & _64
        self._half = ((self.samples - 1).bit_length() + 1) // 2
        self._last = -1, 0  # epoch and its key, at once: several threads may ask

    def __getitem__(self, position):
        """The sample at a position of the endless run."""
        position = operator.index(position)  # numbers of numpy and torch overflow
        if position < 0:
            raise IndexError(f"position: expected at least 0, got {position}")
        epoch, at = divmod(position, self.samples)
        known, key = self._last
        if epoch != known:
            key = _scramble(self.seed ^ _scramble(epoch))
            self._last = epoch, key
        while True:
            at = self._encipher(at, key)
            if at < self.samples:
                return at

    def _encipher(self, at, key):
        mask = (1 << self._half) - 1
        left, right = at >> self._half, at & mask
        for number in range(self._ROUNDS):
            left, right = right, left ^ (_scramble((key + (number << 32) + right) & _64) & mask)
        return left << self._half | right


def _whole(name, value, least=None):
    """Returns a whole number of any package as Python's. ValueError: it is none, or less than the least."""
    try:
        number = operator.index(value)
    except TypeError:
        number = None
    if number is None or least is not None and number < least:
        bound = "" if least is None else f" of at least {least}"
        raise ValueError(f"{name}: expected a whole number{bound}, got {value!r:.80}")
    return number


def _scramble(z):
    """The finalizer of splitmix64."""
    z = (z + 0x9E3779B97F4A7C15) & _64
    z = ((z ^ z >> 30) * 0xBF58476D1CE4E5B9) & _64
    z = ((z ^ z >> 27) * 0x94D049BB133111EB) & _64
    return z ^ z >> 31


class Tokens:
    """A file of tokens, cut into windows: sample k is window + 1 tokens, of which the last is a target only."""

    def __init__(self, path, window, bytes_per_token=2):
        codes = {1: "B", 2: "H", 4: "I"}
        if bytes_per_token not in codes:
            raise ValueError(f"bytes_per_token: expected 1, 2 or 4, got {bytes_per_token}")
        self._code, self._size, self.window = codes[bytes_per_token], bytes_per_token, _whole("window", window, 1)
        self._map = _mapped(path)
        self._count = (len(self._map) // bytes_per_token - 1) // self.window
        if sys.byteorder != "little" and bytes_per_token > 1:
            raise ValueError(f"{path}: expected a machine that reads little-endian tokens")
        if self._count < 1:
            raise ValueError(f"{path}: expected at least {self.window + 1} tokens, got {len(self._map)} bytes")

    def __len__(self):
        return self._count

    def __getitem__(self, sample):
        """The tokens as a view of the file: torch.frombuffer and numpy.frombuffer take it as it is."""
        first = _within(sample, self._count) * self.window * self._size
        view = memoryview(self._map)[first:first + (self.window + 1) * self._size]
        return view.cast(self._code)


class Records:
    """A file of records that end in a newline: sample k is record k, without it.

    An index tells where each record begins, in 8 bytes each, and is PATH.index if nothing else is said. It is made by the
    first process that opens the file, in one reading, and made anew where the file has changed since. Beside a file on a
    read-only disk or in another user's folder it cannot be: then it is in the temporary directory, and this user's alone."""

    _MAGIC = b"REKNIT 1"
    _HEADER = struct.Struct("<8sQQQ")  # magic, bytes and modification time of the file, records

    def __init__(self, path, index=None):
        path = os.fspath(path)
        self._map = _mapped(path)
        self._stamp = (self._MAGIC, len(self._map), os.stat(path).st_mtime_ns)
        self._index = self._open(path, index)
        self._count = self._HEADER.unpack_from(self._index)[3]

    def _open(self, path, index):
        """Returns the index at a place that is told, beside the file, or in the temporary directory where it cannot be there."""
        if index:
            return self._there(index) or self._made(path, index)
        beside, own = path + ".index", _own_place(path)
        there = self._there(beside) or self._there(own, owned=True)
        if there:
            return there
        try:
            return self._made(path, beside)
        except OSError as error:
            try:
                return self._made(path, own)
            except OSError as neither:
                raise OSError(neither.errno, f"{path}: an index can be written neither beside it ({error.strerror}) nor to {own} "
                                             f"({neither.strerror}): name another place with index=") from error

    def _there(self, at, owned=False):
        """Returns the index at a place; None where there is none of this file, or where it is to be this user's and is not."""
        try:
            index = _mapped(at, owned)
            header = self._HEADER.unpack_from(index)
            if header[:3] == self._stamp and len(index) == self._HEADER.size + 8 * (header[3] + 1):
                return index
        except (OSError, ValueError, struct.error):
            pass
        return None

    def _made(self, path, at):
        self._build(path, at, self._stamp)
        return _mapped(at)

    def _build(self, path, at, stamp):
        """Several processes may build at once: each its own file, and the last to rename it wins."""
        handle, mine = tempfile.mkstemp(prefix=os.path.basename(at), dir=os.path.dirname(at) or ".")
        try:
            with open(path, "rb") as data, open(handle, "wb") as index:
                index.write(bytes(self._HEADER.size + 8))  # the first record begins at 0
                count = end = 0
                for record in data:
                    end += len(record)
                    count += 1
                    index.write(struct.pack("<Q", end))
                if end != stamp[1]:
                    raise ValueError(f"{path}: expected a file that nobody writes to, got {end} bytes where {stamp[1]} were when it was opened")
                index.seek(0)
                index.write(self._HEADER.pack(*stamp, count))
            os.chmod(mine, 0o644)
            os.replace(mine, at)
        except BaseException:
            os.remove(mine)
            raise

    def __len__(self):
        return self._count

    def __getitem__(self, sample):
        at = self._HEADER.size + 8 * _within(sample, self._count)
        first, end = struct.unpack_from("<QQ", self._index, at)
        return self._map[first:end].removesuffix(b"\n")


def _own_place(path):
    """Returns where this user's index of a file is that can have none beside it."""
    digest = hashlib.sha256(os.path.abspath(path).encode(errors="surrogateescape")).hexdigest()[:24]
    return os.path.join(tempfile.gettempdir(), f"reknit-index-{os.getuid()}-{digest}")


def _unfollowed(path, flags):
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


def _mapped(path, owned=False):
    with open(path, "rb", opener=_unfollowed if owned else None) as file:
        if owned and os.fstat(file.fileno()).st_uid != os.getuid():
            raise ValueError(f"{path}: expected a file of this user")
        if not os.fstat(file.fileno()).st_size:
            raise ValueError(f"{path}: expected data, got an empty file")
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def _within(sample, count):
    if not 0 <= sample < count:
        raise IndexError(f"sample: expected 0 to {count - 1}, got {sample}")
    return sample


class Ledger:
    """A record of what this trainer trained: a line for each range of positions in each step, in a file of its own.

    `note` before the step is committed: a step that does not count may be noted, one that counts must be."""

    def __init__(self, path):
        self._file = open(path, "a", encoding="ascii")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._file.close()

    def note(self, step):
        for first, end in step.samples:
            entry = {"generation": step.generation, "step": step.index,
                     "first": step.consumed + first, "end": step.consumed + end}
            self._file.write(json.dumps(entry) + "\n")
        self._file.flush()


def check(plans, entries, steps):
    """Finds the first fault in what so many steps trained; None where each position was trained once.

    Plans are those committed, in their order (generation, resumeStep and data of a plan document); entries are what
    all trainers noted, those of one layer's holders where a model is cut into stages. A step counts as it was
    noted under the newest plan that goes on from it or from before."""
    trained = {}
    for entry in entries:
        trained.setdefault((entry["generation"], entry["step"]), []).append((entry["first"], entry["end"]))
    position, positions = 0, {}
    for step in range(steps):
        positions[step] = position
        position += _skipped(plans, step)
        standing = [plan for plan in plans if plan["resumeStep"] <= step]
        if not standing:
            return f"step {step}: no plan goes on from it or from before"
        generation, end = standing[-1]["generation"], position + standing[-1]["data"]["globalBatch"]
        fault = _once(sorted(trained.get((generation, step), [])), position, end)
        if fault:
            return f"step {step}, generation {generation}: {fault}"
        position = end
    positions[steps] = position
    return _go_on(plans, positions)


def _once(ranges, first, end):
    """Returns what is wrong with ranges that should hold each position from first to end once, and None if nothing is."""
    for begin, until in ranges:
        if begin < first:
            return f"samples {begin} to {first} were trained twice"
        if begin > first:
            return f"samples {first} to {begin} were skipped"
        first = until
    if first < end:
        return f"samples {first} to {end} were skipped"
    if first > end:
        return f"samples {end} to {first} were trained a step early"
    return None


def _undone(plans, number):
    """Whether a later plan goes back before a plan."""
    return any(later["resumeStep"] < plans[number]["resumeStep"] for later in plans[number + 1:])


def _skipped(plans, step, count=None):
    """How many samples the first plans pass over before a step, as a user asked; without those that a later plan undid."""
    return sum(plan["data"].get("skipped", {"count": 0})["count"] for number, plan in enumerate(plans[:count])
               if plan["resumeStep"] == step and not _undone(plans, number))


def _go_on(plans, positions):
    """A plan that goes on at another position than its step has, unless a later one went back before it."""
    for number, plan in enumerate(plans):
        position = positions.get(plan["resumeStep"])
        if _undone(plans, number) or position is None:
            continue
        position += _skipped(plans, plan["resumeStep"], number + 1)
        if plan["data"]["consumedSamples"] != position:
            return (f"generation {plan['generation']} goes on at sample {plan['data']['consumedSamples']} "
                    f"from step {plan['resumeStep']}: expected {position}")
    return None
