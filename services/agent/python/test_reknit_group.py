"""What reknit_group.py promises, to processes that share a board in the place of their agents."""

import collections
import contextlib
import functools
import itertools
import multiprocessing
import os
import socket
import struct
import threading
import time
import unittest
import unittest.mock
from concurrent import futures
from multiprocessing import managers

try:
    import torch

    import reknit
    import reknit_group
except ImportError as missing:
    raise unittest.SkipTest(f"PyTorch is not installed: {missing}")

os.environ["GLOO_SOCKET_IFNAME"] = "lo"


class Plane:
    """The values that processes share, without agents."""

    def __init__(self):
        self.values, self.changed = {}, threading.Condition()

    def set(self, generation, key, value):
        with self.changed:
            self.values[key] = value
            self.changed.notify_all()

    def get(self, generation, key, wait):
        with self.changed:
            if not self.changed.wait_for(lambda: key in self.values, wait):
                raise KeyError(key)
            return self.values[key]

    def add(self, generation, key, number):
        with self.changed:
            self.values[key] = b"%d" % (int(self.values.get(key, b"0")) + number)
            return int(self.values[key])


class Shared(managers.BaseManager):
    """Serves what the processes of a test share."""


Shared.register("Plane", Plane)
FORKSERVER = multiprocessing.get_context("forkserver")  # a fork of the process of the tests could not train
FORKSERVER.set_forkserver_preload(["torch", "torch._dynamo"])  # the first optimizer of a process imports the second, for a second
KEPT = []  # by a process until its end, for who leaves a group ends the sums of others


@contextlib.contextmanager
def shared(kind, count):
    """Yields something that processes may share, of a registered kind, and a pool of so many processes."""
    with Shared(ctx=FORKSERVER) as manager, futures.ProcessPoolExecutor(count, FORKSERVER) as pool:
        yield getattr(manager, kind)(), pool


def in_processes(work, kind, *arguments):
    """Does work(what they share, argument) in a process for each argument, and returns what came of each.

    Each process has one group: PyTorch before 2.7 registers a new group without Python's lock (its pull request 143598),
    and four that connected at once in one process took it down after some hundred times.
    """
    with shared(kind, len(arguments)) as (board, pool):
        return list(pool.map(work, itertools.repeat(board), arguments))


def connected(plane, rank, world):
    return reknit_group.Group("gloo", reknit_group.Store(plane, 1), rank, world)


def sum_once(plane, rank):
    """Returns what came of a sum over two processes."""
    group, tensor = connected(plane, rank, 2), torch.ones(10)
    KEPT.append(group)
    group.sum(tensor)
    return tensor[0].item()


def sum_and_stay(plane):
    """Sums once as the second of two processes, and leaves once it is told to."""
    group = connected(plane, 1, 2)
    group.sum(torch.ones(10))
    plane.get(1, "over", 60)
    group.leave()


def abort_or_sum(plane, rank):
    """Aborts as the first process, and returns as the second what comes of its sum."""
    reknit_group.TIMEOUT_SECONDS = 20
    group = connected(plane, rank, 2)
    KEPT.append(group)
    group.sum(torch.ones(10))
    if rank == 0:
        plane.get(1, "sums", 10)
        return group.abort()
    plane.set(1, "sums", b"")
    try:
        return group.sum(torch.ones(10))
    except RuntimeError as error:
        return str(error)


def written_after_the_wait(plane, rank):
    """Returns what a sum of two processes has written into memory that was set to zero once an abort had ended the wait for it."""
    group, tensor = connected(plane, rank, 2), torch.ones(1)
    KEPT.append(group)
    if rank == 1:
        plane.get(1, "the wait is over", 20)
        group.sum(tensor)
        return tensor.item()
    work = group.begin(tensor)
    with unittest.mock.patch.object(group, "_cut"):  # an abort counts before the connections are cut
        group.abort()
    with contextlib.suppress(RuntimeError):
        work.wait()
    tensor.zero_()
    plane.set(1, "the wait is over", b"")
    for _ in range(200):
        if tensor.item():
            break
        time.sleep(0.1)
    return tensor.item()


def acknowledged(connection):
    """Returns the bytes that the other end of a connection has acknowledged (Linux, include/uapi/linux/tcp.h: tcpi_bytes_acked)."""
    return struct.unpack_from("=Q", connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256), 120)[0]


def sent_in_sums(add_up, plane, rank):
    """Returns what this process, one of four, sent over each of its connections while it added up, by both ends' addresses."""
    group, sends, tensor = connected(plane, rank, 4), [], torch.full([1_000_000], float(rank))
    KEPT.append([group, sends])
    group.sum(torch.ones(1))
    before = {file: bytes_sent for file, _, bytes_sent in connections()}
    if add_up:
        reknit_group.add_up(group, tensor, [0, 2, 1, 3], rank, sends)
    else:
        group.sum(tensor)
    group.sum(torch.ones(1))  # all have come
    return tensor.unique().tolist(), [(ends, now - before[file]) for file, ends, now in connections() if file in before]


def connections():
    """Yields each TCP connection of this process: its file, the addresses of both ends, and the bytes sent over it."""
    for file in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError), reknit_group.duplicate(int(file)) as connection:
            if connection.family in reknit_group.ADDRESS_BYTES:
                yield file, (connection.getsockname(), connection.getpeername()), acknowledged(connection)


class Ring(unittest.TestCase):
    def neighbours(self, add_up):
        """Returns the pairs of four processes between which more than bookkeeping went while they added up four megabytes."""
        told = in_processes(functools.partial(sent_in_sums, add_up), "Plane", *range(4))
        self.assertEqual([[6.0]] * 4, [sums for sums, _ in told])
        of = {ends[0]: rank for rank, (_, sent) in enumerate(told) for ends, _ in sent}
        went = collections.Counter()
        for rank, (_, sent) in enumerate(told):
            for (_, peer), count in sent:
                if peer in of:
                    went[frozenset([rank, of[peer]])] += count
        self.assertEqual(24_000_000, round(sum(went.values()), -5))  # 2(g-1)/g of the tensor leave each of them
        return {tuple(sorted(pair)) for pair, count in went.items() if count > 100_000}

    def test_gloo_adds_up_around_a_ring_by_rank(self):
        self.assertEqual({(0, 1), (1, 2), (2, 3), (0, 3)}, self.neighbours(False))

    def test_some_ranks_add_up_in_the_order_of_the_plan(self):
        self.assertEqual({(0, 2), (1, 2), (1, 3), (0, 3)}, self.neighbours(True))


class Groups(unittest.TestCase):
    def group(self):
        """Returns a group of which the other process is not there."""
        group = connected(Plane(), 0, 2)
        self.addCleanup(group.leave)
        return group

    def sum(self, group, results):
        """Sums on a thread, and puts what comes of it into results."""
        def run():
            tensor = torch.ones(10)
            try:
                group.sum(tensor)
                results.append(tensor[0].item())
            except RuntimeError as error:
                results.append(error)
        thread = threading.Thread(target=run)
        thread.start()
        return thread

    @contextlib.contextmanager
    def summed(self):
        """Yields a group whose other process has summed once with it, and sums no more."""
        with shared("Plane", 1) as (plane, pool):
            other = pool.submit(sum_and_stay, plane)
            group = connected(plane, 0, 2)
            try:
                group.sum(torch.ones(10))
                yield group
            finally:
                group.leave()
                plane.set(1, "over", b"")
                other.result(10)

    def test_a_group_sums_over_its_processes(self):
        self.assertEqual([2, 2], in_processes(sum_once, "Plane", 0, 1))

    def test_an_abort_ends_a_sum_that_a_lost_process_keeps_waiting(self):
        results = []
        with self.summed() as group:
            waiting = self.sum(group, results)
            waiting.join(0.1)
            self.assertTrue(waiting.is_alive())
            group.abort()
            waiting.join(10)
        self.assertIsInstance(results[0], RuntimeError)

    def test_an_abort_ends_the_sums_of_the_others(self):
        _, came = in_processes(abort_or_sum, "Plane", 0, 1)
        self.assertRegex(came, "Connection (closed|reset) by peer")

    def test_an_abort_ends_the_wait_for_a_process_that_never_connects(self):
        results = []
        group = self.group()
        waiting = self.sum(group, results)
        group.abort()
        waiting.join(10)
        self.assertIsInstance(results[0], RuntimeError)

    def test_an_abort_ends_the_wait_before_the_thread_that_connects_looks_again(self):
        looks, plane, results = threading.Event(), Plane(), []
        plane.get = lambda *_: plane.values[looks.wait(60)]  # KeyError: it is not set
        group = connected(plane, 0, 2)
        self.addCleanup(group.leave)
        self.addCleanup(looks.set)
        waiting = self.sum(group, results)
        group.abort()
        waiting.join(10)
        self.assertIsInstance(results[0], RuntimeError)

    def test_an_abort_ends_the_thread_that_connects_to_a_process_that_never_comes(self):
        with unittest.mock.patch.object(reknit_group, "ASK_SECONDS", 0.01):
            group = self.group()
            connects = reknit_group._threads[-1]
            group.abort()
            connects.join(10)
        self.assertFalse(connects.is_alive())

    def test_the_end_of_the_program_ends_what_connects_though_nobody_left_the_group(self):
        with unittest.mock.patch.object(reknit_group, "ASK_SECONDS", 0.01), unittest.mock.patch.object(reknit_group, "EXIT_SECONDS", 10):
            group = self.group()
            connects = reknit_group._threads[-1]
            reknit_group._await()
        self.assertTrue(group.over)
        self.assertFalse(connects.is_alive())

    def test_a_child_that_ends_leaves_the_groups_of_its_parent_alone(self):
        group = self.group()
        self.assertIn(group, reknit_group._groups)
        child = os.fork()
        if child == 0:
            group.leave()  # as a generator does that is let go of
            try:
                group.begin(None)
            except reknit.WrongOrder:
                os._exit(len(reknit_group._groups) + group.over)
            os._exit(9)
        self.assertEqual(0, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))

    def test_an_abort_ends_a_sum_of_which_gloo_tells_no_end(self):
        class Forgotten:
            def wait(self, timeout):
                raise RuntimeError("timed out")

            def is_completed(self):
                return False

        group = self.group()
        threading.Timer(0.1, group.abort).start()
        with self.assertRaisesRegex(RuntimeError, "timed out"):
            reknit_group.Work(group, Forgotten()).wait()
        self.assertTrue(group.over)

    def test_a_sum_goes_on_and_writes_though_an_abort_has_ended_the_wait_for_it(self):
        self.assertNotIn(0.0, in_processes(written_after_the_wait, "Plane", 0, 1))  # so nothing else may lie in its memory: reknit_gradients

    def test_a_sum_that_ends_as_the_wait_for_it_runs_out_is_made(self):
        for over in (False, True):
            group, late = self.group(), unittest.mock.Mock(wait=unittest.mock.Mock(side_effect=[RuntimeError("timed out"), True]))
            late.is_completed.return_value = True
            if over:
                group.abort()  # whether the step counts is the agent's to say
            reknit_group.Work(group, late).wait()
            self.assertEqual([unittest.mock.call(unittest.mock.ANY), unittest.mock.call()], late.wait.call_args_list)

    def test_a_sum_that_fails_as_the_wait_for_it_runs_out_says_why(self):
        late = unittest.mock.Mock(wait=unittest.mock.Mock(side_effect=[RuntimeError("timed out"), RuntimeError("Connection reset")]))
        late.is_completed.return_value = True
        with self.assertRaisesRegex(RuntimeError, "Connection reset"):
            reknit_group.Work(self.group(), late).wait()

    def test_a_group_that_cannot_connect_names_the_setting_by_which_machines_find_each_other(self):
        with unittest.mock.patch.dict(reknit_group.CONNECT, gloo=unittest.mock.Mock(side_effect=RuntimeError("Connection refused"))):
            group = self.group()
            with self.assertRaisesRegex(RuntimeError, "GLOO_SOCKET_IFNAME.*Connection refused"):
                group.sum(torch.ones(1))

    def test_a_group_that_takes_long_to_connect_says_so(self):
        group = self.group()
        with unittest.mock.patch.object(reknit_group, "SLOW_SECONDS", 0.05), \
                unittest.mock.patch("builtins.print", side_effect=lambda *_, **to: group.abort()) as told, \
                self.assertRaises(RuntimeError):
            group.sum(torch.ones(1))
        self.assertIn("GLOO_SOCKET_IFNAME", told.call_args[0][0])

    def test_the_store_says_which_keys_are_set(self):
        store = reknit_group.Store(Plane(), 1)
        store.set("a", "1")
        self.assertTrue(store.check(["a"]))
        self.assertFalse(store.check(["a", "b"]))

    def test_a_group_that_was_aborted_sums_no_more(self):
        results = []
        group = self.group()
        group.abort()
        self.sum(group, results).join(10)
        self.assertRegex(str(results[0]), "given up")

    def test_an_abort_leaves_connections_that_are_not_the_groups(self):
        with socket.create_server(("127.0.0.1", 0)) as server:
            early = socket.create_connection(server.getsockname())
            with self.summed() as group:
                late = socket.create_connection(server.getsockname())
                ends = [early, late, server.accept()[0], server.accept()[0]]
                group.abort()
            for one, other in [(0, 2), (1, 3)]:
                ends[one].sendall(b"?")
                self.assertEqual(b"?", ends[other].recv(1))
            for end in ends:
                end.close()

    def test_an_address_is_found_in_what_gloo_says(self):
        for family, address in [(socket.AF_INET, ("10.0.0.7", 4711)), (socket.AF_INET6, ("fe80::7", 4711, 0, 2))]:
            said = b"\x02\x00" + reknit_group.raw(family, address) + bytes(100)
            self.assertIn(reknit_group.raw(family, address), reknit_group.addresses_in(said))
            self.assertNotIn(reknit_group.raw(family, (address[0], 4712, *address[2:])), reknit_group.addresses_in(said))


if __name__ == "__main__":
    unittest.main()
