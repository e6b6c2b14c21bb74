"""Groups of processes that sum tensors with PyTorch, and of which any process may be lost: an abort ends every sum.

gloo is tested. NCCL is not: what differs is in CONNECT and Group.abort.
"""

import atexit
import contextlib
import datetime
import os
import socket
import threading
import time

import torch.distributed as dist

TIMEOUT_SECONDS = 300  # by which a process may be slower than others: the last resort, an abort comes long before
EXIT_SECONDS = 5  # for which the program's end waits for groups that are being left
CONNECT = {"gloo": dist.ProcessGroupGloo, "nccl": getattr(dist, "ProcessGroupNCCL", None)}


class Store(dist.Store):
    """What the processes of a group tell each other while they connect, through their agents."""

    def __init__(self, plane, generation):
        super().__init__()
        self.plane, self.generation = plane, generation

    def set(self, key, value):
        self.plane.set(self.generation, key, value.encode() if isinstance(value, str) else bytes(value))

    def get(self, key):
        return self.plane.get(self.generation, key, TIMEOUT_SECONDS)

    def add(self, key, number):
        return self.plane.add(self.generation, key, number)

    def wait(self, keys, timeout=None):
        for key in keys:
            self.get(key)


class Done:
    """A sum over one process."""

    def wait(self):
        """Waits for nothing."""


class Group:
    """The processes of one plan, connected. Built once, it is left for good when it breaks or another plan comes.

    gloo has no abort: what ends its collectives is the end of their connections, which are the sockets that appeared
    while the group was built.
    """

    def __init__(self, backend, store, rank, world):
        self.store = store  # C++ keeps no reference to what Python knows of it
        self._lock = threading.Lock()
        self._decided = threading.Event()  # built, failed or aborted
        self._error, self._processes, self._over = "", None, False
        self._alone = world == 1
        self._before = connections()
        self._sockets = None  # of the group, once it is built
        if not self._alone:
            beside(self._build, CONNECT[backend], rank, world)

    def _build(self, connect, rank, world):
        processes, error = None, ""
        try:
            processes = connect(self.store, rank, world, datetime.timedelta(seconds=TIMEOUT_SECONDS))
        except Exception as failure:  # of whatever kind the store or the backend raises
            error = f"connect to the other processes: {failure}"
        with self._lock:
            if not self._over:
                self._processes, self._error = processes, error
                self._sockets = self._appeared()
            self._decided.set()

    def _appeared(self):
        return connections().items() - self._before.items()

    @property
    def connected(self):
        """Whether a sum begins at once."""
        return self._alone or self._decided.is_set()

    def begin(self, tensor):
        """Begins to add up a tensor over all processes, in place, and returns what waits for it.

        All processes begin the same sums in the same order. RuntimeError: it cannot be done with this group any more.
        """
        return Done() if self._alone else self._connection().allreduce([tensor])

    def sum(self, tensor):
        """Adds up a tensor over all processes, in place."""
        self.begin(tensor).wait()
        tensor[0].item()  # on a GPU it is only this that waits for the sum: the gate must not be passed before

    def send(self, tensor, rank, tag):
        """Begins to send a tensor to a process, and returns what to wait for before the tensor is changed."""
        return self._connection().send([tensor], rank, tag)

    def receive(self, tensor, rank, tag):
        """Waits for the next tensor that a process sends under a tag."""
        self._connection().recv([tensor], rank, tag).wait()

    def _connection(self):
        """Returns the connected processes. Nobody may keep them, for they would not be let go of."""
        self._decided.wait()  # _build ends within the timeout, an abort at once
        with self._lock:
            if self._processes is None:
                raise RuntimeError(self._error)
            return self._processes

    def abort(self):
        """Ends what is under way, and all that begins later. It may be called from any thread."""
        with self._lock:
            if self._over:
                return
            self._over, self._error = True, self._error or "the step was given up"
            sockets = self._appeared() if self._sockets is None else self._sockets & connections().items()
            for file, _ in sockets:
                shut(file)
            if hasattr(self._processes, "abort"):  # NCCL, and gloo of some later PyTorch
                self._processes.abort()
            self._decided.set()

    def leave(self):
        """Lets go of the group. Its destructor waits for what is under way: it runs on a thread of its own."""
        self.abort()
        with self._lock:
            kept, self._processes = [self._processes], None
        beside(kept.clear)


_threads = []  # that may be inside of a process group


def beside(work, *arguments):
    """Runs something that may take as long as a collective on a thread of its own."""
    _threads[:] = [thread for thread in _threads if thread.is_alive()]
    _threads.append(threading.Thread(target=work, args=arguments, daemon=True))
    _threads[-1].start()


@atexit.register
def _await():
    """Waits a while for these threads: one that leaves C++ while Python ends takes the process down with SIGABRT."""
    until = time.monotonic() + EXIT_SECONDS
    for thread in _threads:
        thread.join(max(0, until - time.monotonic()))


def connections():
    """Returns the open sockets of this process: by file, what the kernel calls it."""
    found = {}
    for file in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # closed meanwhile
            name = os.readlink(f"/proc/self/fd/{file}")
            if name.startswith("socket:"):
                found[int(file)] = name
    return found


def shut(file):
    """Shuts a connection over the network, for both of its ends. Other sockets are left."""
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(file)) as connection:
        listens = connection.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN)
        if connection.family in (socket.AF_INET, socket.AF_INET6) and not listens:
            connection.shutdown(socket.SHUT_RDWR)
