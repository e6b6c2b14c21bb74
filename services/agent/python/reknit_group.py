"""Groups of processes that sum tensors with PyTorch, and of which any process may be lost: an abort ends every sum.

gloo adds up around a ring by rank (its allreduce.cc: each process receives from the rank above and sends to the rank below), and
ranks follow the order that the plan has for the gradients. NCCL finds an order of its own, in which a slow pair may be neighbours.

Tested are gloo with PyTorch 1.13 and 2.11, and NCCL with 2.11. NCCL differs in connect_nccl, Group._cut and Group.finish
alone.
"""

import atexit
import contextlib
import ctypes
import datetime
import os
import re
import socket
import struct
import sys
import threading
import time
import weakref

import torch
import torch.distributed as dist

import reknit

TIMEOUT_SECONDS = 300  # by which a process may be slower than others: the last resort, an abort comes long before
SLOW_SECONDS = 20  # after which a sum that waits for connections says so
WAKE_SECONDS = 0.5  # between two looks whether a group was aborted
ASK_SECONDS = 2  # between two looks while it connects. The end of the program waits for such a look: less than EXIT_SECONDS
DATA_PLANE = 3  # version of what add_up has processes say to each other: those of another one are of another job
SUM = 0  # tag of what is summed. No pass has it: to the first hop of a micro-batch comes nothing but gradients
EXIT_SECONDS = 5  # for which the program's end waits for groups that are being left


def connect_nccl(*arguments):
    """Returns a group of NCCL, of which a collective that fails does not take the process down."""
    for name in ("NCCL_ASYNC_ERROR_HANDLING", "TORCH_NCCL_ASYNC_ERROR_HANDLING"):  # of PyTorch 1, and from 2.2 on
        os.environ.setdefault(name, "0")  # an abort ends it
    return dist.ProcessGroupNCCL(*arguments)


CONNECT = {"gloo": dist.ProcessGroupGloo, "nccl": connect_nccl}


class Store(dist.Store):
    """The store through which the processes of a group tell each other, by their agents, what they need to connect.

    Among it are the addresses at which they listen: what it said is how the group's connections are known from others.
    """

    def __init__(self, plane, generation):
        super().__init__()
        self.plane, self.generation = plane, generation
        self.said = {}  # values by key
        self.over = False  # nobody connects with it any more

    def set(self, key, value):
        value = value.encode() if isinstance(value, str) else bytes(value)
        self.said[key] = value
        self.plane.set(self.generation, key, value)

    def get(self, key):
        until = time.monotonic() + TIMEOUT_SECONDS
        while True:
            try:
                self.said[key] = value = self.plane.get(self.generation, key, ASK_SECONDS)
                return value
            except KeyError as error:  # it is not set yet
                if self.over or time.monotonic() >= until:
                    raise RuntimeError(f"{key}: {error}") from error
            except Exception as error:  # the step is given up, or the agent is gone
                raise RuntimeError(f"{key}: {error}") from error

    def add(self, key, number):
        return self.plane.add(self.generation, key, number)

    def wait(self, keys, timeout=None):
        for key in keys:
            self.get(key)

    def check(self, keys):
        try:
            return all(self.plane.get(self.generation, key, 0) is not None for key in keys)
        except Exception:  # not set, or over
            return False

    def clone(self):
        return self  # for another thread, of which each has a connection of its own


class Work:
    """A sum that was begun. When a connection ends, gloo at times forgets to wake the sum that still sends.

    Not for a send or a receive: there a wait that ends in time without success breaks the connection.
    """

    def __init__(self, group, work):
        self._group, self._work = group, work

    def wait(self):
        """Waits for its end, and not longer than WAKE_SECONDS after an abort. RuntimeError: it failed.

        A sum may end just after a wait for it ran out, so a wait that ran out tells nothing of a sum that has ended: that is asked
        once more. 86 of 269 such waits were for sums that had been made (gloo, PyTorch 1.13, two busy cores).
        """
        while self._group.forgets:
            try:
                self._work.wait(datetime.timedelta(seconds=WAKE_SECONDS))
                return
            except RuntimeError:
                if self._work.is_completed():
                    break
                if self._group.over:
                    raise
        self._work.wait()


class Done:
    """A sum over one process."""

    def wait(self):
        """Waits for nothing."""


class Group:
    """The processes of one plan, connected. Built once, it is left for good when it breaks or another plan comes.

    gloo has no abort: what ends its collectives is the end of their connections, those of which one end is an address
    that the processes told each other in the store.
    """

    def __init__(self, backend, store, rank, world):
        self.store = store  # C++ keeps no reference to what Python knows of it
        self._lock = threading.Lock()
        self._decided = threading.Event()  # built, failed or aborted
        self._error, self._processes, self.over = "", None, False
        self.theirs = False  # of the process of which this one is a fork
        self._alone = world == 1
        setting = f"{backend.upper()}_SOCKET_IFNAME"
        self._setting = f"{setting}={os.environ.get(setting, '')!r}: expected the interface to the other machines"
        self.forgets = backend == "gloo"
        _groups.add(self)
        if not self._alone:
            beside(self._build, CONNECT[backend], rank, world)

    def _build(self, connect, rank, world):
        processes, error = None, ""
        try:  # before PyTorch 2.7 this changes a table of pybind11's without Python's lock: 24,000 times beside zero_grad went well
            processes = connect(self.store, rank, world, datetime.timedelta(seconds=TIMEOUT_SECONDS))
        except Exception as failure:  # of whatever kind the store or the backend raises
            error = f"connect to the other processes ({self._setting}): {failure}"
        with self._lock:
            if not self.over:
                self._processes, self._error = processes, error
            self._decided.set()
        if self.over:
            self._cut(processes)  # the abort came before there was what it ends

    @property
    def connected(self):
        """Whether a sum begins at once."""
        return self._alone or self._decided.is_set()

    def begin(self, tensor):
        """Begins to add up a tensor over all processes, in place, and returns what waits for it.

        All processes begin the same sums in the same order. RuntimeError: it cannot be done with this group any more.
        """
        return Done() if self._alone else Work(self, self._connection().allreduce([tensor]))

    def sum(self, tensor):
        """Adds up a tensor over all processes, in place."""
        self.begin(tensor).wait()
        self.finish(tensor)

    def finish(self, tensor):
        """Returns once all sums are made that were waited for, of which tensor is the last. RuntimeError: one was cut.

        With NCCL it is only this that waits, for the GPU; and a sum that an abort cuts ends there without an error.
        """
        tensor[0].item()
        if self.over and tensor.is_cuda:
            raise RuntimeError(self._error)

    def send(self, tensor, rank, tag):
        """Begins to send a tensor to a process, and returns what to keep until that process has it.

        Nobody waits for it: when a connection ends, gloo at times forgets to wake who waits for a sending.
        """
        return self._connection().send([tensor], rank, tag)

    def receive(self, tensor, rank, tag):
        """Waits for the next tensor that a process sends under a tag."""
        self._connection().recv([tensor], rank, tag).wait()

    def _connection(self):
        """Returns the connected processes. Nobody may keep them, for they would not be let go of."""
        if self.theirs:
            raise reknit.WrongOrder(reknit.FORKED)
        if not self._decided.wait(SLOW_SECONDS):
            print(f"reknit: the other processes are not connected yet ({self._setting})", file=sys.stderr)
        self._decided.wait()  # _build ends within the timeout, an abort at once
        with self._lock:
            if self._processes is None:
                raise RuntimeError(self._error)
            return self._processes

    def abort(self):
        """Ends what is under way, and all that begins later. It may be called from any thread."""
        if self.theirs:
            return
        with self._lock:
            if self.over:
                return
            self.over = self.store.over = True
            self._error = self._error or "the step was given up"
            processes = self._processes
        self._cut(processes)
        self._decided.set()

    def _cut(self, processes):
        if self._alone:
            return
        if self.forgets:
            shut_connections(self.store.said.values())
            return  # its own abort, which PyTorch 2.11 has, is not needed
        for name in ("abort", "_abort", "_shutdown"):  # of NCCL, in PyTorch from 2.7, from 2.6 and from 2.0 on
            if hasattr(processes, name):
                getattr(processes, name)()
                break

    def leave(self):
        """Lets go of the group. Its destructor waits for what is under way: it runs on a thread of its own."""
        if self.theirs:
            return
        self.abort()
        with self._lock:
            kept, self._processes = [self._processes], None
        beside(kept.clear)


def add_up(group, tensor, ranks, rank, sends):
    """Adds up a tensor of one dimension over some processes of a group, in place, around a ring in the order of their ranks.

    Each of g processes sends nothing but to the next one: 2(g-1)/g of the tensor, in 2(g-1) turns, each of which takes a link's
    latency. A slow link costs nothing where the order of the plan has no neighbours use it. Requests that must be kept until all
    processes are through are added to sends. The sum of a part comes around from who has received this process's addend to it, so
    that it may take the addend's place.
    """
    count, at = len(ranks), ranks.index(rank)
    parts, after, before = tensor.tensor_split(count), ranks[(at + 1) % count], ranks[at - 1]
    for hop in range(2 * (count - 1)):
        given, taken = parts[(at - hop - 1) % count], parts[(at - hop - 2) % count]
        adds = hop < count - 1  # then the sums come around
        came = torch.empty_like(taken) if adds else taken
        if given.numel():
            sends.append(group.send(given, after, SUM))
        if taken.numel():
            group.receive(came, before, SUM)
        if adds:
            taken.add_(came)


_threads = []  # that may be inside of a process group
_groups = weakref.WeakSet()  # of this process


def _let_be():
    """Has a child of this process keep the groups as they are: their ends would shut the connections of its parent, or wait for threads that
    it does not have."""
    for group in list(_groups):
        group.theirs = True
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(group._processes))
    _groups.clear()


os.register_at_fork(after_in_child=_let_be)


def beside(work, *arguments):
    """Runs something that may take as long as a collective on a thread of its own."""
    if sys.is_finalizing():  # no thread begins any more, and who waited for that would wait for ever
        return
    _threads[:] = [thread for thread in _threads if thread.is_alive()]
    _threads.append(threading.Thread(target=work, args=arguments, daemon=True))
    _threads[-1].start()


@atexit.register
def _await():
    """Aborts all groups, and waits a while for these threads: one that leaves C++ while Python ends takes the process down with SIGABRT."""
    for group in list(_groups):
        group.abort()
    until = time.monotonic() + EXIT_SECONDS
    for thread in _threads:
        thread.join(max(0, until - time.monotonic()))


def shut_connections(said):
    """Shuts the connections of this process, for both of their ends, of which an end has its address in what was said."""
    known = addresses_in(b"".join(said))
    for file in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError), duplicate(int(file)) as connection:  # OSError: no connection, or closed meanwhile
            if connection.family in ADDRESS_BYTES:
                ends = {raw(connection.family, end) for end in (connection.getpeername(), connection.getsockname())}
                if ends & known:
                    connection.shutdown(socket.SHUT_RDWR)


def duplicate(file):
    """Returns a socket of its own for an open file. OSError: it is no socket."""
    copy = os.dup(file)
    try:
        return socket.socket(fileno=copy)
    except OSError:
        os.close(copy)
        raise


# By family, of an address of the internet as it lies in memory, from the family on: gloo tells its addresses so.
ADDRESS_BYTES = {socket.AF_INET: 8, socket.AF_INET6: 24}


def addresses_in(said):
    """Returns whatever may be an address."""
    found = set()
    for family, size in ADDRESS_BYTES.items():
        begin = re.escape(struct.pack("=H", family))
        found.update(re.findall(b"(?=(%s.{%d}))" % (begin, size - 2), said, re.DOTALL))
    return found


def raw(family, address):
    """Returns an address of a socket as it lies in memory."""
    flow = struct.pack(">I", address[2]) if family == socket.AF_INET6 else b""
    return struct.pack("=H", family) + struct.pack(">H", address[1]) + flow + socket.inet_pton(family, address[0].split("%")[0])
