"""What reknit_group.py promises: several groups of one process connect as those of several processes do."""

import os
import socket
import threading
import unittest
import unittest.mock

try:
    import torch

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


class Groups(unittest.TestCase):
    def groups(self, world, ranks):
        """Returns groups of this process: they connect as those of several processes do."""
        plane = Plane()
        return [reknit_group.Group("gloo", reknit_group.Store(plane, 1), rank, world) for rank in ranks]

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

    def test_a_group_sums_over_its_processes(self):
        results = []
        groups = self.groups(2, [0, 1])
        for thread in [self.sum(group, results) for group in groups]:
            thread.join()
        self.assertEqual([2, 2], results)
        for group in groups:
            group.leave()

    def test_an_abort_ends_a_sum_that_a_lost_process_keeps_waiting(self):
        results = []
        groups = self.groups(2, [0, 1])
        for thread in [self.sum(group, results) for group in groups]:
            thread.join()
        waiting = self.sum(groups[0], results)  # the other one never comes
        groups[0].abort()
        waiting.join(10)
        self.assertIsInstance(results[-1], RuntimeError)
        for group in groups:
            group.leave()

    def test_an_abort_ends_the_wait_for_a_process_that_never_connects(self):
        results = []
        group, = self.groups(2, [0])
        waiting = self.sum(group, results)
        group.abort()
        waiting.join(10)
        self.assertIsInstance(results[0], RuntimeError)

    def test_an_abort_ends_a_sum_of_which_gloo_tells_no_end(self):
        class Forgotten:
            def wait(self, timeout):
                raise RuntimeError("timed out")

            def is_completed(self):
                return False

        group, = self.groups(2, [0])
        threading.Timer(0.1, group.abort).start()
        with self.assertRaisesRegex(RuntimeError, "timed out"):
            reknit_group.Work(group, Forgotten()).wait()
        self.assertTrue(group.over)

    def test_a_group_that_cannot_connect_names_the_setting_by_which_machines_find_each_other(self):
        with unittest.mock.patch.dict(reknit_group.CONNECT, gloo=unittest.mock.Mock(side_effect=RuntimeError("Connection refused"))):
            group, = self.groups(2, [0])
            with self.assertRaisesRegex(RuntimeError, "GLOO_SOCKET_IFNAME.*Connection refused"):
                group.sum(torch.ones(1))

    def test_a_group_that_takes_long_to_connect_says_so(self):
        group, = self.groups(2, [0])
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
        group, = self.groups(2, [0])
        group.abort()
        self.sum(group, results).join(10)
        self.assertRegex(str(results[0]), "given up")

    def test_an_abort_leaves_connections_that_are_not_the_groups(self):
        with socket.create_server(("127.0.0.1", 0)) as server:
            early = socket.create_connection(server.getsockname())
            groups = self.groups(2, [0, 1])
            late = socket.create_connection(server.getsockname())  # while they connect
            ends = [early, late, server.accept()[0], server.accept()[0]]
            results = []
            for thread in [self.sum(group, results) for group in groups]:
                thread.join()
            for group in groups:
                group.leave()
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
