"""What reknit.py promises, with a stand-in for the agent; tests/workers shows it in a cluster."""

import contextlib
import fcntl
import http.server
import json
import mmap
import os
import pathlib
import queue
import signal
import socket
import socketserver
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import unittest.mock
import urllib.parse

import reknit

PATIENCE = 20.0  # seconds; nothing takes that long
ABORT, COMPLETED, READY, PHASE, WORK, STILL, OUT = range(7)


class Agent(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """Gives the orders that a test puts, and keeps what the trainer reports."""

    daemon_threads = True

    def __init__(self, units=(8,), folder=None):
        self.folder = folder or tempfile.TemporaryDirectory(prefix="rk-")
        for name, size in [("control", 4096)] + [(f"unit-{n}", size) for n, size in enumerate(units)]:
            with open(os.path.join(self.folder.name, name), "ab") as file:
                file.truncate(size)
        with open(os.path.join(self.folder.name, "control"), "r+b") as file:
            self.page = memoryview(mmap.mmap(file.fileno(), 0)).cast("Q")
        self.orders, self.reports, self.lines = queue.Queue(), queue.Queue(), queue.Queue()
        self.joined, self.values = [], {}
        self.failed = []  # why scripts ended
        self.refusal = None  # status and words for the next call
        self.announced, self.silenced = [], threading.Event()  # nodes; that one hung up
        self.hung_up = threading.Event()
        self.id, self.connections = 0, []
        self.socket_path = os.path.join(self.folder.name, "agent.sock")
        super().__init__(self.socket_path, Handler)
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    def process_request(self, request, client_address):
        self.connections.append(request)
        super().process_request(request, client_address)

    def handle_error(self, request, client_address):
        """A trainer that is gone does not take its answer."""

    def order(self, kind, **fields):
        self.id += 1
        self.orders.put(dict(fields, order=kind, id=self.id))

    def step(self, index, **fields):
        self.order("step", **dict(dict(
            index=index, generation=1, switched=False, resume=0, rank=0, world=2, nodes=["a", "b"],
            samples=[[0, 2], [5, 6]], batch=6, microBatch=1, consumed=6 * index, learningRateScale=1), **fields))

    def abort(self, step=None):
        self.page[ABORT] = step or self.id
        self.lines.put({"abort": step or self.id})

    def report(self):
        return self.reports.get(timeout=PATIENCE)

    def restart(self):
        """Ends, and returns the agent that comes in its place."""
        self.end()
        os.unlink(self.socket_path)
        return Agent(folder=self.folder)

    def end(self):
        """Ends as a process does that is killed."""
        self.shutdown()
        self.server_close()
        self.lines.put(None)
        self.orders.put(None)
        for connection in self.connections:
            with contextlib.suppress(OSError):  # it is over already
                connection.shutdown(socket.SHUT_RDWR)

    def close(self):
        self.end()
        self.folder.cleanup()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def address_string(self):
        return "trainer"

    def log_message(self, *arguments):
        pass

    def answer(self, status, what):
        body = what if isinstance(what, bytes) else json.dumps(what).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/octet-stream" if isinstance(what, bytes) else "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        agent, body = self.server, self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = urllib.parse.urlsplit(self.path).path
        if agent.refusal:
            (status, words), agent.refusal = agent.refusal, None
            return self.answer(status, {"error": words, "fix": "mend it"})
        if path == "/v1/join":
            agent.joined.append(json.loads(body))
            return self.answer(200, {"session": "s", "node": "a", "dir": agent.folder.name})
        if not agent.joined:  # the session was with the agent before
            return self.answer(404, {"error": "no such session", "fix": "join"})
        if path == "/v1/next":
            agent.reports.put(json.loads(body))
            order = agent.orders.get()
            if order is None:
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)
                return None
            return self.answer(200, order)
        if path == "/v1/fail":
            failed = json.loads(body)
            agent.failed.append(failed["reason"] if failed["inStep"] else f"{failed['reason']}, in a step that was given up")
        return self.answer(200, {})

    def do_PUT(self):
        self.server.values[self.path.partition("?")[0]] = self.rfile.read(int(self.headers["Content-Length"]))
        self.answer(200, {})

    def announce(self):
        agent = self.server
        if agent.refusal:
            (status, words), agent.refusal = agent.refusal, None
            return self.answer(status, {"error": words, "fix": "mend it"})
        agent.announced.append(urllib.parse.parse_qs(urllib.parse.urlsplit(self.path).query).get("node", [""])[0])
        line = json.dumps({"announced": "a"}).encode() + b"\n"
        self.wfile.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n" % (len(line), line))  # as Go's server does
        self.rfile.read(1)
        agent.silenced.set()
        self.close_connection = True
        return None

    def do_GET(self):
        agent = self.server
        if self.path.startswith("/v1/announce"):
            return self.announce()
        if not self.path.startswith("/v1/session"):
            if not agent.joined:  # the session was with the agent before
                return self.answer(410, {"error": "no such session", "fix": "join"})
            value = agent.values.get(self.path.partition("?")[0])
            if value is None:
                return self.answer(404, {"error": "nobody has set it", "fix": "set it"})
            return self.answer(200, value)
        threading.Thread(target=self.hear_the_end, daemon=True).start()
        self.wfile.write(b"HTTP/1.0 200 OK\r\n\r\n" + json.dumps({"session": "s"}).encode() + b"\n")
        while (line := agent.lines.get()) is not None:
            self.wfile.write(json.dumps(line).encode() + b"\n")
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)  # or its reader would keep it open
        return None

    def hear_the_end(self):
        try:
            self.rfile.read(1)
        except OSError:
            pass
        self.server.hung_up.set()


class State:
    """Notes what it is asked for."""

    def __init__(self):
        self.asked = []

    def adopt(self, step, took):
        self.asked.append(("adopt", step, took))

    def apply(self, step):
        self.asked.append(("apply", step))

    def give(self, units, step):
        self.asked.append(("give", units, step))


WRONG = [  # arguments of join, and what is said of them
    ({"batch": 0}, r"batch: expected a whole number from 1 to 9007199254740991, got 0"),
    ({"batch": "8"}, r"batch: expected a whole number from 1 to \d+, got '8'"),
    ({"batch": 8.0}, r"batch: expected a whole number from 1 to \d+, got 8.0"),
    ({"batch": True}, r"batch: expected a whole number from 1 to \d+, got True"),
    ({"micro_batch": 3}, r"micro_batch: expected a divisor of batch, 8, got 3"),
    ({"micro_batch": None}, r"micro_batch: expected a whole number from 1 to \d+, got None"),
    ({"total_steps": -1}, r"total_steps: expected a whole number from 0 to \d+, got -1"),
    ({"total_steps": "9"}, r"total_steps: expected a whole number from 0 to \d+, got '9'"),
    ({"memory_bytes": 1e9}, r"memory_bytes: expected a whole number from 0 to \d+, got 1000000000.0"),
    ({"samples": -1}, r"samples: expected a whole number from 0 to \d+, got -1"),
    ({"digest": 5}, r"digest: expected a text, got 5"),
    ({"node": 5}, r"node: expected 1 to 64 characters of A-Z a-z 0-9 - _, got 5"),
    ({"node": "a b"}, r"node: expected 1 to 64 characters of A-Z a-z 0-9 - _, got 'a b'"),
    ({"lazy": 1}, r"lazy: expected True or False, got 1"),
    ({"state": "x"}, r"state: expected mapped or copied, got 'x'"),
    ({"kind": "x"}, r"kind: expected pipeline or data-parallel or sharded, got 'x'"),
    ({"replicas": "same"}, r"replicas: expected equal or alike, got 'same'"),
    ({"data": 1}, r"data: expected shared or local, got 1"),
    ({"layers": 2}, r"layers: expected a list, got 2"),
    ({"stages": 2}, r"stages: expected a dictionary, got 2"),
    ({"optimizerPartitions": 65}, r"optimizerPartitions: expected a whole number from 0 to 64, got 65"),
    ({"foo": 1}, r"foo: expected an argument of join or a field of the job: batch, .*, optimizerPartitions"),
    ({"units": 8}, r"units: expected the bytes of each unit, got 8"),
    ({"units": []}, r"units: expected the bytes of one unit at least, got \[\]"),
    ({"units": ["8"]}, r"units\[0\]: expected a whole number from 1 to \d+, got '8'"),
]


def wrong_joins():
    """Yields what joins with one wrong argument each say, and what they are to say."""
    for wrong, expected in WRONG:
        try:
            reknit.join(**{"units": [8], "batch": 8, **wrong})
        except reknit.Refused as error:
            yield wrong, str(error), expected
        else:
            yield wrong, "", expected


class Alone(unittest.TestCase):
    def setUp(self):
        os.environ.pop("REKNIT_AGENT", None)

    def test_without_an_agent_a_script_trains_all_samples_by_itself(self):
        job = reknit.join(units=[8], batch=4, micro_batch=2, total_steps=3)
        trained = []
        for step in job.steps():
            with step.abortable():
                for samples in step.micro_batches:
                    trained.extend(samples)
                step.ready()
                step.commit()
        self.assertEqual(list(range(12)), trained)
        self.assertTrue(job.finished)

    def test_a_script_that_joins_does_not_run_under_an_agent_for_scripts_that_do_not(self):
        os.environ["REKNIT_UNCHANGED"] = "1"
        self.addCleanup(os.environ.pop, "REKNIT_UNCHANGED")
        with self.assertRaisesRegex(reknit.Refused, "started with --unchanged: leave the flag out"):
            reknit.join(units=[8], batch=4)

    def test_an_argument_that_is_not_as_expected_is_named(self):
        for wrong, said, expected in wrong_joins():
            with self.subTest(wrong):
                self.assertRegex(said, "^" + expected)
        with self.assertRaisesRegex(reknit.Refused, "node: expected 1 to 64 characters"):
            reknit.announce(5)

    def test_join_takes_what_a_job_may_say(self):
        schema = pathlib.Path(__file__).parents[3] / "events/schema/membership.join-requested.v1.json"
        job = json.loads(schema.read_text())["$defs"]["Job"]["properties"]
        said_otherwise = {"digest", "firstState", "steps", "globalBatch", "microBatch"}
        arguments = {name: may for name, may in reknit._ARGUMENTS.items() if name in job and name != "digest"}
        self.assertEqual(set(job) - said_otherwise, set(arguments))
        for name, may in arguments.items():
            if "enum" in job[name]:
                self.assertEqual(set(may), set(job[name]["enum"]) - {""}, name)
        self.assertEqual(job["optimizerPartitions"]["maximum"], reknit._ARGUMENTS["optimizerPartitions"][1])

    def test_who_asks_to_leave_has_left_after_the_step(self):
        job = reknit.join(units=[8], batch=4, total_steps=9)
        steps = job.steps()
        step = next(steps)
        job.leave("my reason")
        with step.abortable():
            step.ready()
            step.commit()
        with self.assertRaises(reknit.Left) as left:
            next(steps)
        self.assertEqual("my reason", left.exception.reason)
        self.assertEqual(1, job.done)

    def test_a_step_that_is_neither_committed_nor_given_up_is_an_error(self):
        job = reknit.join(units=[8], batch=4, total_steps=3)
        with self.assertRaisesRegex(reknit.WrongOrder, "step 0 ended: call step.commit"):
            for _ in job.steps():
                pass

    def test_a_mistake_of_the_script_is_not_hidden(self):
        job = reknit.join(units=[8], batch=4)
        with self.assertRaises(ValueError):
            for step in job.steps():
                with step.abortable():
                    raise ValueError("a mistake")

    def test_values_are_kept_as_an_agent_would(self):
        job = reknit.join(units=[8], batch=4)
        job.set(1, "key", b"value")
        self.assertEqual(b"value", job.get(1, "key"))
        self.assertEqual([2, 4], [job.add(1, "count", 2) for _ in range(2)])


class WithAnAgent(unittest.TestCase):
    def setUp(self):
        self.agent = Agent()
        self.addCleanup(self.agent.close)
        os.environ["REKNIT_AGENT"] = self.agent.socket_path
        self.addCleanup(os.environ.pop, "REKNIT_AGENT")

    def join(self):
        return reknit.join(units=[8], batch=6, digest="test")

    def test_a_step_is_not_applied_while_a_snapshot_is_copied(self):
        self.agent.step(0)
        self.agent.order("finished")
        self.agent.page[STILL] = 1
        released = []
        timer = threading.Timer(0.1, lambda: (released.append(True), self.agent.page.__setitem__(STILL, 0)))
        for step in self.join().steps(State()):
            timer.start()
            step.commit(lambda: self.assertEqual([True], released))

    def test_a_step_that_is_given_up_does_not_wait_for_a_snapshot(self):
        self.agent.step(0)
        self.agent.order("finished")
        self.agent.page[STILL] = 1
        for step in self.join().steps(State()):
            with step.abortable():
                self.agent.page[ABORT] = step.id
                step.commit()

    def test_a_trainer_does_what_it_is_told_and_says_so(self):
        self.agent.order("adopt", step=4, took=[0])
        self.agent.order("give", step=4, units=[0])
        self.agent.step(4)
        self.agent.order("apply", step=6)
        self.agent.order("finished")
        state, samples = State(), []
        for step in self.join().steps(state):
            samples = [sample for micro_batch in step.micro_batches for sample in micro_batch]
            step.commit(loss=2.5, seconds=0.5)
        self.assertEqual([("adopt", 4, [0]), ("give", [0], 4), ("apply", 6)], state.asked)
        self.assertEqual([24, 25, 29], samples)
        expected = [
            {"order": 0, "done": 0}, {"order": 1, "done": 4}, {"order": 2, "done": 4},
            {"order": 3, "done": 5, "seconds": 0.5, "loss": 2.5, "microBatches": 3}, {"order": 4, "done": 6}]
        reports = [self.agent.report() for _ in expected]
        self.assertGreater(reports[3].pop("computeSeconds"), 0)
        self.assertEqual(expected, reports)

    def test_the_state_lives_in_the_files_that_the_agent_made(self):
        job = self.join()
        job.units[0][:5] = b"state"
        with open(os.path.join(self.agent.folder.name, "unit-0"), "rb") as file:
            self.assertEqual(b"state", file.read(5))

    def test_a_step_that_the_cluster_gives_up_ends_its_collective_and_comes_again(self):
        self.agent.step(0)
        self.agent.step(0, generation=2)
        self.agent.order("finished")
        aborted = threading.Event()
        generations = []
        for step in self.join().steps(State()):
            with step.abortable(aborted.set):
                if step.generation == 1:
                    self.agent.abort(1)
                    self.assertTrue(aborted.wait(PATIENCE))
                    raise ConnectionResetError("as a collective that is ended")
                step.commit()
                generations.append(step.generation)
        self.assertEqual([2], generations)
        self.agent.report()
        self.assertEqual({"order": 1, "done": 0, "ready": False}, self.agent.report())

    def test_a_step_that_is_given_up_before_it_is_watched_ends_its_collectives_too(self):
        self.agent.step(0)
        self.agent.order("finished")
        aborted = []
        for step in self.join().steps(State()):
            self.agent.abort(1)
            with step.abortable(lambda: aborted.append(step.id)):
                step.ready()
        self.assertEqual([1], aborted)
        self.agent.report()
        self.assertEqual({"order": 1, "done": 0, "ready": True}, self.agent.report())

    def test_who_was_not_ready_when_the_agent_answered_for_it_does_not_go_to_the_gate(self):
        self.agent.step(0)
        self.agent.order("finished")
        job = self.join()
        write, gates = job._agent.set, []

        def answered_just_before(word, value):
            if word == READY:
                self.agent.page[ABORT] = 1
            write(word, value)

        job._agent.set = answered_just_before
        for step in job.steps(State()):
            with step.abortable():
                step.ready()
                gates.append(step.index)
        self.assertEqual([], gates)
        self.agent.report()
        self.assertEqual({"order": 1, "done": 0, "ready": True}, self.agent.report())

    def test_who_takes_back_that_it_is_ready_stays_so_for_the_agent_that_has_answered_for_it(self):
        for answered in (False, True):
            self.agent.page[ABORT] = 0
            self.agent.step(0)
            step = next(self.join().steps(State()))
            step.ready()
            self.agent.page[ABORT] = step.id if answered else 0
            step.take_back()
            self.assertEqual(int(answered), self.agent.page[READY])
            step.give_up("others would apply other things")
            self.assertEqual(answered, step._report()["ready"])

    def test_of_an_error_as_long_as_a_page_its_beginning_and_its_end_are_told(self):
        for error in (RuntimeError, reknit.Disagreement):
            self.agent.step(0)
            self.agent.order("finished")
            for step in self.join().steps(State()):
                with step.abortable():
                    raise error("why, " + "and where, " * 1000 + "and the cause")
            self.agent.report()
            broken = self.agent.report()["broken"]
            self.assertEqual((256, "why, and where", "and the cause"), (len(broken), broken[:14], broken[-13:]))

    def test_a_loss_that_is_no_number_ends_nothing_and_is_told(self):
        self.agent.step(0)
        self.agent.order("finished")
        for step in self.join().steps(State()):
            step.commit(loss=float("nan"), seconds=0.5)
        self.agent.report()
        self.assertEqual({"order": 1, "done": 1, "seconds": 0.5, "lossNotFinite": True}, self.agent.report())

    @unittest.mock.patch("reknit.print", create=True)
    def test_an_abort_that_fails_does_not_keep_later_steps_from_being_given_up(self, _):
        self.agent.step(0)
        self.agent.step(0)
        self.agent.order("finished")
        called, heard = threading.Semaphore(0), []

        def abort():
            called.release()
            raise ValueError("a mistake of the script")

        for step in self.join().steps(State()):
            with step.abortable(abort):
                self.agent.abort(step.id)
                heard.append(called.acquire(timeout=PATIENCE))
                raise ConnectionResetError("as a collective that is ended")
        self.assertEqual([True, True], heard)

    def test_a_collective_that_breaks_by_itself_is_told_and_who_was_ready_says_so(self):
        self.agent.step(0)
        self.agent.order("finished")
        for step in self.join().steps(State()):
            with step.abortable():
                step.ready()
                self.assertEqual(1, self.agent.page[READY])
                raise RuntimeError("connection closed by peer")
        self.agent.report()
        expected = {"order": 1, "done": 0, "ready": True, "broken": "connection closed by peer"}
        self.assertEqual(expected, self.agent.report())

    def test_a_step_that_breaks_again_and_again_is_the_scripts_own_mistake(self):
        for _ in range(3):
            self.agent.step(0)
        with self.assertRaisesRegex(reknit.Error, "broke 3 times") as raised:
            for step in self.join().steps():
                with step.abortable():
                    raise RuntimeError("shapes do not fit")
        self.assertEqual("shapes do not fit", str(raised.exception.__cause__))

    def test_nothing_is_applied_once_the_step_is_given_up(self):
        self.agent.step(0)
        self.agent.order("finished")
        applied = []
        for step in self.join().steps(State()):
            with step.abortable():
                step.ready()
                self.agent.abort(1)
                step.commit(lambda: applied.append(True))
        self.assertEqual([], applied)
        self.assertEqual([0, 0], [self.agent.page[COMPLETED], self.agent.page[PHASE]])

    def test_while_sums_are_applied_the_agent_reads_so(self):
        self.agent.step(0)
        self.agent.order("finished")
        phases = []
        for step in self.join().steps():
            phases.append(self.agent.page[PHASE])
            step.commit(lambda: phases.append(self.agent.page[PHASE]))
        self.assertEqual([1, 2, 0, 1], phases + [self.agent.page[PHASE], self.agent.page[COMPLETED]])

    def test_a_state_that_was_applied_in_part_ends_the_script(self):
        self.agent.step(0)
        with self.assertRaisesRegex(reknit.Error, "applied in part"):
            for step in self.join().steps():
                with step.abortable():
                    step.commit(lambda: 1 / 0)

    def test_what_a_state_cannot_do_is_told_before_the_script_ends(self):
        self.agent.order("apply", step=1)
        self.agent.order("finished")
        with self.assertRaisesRegex(reknit.WrongOrder, "a method apply"):
            for _ in self.join().steps():
                pass
        self.agent.report()
        self.assertIn("a method apply", self.agent.report()["error"])

    def test_the_end_of_the_agent_ends_collectives_and_keeps_the_state(self):
        self.agent.step(0)
        aborted = threading.Event()
        job = self.join()
        with unittest.mock.patch("reknit._WAIT_SECONDS", 0.2), \
                self.assertRaisesRegex(reknit.AgentLost, "start it with.*save it, or end"):
            for step in job.steps():
                with step.abortable(aborted.set):
                    job.units[0][:5] = b"state"
                    self.agent.end()
                    self.assertTrue(aborted.wait(PATIENCE))
                    raise ConnectionResetError("as a collective that is ended")
        self.assertEqual(b"state", bytes(job.units[0][:5]))

    def test_a_trainer_goes_on_with_the_agent_that_comes_in_place_of_the_one_before(self):
        for lost, ready, done in ("before the gate", False, 0), ("at the gate", True, 0), ("between steps", False, 1):
            with self.subTest(lost=lost):
                self.agent.close()
                self.agent = Agent()
                os.environ["REKNIT_AGENT"] = self.agent.socket_path
                self.agent.step(0)
                job, steps = self.join(), []
                for step in job.steps():
                    steps.append(step.index)
                    if len(steps) == 2:
                        self.assertFalse(step.aborted)
                        step.commit()
                        self.agent.order("finished")
                        continue
                    with step.abortable():
                        job.units[0][:5] = b"state"
                        if ready:
                            step.ready()
                        if done:
                            step.commit()
                        self.agent = self.agent.restart()
                        self.agent.step(done)
                        if not done:
                            job.get(1, "a value that the agent before had")
                self.assertEqual([0, done], steps)
                self.assertEqual(b"state", bytes(job.units[0][:5]))
                self.assertEqual((self.agent.folder.name, "a"), tuple(self.agent.joined[0][key] for key in ("dir", "node")))
                self.assertEqual({"order": 0, "done": done, "ready": ready}, self.agent.report())

    def test_the_control_page_tells_who_computes_and_who_waits_for_others(self):
        for kind, expected in (("data-parallel", [0, 1, 1, 1, 2, 1, 0]), ("pipeline", [0] * 7)):
            with self.subTest(kind=kind):
                self.agent.close()
                self.agent = Agent()
                os.environ["REKNIT_AGENT"] = self.agent.socket_path
                self.agent.step(0)
                self.agent.order("finished")
                work = []
                for step in reknit.join(units=[8], batch=6, kind=kind).steps():
                    work.append(self.agent.page[WORK])
                    for _ in step.micro_batches:
                        work.append(self.agent.page[WORK])
                    work.append(self.agent.page[WORK])
                    step.commit(lambda: work.append(self.agent.page[WORK]))
                    work.append(self.agent.page[WORK])
                self.assertEqual(expected, work)

    def test_why_training_waits_is_said_and_that_it_goes_on(self):
        said = queue.Queue()
        with unittest.mock.patch.object(reknit, "print", lambda text, file: said.put(text), create=True):
            self.join()
            self.agent.lines.put({"waits": "no live node holds layer 0", "since": "2026-01-02T03:04:05Z"})
            self.agent.lines.put({"waits": "", "since": "2026-01-02T03:04:05Z"})
            self.assertEqual("reknit: training waits since 2026-01-02T03:04:05Z: no live node holds layer 0",
                             said.get(timeout=PATIENCE))
            self.assertEqual("reknit: training goes on", said.get(timeout=PATIENCE))

    def test_a_leave_that_takes_longer_than_its_deadline_is_said(self):
        said = queue.Queue()
        with unittest.mock.patch.object(reknit, "print", lambda text, file: said.put(text), create=True):
            self.join()
            self.agent.lines.put({"late": "the others need 313 s to do without it", "seconds": 312.5, "alone": []})
            self.assertEqual("reknit: the others need 313 s to do without it", said.get(timeout=PATIENCE))

    def test_an_argument_that_is_not_as_expected_is_told_to_the_agent_which_does_not_start_the_script_again(self):
        for wrong, said, expected in wrong_joins():
            with self.subTest(wrong):
                self.assertRegex(said, "^" + expected)
                self.assertEqual([{"mistaken": said}], self.agent.joined[-1:])

    def test_each_wish_that_a_trainer_leaves_is_told_once(self):
        job = self.join()
        self.assertIsNone(job.asked_to_leave())
        self.agent.lines.put({"leaving": "asked to go"})
        self.agent.lines.put({"leaving": "asked to go"})
        told = []
        deadline = time.monotonic() + PATIENCE
        while len(told) < 2 and time.monotonic() < deadline:
            told += [reason for reason in [job.asked_to_leave()] if reason]
        self.assertEqual(["asked to go"] * 2, told)
        self.assertIsNone(job.asked_to_leave())

    def test_a_script_is_announced_until_it_hangs_up(self):
        announced = reknit.announce("n-1")
        self.assertEqual(["n-1"], self.agent.announced)
        self.assertFalse(self.agent.silenced.is_set())
        announced.close()
        self.assertTrue(self.agent.silenced.wait(PATIENCE))

    def test_an_announcement_that_is_refused_is_raised_in_words(self):
        self.agent.refusal = 503, "no NATS server"
        with self.assertRaisesRegex(reknit.Refused, "no NATS server: mend it"):
            reknit.announce()

    @unittest.mock.patch("reknit.print", create=True, side_effect=BrokenPipeError)
    def test_who_cannot_say_that_training_waits_still_hears_of_steps_that_are_given_up(self, _):
        self.agent.step(0)
        self.agent.order("finished")
        called, heard = threading.Event(), []
        for step in self.join().steps(State()):
            with step.abortable(called.set):
                self.agent.lines.put({"waits": "no live node holds layer 0", "since": "2026-01-02T03:04:05Z"})
                self.agent.abort(step.id)
                heard.append(called.wait(PATIENCE))
                raise ConnectionResetError("as a collective that is ended")
        self.assertEqual([True], heard)

    def test_where_no_agent_is_the_text_says_what_to_do(self):
        os.environ["REKNIT_AGENT"] = "/nowhere/agent.sock"
        with self.assertRaisesRegex(reknit.AgentLost, "/nowhere/agent.sock.*reknit agent run"):
            self.join()

    def test_refusals_are_raised_in_words(self):
        kinds = {400: reknit.Refused, 503: reknit.Refused, 409: reknit.WrongOrder, 410: reknit.Left}
        for status, kind in kinds.items():
            self.agent.refusal = (status, "units[0]: expected at least 1")
            with self.assertRaises(kind) as raised:
                self.join()
            if status != 410:
                self.assertIn("units[0]: expected at least 1: mend it", str(raised.exception))

    def test_a_refusal_that_nobody_catches_is_three_lines(self):
        scripts = {
            "reknit.join(units=[8], batch=25, micro_batch=2)": ("micro_batch", "expected a divisor of batch, 25, got 2"),
            "raise reknit.mistaken(TypeError, \"optimizer: expected a torch.optim.Optimizer, got str\")":
                ("optimizer", "expected a torch.optim.Optimizer, got str"),
            "reknit.join(units=[8], batch=6)": ("the cluster does not take this node", "field \"job.steps\": expected 100"),
        }
        for script, (what, why) in scripts.items():
            self.agent.refusal = None if "mistaken" in script else (503, "the cluster does not take this node: field \"job.steps\": expected 100")
            with self.subTest(script):
                ended = subprocess.run([sys.executable, "-c", f"import reknit\n{script}"], capture_output=True, text=True,
                                       timeout=3 * PATIENCE, cwd=os.path.dirname(reknit.__file__))
                lines = ended.stderr.splitlines()
                self.assertEqual((1, 3), (ended.returncode, len(lines)), ended.stderr)
                self.assertEqual([f"reknit: refused at <string>:2: {what}", f"  because: {why}"], lines[:2])
                self.assertRegex(lines[2], "^  do: mend ")

    def test_who_has_left_ends_with_status_0_where_nobody_catches_it(self):
        self.agent.order("left", reason="the node has left the cluster")
        with self.assertRaises(SystemExit) as raised:
            list(self.join().steps())
        self.assertEqual(0, raised.exception.code)

    def test_a_child_process_does_not_keep_the_session_open_nor_the_files(self):
        told, tell = os.pipe()
        trainer = os.fork()
        if trainer == 0:
            self.join()
            if os.fork() == 0:
                os.read(told, 1)  # until the test has seen the session's end
            os._exit(0)
        try:
            os.waitpid(trainer, 0)
            self.assertTrue(self.agent.hung_up.wait(PATIENCE))
            with open(os.path.join(self.agent.folder.name, "control"), "rb") as control:
                fcntl.flock(control, fcntl.LOCK_EX | fcntl.LOCK_NB)  # BlockingIOError: the files count as in use
        finally:
            os.write(tell, b"x")
            os.close(told)
            os.close(tell)

    # The child took its parent's answers, and both ended with words on calls that neither had made.
    def test_a_child_process_that_goes_on_with_the_steps_of_its_parent_is_told(self):
        job = self.join()
        with unittest.mock.patch("os.getpid", return_value=-1), self.assertRaisesRegex(reknit.WrongOrder, "got a child of it .os.fork"):
            next(job.steps())

    def ends_by_an_error(self, job, state=None, committed=False):
        """Has a script end by an error in its first step, and returns after how many seconds the process is to end."""
        for step in job.steps(state):
            if committed:
                step.commit()
            with unittest.mock.patch("signal.alarm") as alarm, unittest.mock.patch("sys.stderr"):
                sys.excepthook(ValueError, ValueError("record 3605"), None)
            return alarm.call_args[0][0]

    def test_a_script_that_ends_by_an_error_has_ended_for_its_agent_whatever_holds_its_process(self):
        self.agent.step(0)
        self.assertEqual(60, self.ends_by_an_error(self.join()))
        self.assertTrue(self.agent.hung_up.wait(PATIENCE))
        self.assertEqual(["ValueError: record 3605"], self.agent.failed)
        with open(os.path.join(self.agent.folder.name, "control"), "rb") as control:
            fcntl.flock(control, fcntl.LOCK_EX | fcntl.LOCK_NB)  # BlockingIOError: the files count as in use
        self.assertEqual(0, self.agent.page[OUT])

    def test_an_error_is_told_apart_from_one_that_comes_once_the_step_is_given_up(self):
        self.agent.step(0)
        for _ in self.join().steps():
            self.agent.abort()
            with unittest.mock.patch("signal.alarm"), unittest.mock.patch("sys.stderr"):
                sys.excepthook(ValueError, ValueError("record 3605"), None)
            break
        self.assertTrue(self.agent.hung_up.wait(PATIENCE))
        self.assertEqual(["ValueError: record 3605, in a step that was given up"], self.agent.failed)

    def test_an_error_is_of_its_step_where_others_give_that_up_while_the_state_is_copied(self):
        self.agent.step(0)
        job = self.join()
        job._agent.ends = self.agent.abort  # while it copies
        for _ in job.steps():
            with unittest.mock.patch("signal.alarm"), unittest.mock.patch("sys.stderr"):
                sys.excepthook(ValueError, ValueError("record 3605"), None)
            break
        self.assertTrue(self.agent.hung_up.wait(PATIENCE))
        self.assertEqual(["ValueError: record 3605"], self.agent.failed)

    def test_ctrl_c_is_no_fault_of_the_script(self):
        self.agent.step(0)
        for _ in self.join().steps():
            with unittest.mock.patch("signal.alarm"), unittest.mock.patch("sys.stderr"):
                sys.excepthook(KeyboardInterrupt, KeyboardInterrupt(), None)
            break
        self.assertTrue(self.agent.hung_up.wait(PATIENCE))
        self.assertEqual([], self.agent.failed)
        with open(os.path.join(self.agent.folder.name, "control"), "rb") as control:
            fcntl.flock(control, fcntl.LOCK_EX | fcntl.LOCK_NB)  # BlockingIOError: the files count as in use

    def test_a_state_that_lies_elsewhere_is_copied_out_where_a_script_ends_by_an_error(self):
        for committed in (False, True):
            agent, state = Agent(), State()
            self.addCleanup(agent.close)
            agent.step(0)
            with unittest.mock.patch.dict(os.environ, REKNIT_AGENT=agent.socket_path):
                job = reknit.join(units=[8], batch=6, digest="test", state="copied")
            seen = []
            with unittest.mock.patch.object(state, "give", lambda *what: seen.append((agent.page[OUT], *what))):
                self.ends_by_an_error(job, state=state, committed=committed)
            self.assertEqual([((1 << 64) - 1, [0], int(committed))], seen)  # who copies for a snapshot meanwhile sees it
            self.assertEqual(1 + committed, agent.page[OUT])

    def test_what_an_update_left_in_part_is_not_copied_out(self):
        agent, state = Agent(), State()
        self.addCleanup(agent.close)
        agent.step(0)
        with unittest.mock.patch.dict(os.environ, REKNIT_AGENT=agent.socket_path):
            job = reknit.join(units=[8], batch=6, digest="test", state="copied")
        for step in job.steps(state):
            with self.assertRaises(reknit.Error):
                step.commit(lambda: 1 / 0)
            with unittest.mock.patch("signal.alarm"), unittest.mock.patch("sys.stderr"):
                sys.excepthook(ValueError, ValueError("in part"), None)
            break
        self.assertEqual(([], 0), (state.asked, agent.page[OUT]))

    def test_a_process_that_cannot_end_after_an_error_is_ended(self):
        self.agent.step(0)
        script = ("import threading, reknit\nreknit._END_SECONDS = 1\njob = reknit.join(units=[8], batch=6, digest='test')\n"
                  "threading.Thread(target=threading.Event().wait).start()\nfor step in job.steps():\n    raise ValueError('x')\n")
        ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=3 * PATIENCE,
                               cwd=os.path.dirname(reknit.__file__))
        self.assertEqual(-signal.SIGALRM, ended.returncode, ended.stderr)
        self.assertIn("ValueError: x", ended.stderr)

    def test_values_are_exchanged_and_what_is_not_there_is_a_key_error(self):
        job = self.join()
        job.set(1, "a/key", b"value")
        self.assertEqual(b"value", job.get(1, "a/key"))
        with self.assertRaisesRegex(KeyError, "another: expected that a trainer of generation 1 sets it within 0 s"):
            job.get(1, "another", wait=0)

    def test_who_sets_a_value_late_is_waited_for(self):
        job = self.join()
        with unittest.mock.patch.object(reknit, "_ASK_SECONDS", 0), unittest.mock.patch.object(
                job._agent, "call", side_effect=[KeyError("1/late"), KeyError("1/late"), b"value"]) as call:
            self.assertEqual(b"value", job.get(1, "late"))
        self.assertEqual(3, call.call_count)


if __name__ == "__main__":
    unittest.main()
