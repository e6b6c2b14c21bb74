"""Lets a trainer in Python take part in a Reknit cluster, through the agent beside it.

One file, standard library only, Python 3.9 or newer: copy it into your project. `reknit agent run -- python train.py`
starts a trainer with an agent, whose calls are in services/agent/local/README.md. Without an agent (no
REKNIT_AGENT in the environment) the same script trains alone.

    job = reknit.join(units=[4096, 4096], batch=64, micro_batch=4, digest="my model, data and seed", total_steps=1000)
    write_first_state(job.units)                # a memoryview a unit; equal at all trainers
    for step in job.steps():
        with step.abortable(abort):             # abort() ends collectives, from another thread
            sums = all_reduce(gradients(job.units, step.micro_batches))
            step.ready()                        # from here on this trainer can make the next step
            loss = all_reduce(loss)             # the gate: nobody passes it before all are ready
            step.commit(lambda: update(job.units, sums), loss)

A step that is given up ends at the end of `with`, and the loop goes on with the next order.
"""

import collections.abc
import contextlib
import fcntl
import http.client
import io
import json
import math
import mmap
import os
import re
import select
import signal
import socket
import sys
import threading
import time
import traceback
import urllib.parse
import weakref

__all__ = ["join", "announce", "Job", "Step", "Error", "AgentLost", "Refused", "WrongOrder", "StepAborted", "Disagreement", "Left"]

_ABORT, _COMPLETED, _READY, _PHASE, _WORK, _STILL, _OUT = range(7)  # words of the control page
_BETWEEN, _IN_STEP, _APPLYING, _CHANGING = range(4)  # phases
_NEITHER, _COMPUTING, _WAITING = range(3)  # kinds of work
_GOES_OUT = (1 << 64) - 1  # the state is being copied out
_ASK_SECONDS = 60.0  # for a shared key, until it is asked for again
_WAIT_SECONDS = 60.0  # for another agent where the one before ended
_NO_OTHER = "REKNIT_AGENT_IS_PARENT" in os.environ  # agent: whom it started is to end with it
_END_SECONDS = 60  # for an interpreter to end after an error that nobody caught
_FAIL_SECONDS = 2  # for an agent to hear which error that was
_MOST_REASON = 1024  # characters of it
_MOST_BROKEN = 256  # characters of why a step was not made
_MOST_OUTVOTED = 256  # nodes that are named at once
_MOST_BREAKS = 3  # of one step, without anybody else giving it up: the script is wrong then


class Error(Exception):
    """Tells what went wrong, and what to do about it."""


class AgentLost(Error):
    """The agent is gone, and for a minute no other one came to its socket; there is no wait for one where the agent was
    the trainer's parent. The state in job.units is as it was: save it, or end. The others go on without this trainer."""


class Refused(Error):
    """The cluster or the agent does not take this trainer as it is: mend what the text names, and join again."""

    refused = True
    fix = "mend that, and start the script again"


class WrongOrder(Error):
    """A call came where another one is due, which the text names."""


class StepAborted(Error):
    """The step is given up, because another trainer is gone, say. Let it pass: `with step.abortable()` ends, and
    job.steps() goes on."""


# Why a child of a process that joined may take no part in its steps.
FORKED = ("expected the process that joined, got a child of it (os.fork): end a child by os._exit() once its work is done, or start it by "
          "multiprocessing")


class Disagreement(StepAborted):
    """Trainers would apply different things. Those that differ from most are outvoted, by their nodes; where nobody is, no side is the
    majority. The cluster goes on without the former, and holds in a tie: nobody loses its state, and no script ends."""

    def __init__(self, text, outvoted=()):
        super().__init__(text)
        self.outvoted = list(outvoted)[:_MOST_OUTVOTED]


class Left(SystemExit):
    """The cluster does without this trainer, as it asked. The script ends with status 0 if nobody catches it."""

    def __init__(self, reason):
        super().__init__(0)
        self.reason = reason


def join(units, batch, micro_batch=1, digest="", kind="data-parallel", state="mapped", total_steps=0, memory_bytes=0,
         first_state="", node=None, samples=0, lazy=False, **job):
    """Asks for a place and returns a Job. Further arguments are fields of the job, as in events.Job.

    digest and first_state are any texts: the former is equal at all trainers of the job, the latter where first states are.
    A lazy state is written into a unit when give asks for it, and not before steps() is called. With data="local",
    samples is how many this trainer has of its own, and its gradients count by them. Refused names an argument that is not as
    expected, with an agent or without one."""
    if os.environ.get("REKNIT_UNCHANGED"):
        raise Refused("this script joins by itself and was started with --unchanged: leave the flag out")
    node = node or os.environ.get("REKNIT_NODE", "")
    _check({"batch": batch, "micro_batch": micro_batch, "total_steps": total_steps, "memory_bytes": memory_bytes, "samples": samples,
            "digest": digest, "first_state": first_state, "kind": kind, "state": state, "lazy": lazy, **job})
    _expect_node(node)
    _expect("micro_batch", micro_batch, batch % micro_batch == 0, f"a divisor of batch, {batch}")
    units = _sizes(units)
    path = os.environ.get("REKNIT_AGENT")
    if not path:
        print("reknit: no agent (REKNIT_AGENT is not set): this process trains alone", file=sys.stderr)
        return Job(_Alone(units, batch, micro_batch, total_steps, lazy), total_steps)
    job.setdefault("kind", kind)
    if kind == "data-parallel":
        job.setdefault("stages", {"min": 1, "max": 1})
    return Job(_Agent(path, {
        "units": units, "digest": digest, "firstState": first_state, "batch": batch, "microBatch": micro_batch, "state": state,
        "totalSteps": total_steps, "memoryBytes": memory_bytes, "samples": samples, "lazy": lazy, "job": job,
        "node": node,
    }), total_steps)


_MOST_WHOLE = 2**53 - 1  # greatest whole number that every language reads from JSON
_ARGUMENTS = {  # of join, by what each may be: a range, words, or a type. The last are fields of the job, as in events.Job
    "batch": (1, _MOST_WHOLE), "micro_batch": (1, _MOST_WHOLE), "total_steps": (0, _MOST_WHOLE), "memory_bytes": (0, _MOST_WHOLE),
    "samples": (0, _MOST_WHOLE), "digest": str, "first_state": str, "lazy": bool, "state": ["mapped", "copied"],
    "kind": ["pipeline", "data-parallel", "sharded"], "replicas": ["equal", "alike"], "data": ["shared", "local"], "layers": list,
    "tied": list, "pipelines": dict, "stages": dict, "batchRule": dict, "optimizerPartitions": (0, 64),
}
_TYPES = {str: "a text", bool: "True or False", list: "a list", dict: "a dictionary"}


def _check(arguments):
    """Raises Refused for an argument that is none, or not what it may be. The agent checks what a field of the job has inside."""
    for name, value in arguments.items():
        if name not in _ARGUMENTS:
            raise mistaken(Refused, f"{name}: expected an argument of join or a field of the job: {', '.join(_ARGUMENTS)}")
        may = _ARGUMENTS[name]
        if isinstance(may, tuple):
            expect_whole(name, value, *may)
        elif isinstance(may, list):
            _expect(name, value, value in may, " or ".join(may))
        else:
            _expect(name, value, isinstance(value, may), _TYPES[may])


def expect_whole(name, value, least, most=_MOST_WHOLE):
    """Raises Refused for an argument that is no whole number of a range."""
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    _expect(name, value, is_whole and least <= value <= most, f"a whole number from {least} to {most}")


def _expect(name, value, holds, expected):
    if not holds:
        raise mistaken(Refused, f"{name}: expected {expected}, got {value!r:.80}")


def _shortened(text, most):
    """A text of so many characters at most, cut in its middle: an error begins with what failed and ends with the cause."""
    if len(text) <= most:
        return text
    end = (most - 1) // 2
    return text[:end] + "…" + text[end + 1 - most:]


def _expect_node(node):
    """Raises Refused for what is no id of a node; the empty one is the agent's."""
    fits = isinstance(node, str) and re.fullmatch("[A-Za-z0-9_-]{0,64}", node)
    _expect("node", node, fits, "1 to 64 characters of A-Z a-z 0-9 - _")


def _sizes(units):
    """Returns the bytes of each unit as a list. It raises Refused for what is none."""
    _expect("units", units, isinstance(units, collections.abc.Iterable), "the bytes of each unit")
    units = list(units)
    _expect("units", units, units, "the bytes of one unit at least")
    for n, size in enumerate(units):
        expect_whole(f"units[{n}]", size, 1)
    return units


def mistaken(kind, text):
    """Returns an error of a kind that says what is wrong with the script. The agent hears that: it would start the script again,
    as often as it may, to the same end."""
    path = os.environ.get("REKNIT_AGENT")
    if path and not os.environ.get("REKNIT_UNCHANGED"):
        connection = _Connection(lambda: _dial(path))
        try:
            connection.request("POST", "/v1/join", json.dumps({"mistaken": text}))
            connection.getresponse().read()
        except (OSError, http.client.HTTPException):
            pass  # whoever calls the agent next says so
        finally:
            connection.close()
    error = kind(text)
    error.refused = True
    return error


class Job:
    """A trainer's part in a job. `units` are the memories in which its state lives."""

    def __init__(self, agent, total_steps):
        self._agent = agent
        self.units = agent.units
        self.node = agent.node
        self.total_steps = total_steps
        self.done = 0  # completed steps
        self.finished = False
        self._state, self._step, self._asks = None, None, False  # as steps() has it; the last one; an order is waited for or done
        agent.ends = self._copy_out

    def steps(self, state=None):
        """Yields each step to train, until training is complete. `state` may have these methods:

        adopt(step, took)   goes on from this step; the units in took are new
        apply(step)         applies the sums that the trainer is ready with (needed where step.ready is called)
        give(units, step)   writes these units into job.units (copied state and, at step 0, lazy one)
        """
        report, breaks, self._state = {"order": 0, "done": 0}, 0, state
        while True:
            self._asks = True
            order = self._agent.next(report)
            kind = order["order"]
            if kind == "left":
                raise Left(order.get("reason", "left"))
            if kind == "finished":
                self.finished = True
                return
            if kind == "step":
                step = self._step = Step(self, self._agent, order)
                self._asks = False
                yield step
                report = step._report()
                breaks = breaks + 1 if report.get("broken") and not isinstance(step._why, Disagreement) else 0
                if breaks >= _MOST_BREAKS:
                    raise Error(f"step {step.index} broke {breaks} times in a row") from step._why
                self.done = report["done"]
            else:
                report = self._do(state, order)
            report["order"] = order["id"]

    def _do(self, state, order):
        kind, step = order["order"], order.get("step", 0)
        arguments = {"apply": (step,), "give": (order.get("units"), step), "adopt": (step, order.get("took") or [])}
        try:
            method = getattr(state, kind, None)
            if method is not None:
                method(*arguments[kind])
            elif kind != "adopt":
                raise WrongOrder(f"expected a state with a method {kind}: job.steps(state)")
        except Exception as error:
            self._agent.next({"order": order["id"], "done": self.done, "error": str(error) or repr(error)}, wait=False)
            raise
        if kind != "give":
            self.done = step
            self._agent.set(_COMPLETED, step)
            self._agent.set(_READY, step)
        return {"done": self.done}

    def _copy_out(self):
        """Copies a state that lies elsewhere, on a GPU say, into the units, for the agent to keep it. It copies none in a pipeline, where
        nobody says here which units it holds, and none while an order is waited for, for the units are the agent's then. A state that
        the script changed in its step is kept for nobody, whatever ends the script."""
        if getattr(self._state, "changed", lambda: None)():
            self.spoil()
            return
        if not self._agent.copied or self._asks or not hasattr(self._state, "give"):
            return
        phase = self._agent.get(_PHASE)
        if phase == _CHANGING or phase == _APPLYING and not self._step.committed:
            return
        step = self._agent.get(_COMPLETED)
        self._agent.set(_OUT, _GOES_OUT)  # before the first byte: the agent may still read there for a snapshot
        self._agent.fence()
        self._state.give(list(range(len(self.units))), step)
        self._agent.set(_OUT, step + 1)

    def spoil(self):
        """Says that the state was changed where only a step may change it: the agent gives it to nobody, nor to the next script."""
        self._agent.set(_PHASE, _CHANGING)

    def leave(self, reason="the trainer asked to", deadline=0):
        """Asks to go. steps() raises Left once the cluster can do without this trainer. If that takes longer than the
        deadline, in seconds, it is said at once, with the units of which nobody else has a copy."""
        self._agent.call("POST", "leave", {"reason": reason, "deadlineSeconds": deadline})

    def state(self):
        """Returns node, generation, step, replicas of what this trainer holds, and whether it is safe to go."""
        return self._agent.call("GET", "state")

    def set(self, generation, key, value):
        """Sets a key that the trainers of a generation share."""
        self._agent.call("PUT", _key(generation, key), value)

    def get(self, generation, key, wait=None):
        """Returns the value of a shared key, bytes, once it is set.

        wait: seconds until it raises KeyError; None waits for whoever is to set it. StepAborted: the step is given up, as where that
        one has ended or hangs.
        """
        while True:
            try:
                return self._agent.call("GET", f"{_key(generation, key)}?wait={_ASK_SECONDS if wait is None else wait}")
            except KeyError:
                if wait is not None:
                    raise KeyError(f"{key}: expected that a trainer of generation {generation} sets it within {wait} s") from None

    def add(self, generation, key, number):
        """Adds to a shared key that is a number, and returns the sum."""
        return int(self._agent.call("POST", f"{_key(generation, key)}?add={number}", b""))

    def asked_to_leave(self):
        """Returns why this trainer is to leave the cluster, once for each time that its agent was asked: by a signal, reknit drain or
        the page, say. None: it was not asked since."""
        return self._agent.leaves.popleft() if self._agent.leaves else None


def agent_is_parent():
    """Whether the agent started this process (reknit agent run): it hears the first signal, and asks for this process to leave."""
    return _NO_OTHER


def announce(node=None):
    """Has the cluster see this process before it joins: reknit nodes lists its node as "starting".

    Returns an object whose close() ends that; so does the end of the process. Without an agent it does nothing. It waits while the
    agent finds no NATS, and the agent's log says so. Refused: the agent has its node's name from a kit that is another's, or
    node is no id.
    """
    node = node or os.environ.get("REKNIT_NODE", "")
    _expect_node(node)
    path = os.environ.get("REKNIT_AGENT")
    if not path:
        return io.BytesIO()
    connection = _Connection(lambda: _dial(path))
    target = f"/v1/announce?node={node}"
    try:
        connection.request("GET", target)
        answer = connection.getresponse()
        if answer.status < 300 and answer.readline():
            return connection
        content = answer.read()
    except (OSError, http.client.HTTPException) as error:
        connection.close()
        raise AgentLost(f"no agent at {path}: {error or 'it ended'}: start it with `reknit agent run -- …`") from error
    connection.close()
    raise _failure(answer.status, "announce", content)


def _key(generation, key):
    return f"store/{generation}/{urllib.parse.quote(key, safe='')}"


class Step:
    """A step to train: fields of services/agent/local/README.md, in Python's spelling."""

    def __init__(self, job, agent, order):
        self._job, self._agent = job, agent
        self.id, self.index, self.generation = order["id"], order["index"], order["generation"]
        self._agent.begun = self.id
        self.switched, self.resume = order["switched"], order["resume"]
        self.rank, self.world, self.nodes = order["rank"], order["world"], order["nodes"]
        self.samples, self.consumed = order["samples"], order["consumed"]
        self.batch, self.micro_batch = order["batch"], order["microBatch"]
        self.learning_rate_scale = order.get("learningRateScale") or 1.0
        self.weight = order.get("weight", 1.0)  # of the mean gradient of this trainer's samples in the step's
        self.plan = order.get("plan")
        self.given_up = ""
        self._why = None
        self.committed = self._ready = False
        self._seconds, self._loss, self._began = 0.0, 0.0, time.monotonic()
        self._passed, self._computing = 0, 0.0
        self._profile = {}
        agent.set(_PHASE, _IN_STEP)

    @property
    def micro_batches(self):
        """The numbers of this trainer's samples since training began, a micro-batch at a time.

        The time from each to the next is measured: trainers get micro-batches by their speed."""
        tells = self._agent.replicas  # in a pipeline who computes may wait for another stage as well
        if tells:
            self._agent.set(_WORK, _COMPUTING)
        for samples in self.batches:
            began = time.monotonic()
            yield samples
            self.measured(1, time.monotonic() - began)
        if tells:
            self._agent.set(_WORK, _WAITING)

    @contextlib.contextmanager
    def waiting(self):
        """Stands around what waits for others. A node that keeps them waiting is named, whatever its script does."""
        before = self._agent.get(_WORK)
        self._agent.set(_WORK, _WAITING)
        try:
            yield
        finally:
            self._agent.set(_WORK, before)

    def computing(self, now=True):
        """Tells that this trainer computes so that others wait for it, and hangs where that has no end; or that it does not any more."""
        self._agent.set(_WORK, _COMPUTING if now else _NEITHER)

    @property
    def batches(self):
        """The list of all micro_batches, of which nothing is measured: for what loads them ahead."""
        return [range(self.consumed + at, self.consumed + min(at + self.micro_batch, end))
                for first, end in self.samples for at in range(first, end, self.micro_batch)]

    def measured(self, micro_batches, seconds):
        """Counts micro-batches that this trainer passed, and how long it computed for that without waiting for others."""
        self._passed, self._computing = self._passed + micro_batches, self._computing + seconds

    def profiled(self, layers, peak_bytes=0, other_bytes=0):
        """Tells what a micro-batch took in each layer of this trainer, once it is measured: a list of dictionaries as in
        events.LayerCost, in order. peak_bytes is the most memory that was in use, and other_bytes how much of it was neither
        state nor gradients nor activations. The planner predicts by that, and refuses what would not fit."""
        self._profile = {"layers": layers, "peakBytes": int(peak_bytes), "otherBytes": int(other_bytes)}

    @property
    def aborted(self):
        """Whether the step is to be given up."""
        return self._agent.get(_ABORT) >= self.id or self._agent.lost

    def abortable(self, abort=None):
        """Stands around what may fail with another trainer: a step that is given up calls abort(), on another thread."""
        return _Abortable(self, abort)

    def ready(self):
        """The sums are complete: this trainer can make the next step, whoever else is lost."""
        self._ready = True
        self._agent.set(_READY, self.index + 1)
        self._agent.fence()  # an agent that answered before it saw this has given the step up: nobody passes the gate
        if self.aborted:
            raise StepAborted(f"step {self.index} is given up")

    def take_back(self):
        """Nobody passed the gate: the sums are not to be applied. A trainer that has answered that it can make the step stays ready."""
        self._agent.set(_READY, self.index)
        self._agent.fence()
        self._ready = self.aborted
        self._agent.set(_READY, self.index + self._ready)

    def commit(self, apply=None, loss=0.0, seconds=None):
        """Makes the step, by apply(), once everybody is ready. It cannot be given up from here on.

        Evaluate and save after it: the others wait while this trainer applies, and go on without it after half a minute."""
        if self.given_up:
            raise StepAborted(f"step {self.index} is given up: {self.given_up}")
        self._agent.set(_WORK, _NEITHER)
        while self._agent.get(_STILL) and not self.aborted:  # a snapshot is copied
            time.sleep(0.0005)
        self._agent.set(_PHASE, _APPLYING)
        self._agent.fence()
        if self.aborted:
            self._agent.set(_PHASE, _IN_STEP)
            raise StepAborted(f"step {self.index} is given up")
        if self._agent.replicas:  # the others wait in the next step until this is done
            self._agent.set(_WORK, _COMPUTING)
        try:
            if apply is not None:
                apply()
        except BaseException as error:
            raise Error(f"step {self.index} was applied in part: the state is of no use any more") from error
        self._agent.set(_WORK, _NEITHER)
        self._agent.set(_COMPLETED, self.index + 1)
        self._agent.set(_READY, self.index + 1)
        self.committed, self._loss = True, float(loss)
        self._seconds = time.monotonic() - self._began if seconds is None else seconds

    def change(self, work):
        """Does what changes the state between two steps, while nobody copies its units. A value that cannot move, which TypeError names, is
        found before the first byte is changed. Behind all else that ends the work, Ctrl-C say, the state is torn, and kept for nobody."""
        while self._agent.get(_STILL) and not self.aborted:
            time.sleep(0.0005)
        before = self._agent.get(_PHASE)
        self._agent.set(_PHASE, _CHANGING)
        self._agent.fence()
        try:
            work()
        except TypeError:
            self._agent.set(_PHASE, before)
            raise
        self._agent.set(_PHASE, before)

    def give_up(self, why):
        """Gives the step up, because of an error or for a reason in words."""
        self._why = why if isinstance(why, BaseException) else None
        self.given_up = self.given_up or str(why) or repr(why)

    def _report(self):
        self._agent.set(_WORK, _NEITHER)
        self._agent.set(_PHASE, _BETWEEN)
        if self.committed:
            report = {"done": self.index + 1, "seconds": self._seconds}
            if math.isfinite(self._loss):
                report["loss"] = self._loss
            else:
                report["lossNotFinite"] = True  # JSON has no such number
            if self._passed:
                report.update(microBatches=self._passed, computeSeconds=self._computing)
            report.update(self._profile)
            return report
        if not self.given_up:
            if not self.aborted:
                raise WrongOrder(f"step {self.index} ended: call step.commit() or step.give_up(why) before the next")
            self.give_up("the cluster gave it up")
        report = {"done": self.index, "ready": self._ready}
        if isinstance(self._why, Disagreement):  # each one's word counts, though another one's came first
            report.update(broken=_shortened(self.given_up, _MOST_BROKEN), outvoted=self._why.outvoted, tied=not self._why.outvoted)
        elif not self.aborted:
            report["broken"] = _shortened(self.given_up, _MOST_BROKEN)
        return report


class _Abortable:
    """Lets errors of a step that is given up pass, and keeps the script's own."""

    def __init__(self, step, abort):
        self.step, self.abort = step, abort

    def __enter__(self):
        self.step._agent.watch(self.step.id, self.abort)
        if self.step.aborted:  # before it was watched. An error from here would not be this `with`'s to let pass
            self.step._agent._give_up(self.step.id)
        return self.step

    def __exit__(self, kind, error, trace):
        step = self.step
        step._agent.watch(0, None)
        if error is None or step.committed:
            return False
        if isinstance(error, Error) and not isinstance(error, StepAborted):
            return False
        passes = Exception if step.aborted else (StepAborted, RuntimeError, OSError)
        if not isinstance(error, passes):
            return False
        step.give_up(error)
        return True


class _Alone:
    """Stands for an agent where there is none: a world of one."""

    node, lost, replicas, leaves = "", False, False, ()

    def __init__(self, units, batch, micro_batch, total_steps, lazy):
        self.units = [memoryview(mmap.mmap(-1, size)) for size in units]
        self.unmade = list(range(len(units))) if lazy else []
        self.batch, self.micro_batch, self.total = batch, micro_batch, total_steps
        self.order = 0
        self.values = {}
        self.left = None  # why, once it was asked to leave

    def next(self, report, wait=True):
        if report.get("broken"):
            raise Error(f"step {report['done']} broke: {report['broken']}")
        self.order += 1
        done = report["done"]
        if self.unmade:
            units, self.unmade = self.unmade, []
            return {"order": "give", "id": self.order, "step": 0, "units": units}
        if self.left is not None:
            return {"order": "left", "id": self.order, "reason": self.left}
        if self.total and done >= self.total:
            return {"order": "finished", "id": self.order}
        return {
            "order": "step", "id": self.order, "index": done, "generation": 1, "switched": done == 0, "resume": 0,
            "rank": 0, "world": 1, "nodes": [""], "samples": [[0, self.batch]], "consumed": done * self.batch,
            "batch": self.batch, "microBatch": self.micro_batch, "plan": self._plan() if done == 0 else None,
        }

    def _plan(self):
        stage = {"node": "", "layers": {"first": 0, "end": len(self.units)}}
        return {"pipelines": [{"microBatches": self.batch // self.micro_batch, "stages": [stage]}], "sync": {}}

    def get(self, word):
        return 0

    def set(self, word, value):
        pass

    def fence(self):
        pass

    def watch(self, step, abort):
        pass

    def call(self, method, path, body=None):
        if path == "leave":
            self.left = body["reason"]
            return None
        if path == "state":
            return {"node": "", "generation": 1, "step": 0, "replicas": 1, "safe": False}
        key, _, query = path.partition("?")
        if method == "PUT":
            self.values[key] = body
        elif method == "POST":
            self.values[key] = b"%d" % (int(self.values.get(key, b"0")) + int(query.partition("=")[2]))
        return self.values[key]


class _Agent:
    """A session with the agent at a socket."""

    def __init__(self, path, joining):
        self.path, self.lost, self.pid = path, False, os.getpid()
        self.leaves = collections.deque(maxlen=4)  # why this trainer is to leave, each time that it was told
        self.replicas = joining["job"]["kind"] == "data-parallel"
        self.copied = joining["state"] == "copied" and self.replicas and not joining["lazy"]
        self.ends = None  # is called where the script ends by an error
        self.connections = threading.local()
        self.lock = threading.Lock()
        self.begun = 0  # id of the step that was begun last
        self.watched, self.abort = 0, None  # id of the step that may be aborted, and how
        self.session = ""
        self._join(joining)
        control = os.path.join(self.joining["dir"], "control")
        self.alive = open(control, "rb")  # locked while this process lives: so agents know that its files are in use
        fcntl.flock(self.alive, fcntl.LOCK_SH)
        self.page = memoryview(_mapped(control)).cast("Q")  # a word is written at once
        paths = (os.path.join(self.joining["dir"], f"unit-{n}") for n in range(len(joining["units"])))
        self.units = [memoryview(_mapped(path)) for path in paths]
        _forget_in_children(self)
        _end_by_errors(self)

    def _join(self, joining):
        """Joins and opens the session; to join again, `joining` says where the state lies."""
        joined = self.call("POST", "join", joining)
        self.session, self.node = joined["session"], joined["node"]
        self.joining = dict(joining, node=self.node, dir=joined["dir"])
        stream = self._open()
        with self.lock:
            self.stream, self.lost = stream, False
        threading.Thread(target=self._attend, args=(stream,), name="reknit session", daemon=True).start()

    def _join_again(self, lost):
        """Joins the agent that comes in place of the one before, with the state that this trainer holds."""
        say(f"reknit: the session with the agent at {self.path} is over: joining again, for {_WAIT_SECONDS:.0f} s at most")
        until = time.monotonic() + _WAIT_SECONDS
        while True:
            try:
                return self._join(self.joining)
            except Error as error:  # there is none yet, or the one before has not ended, or it finds no NATS server
                if time.monotonic() >= until or _NO_OTHER and isinstance(error, AgentLost):
                    raise AgentLost(f"{error}: the state in job.units is as it was: save it, or end") from lost
            time.sleep(0.1)

    def next(self, report, wait=True):
        if os.getpid() != self.pid:
            raise WrongOrder(FORKED)
        if not wait:
            return self._tell(report)
        try:
            return self.call("POST", "next", report)
        except AgentLost as lost:
            self._join_again(lost)
        return self.next({"order": 0, "done": report["done"], "ready": report.get("ready", False)})

    def _tell(self, report):
        """Hands in a report and does not wait for an order."""
        body = json.dumps(report).encode()
        with self._dial() as connection:
            connection.sendall(b"POST /v1/next?session=%s HTTP/1.0\r\nHost: agent\r\nContent-Length: %d\r\n\r\n%s" % (
                self.session.encode(), len(body), body))
            select.select([connection], [], [], 0.1)

    def get(self, word):
        return self.page[word]

    def set(self, word, value):
        self.page[word] = value

    def fence(self):
        """Has the agent see the words that were set before those that are read afterwards."""
        with self.lock:
            pass

    def watch(self, step, abort):
        """Has abort called when the step is given up."""
        with self.lock:
            self.watched, self.abort = step, abort

    def call(self, method, path, body=None):
        """Makes a call and returns its answer; an answer that is no success is raised."""
        raw = isinstance(body, (bytes, bytearray, memoryview))
        data = body if raw or body is None else json.dumps(body).encode()
        target = f"/v1/{path}{'&' if '?' in path else '?'}session={self.session}"
        connection = getattr(self.connections, "one", None)
        if connection is None or connection.pid != os.getpid():
            connection = self.connections.one = _Connection(self._dial)
        try:
            connection.request(method, target, data)
            answer = connection.getresponse()
            content = answer.read()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            if path.startswith("store/"):
                raise StepAborted(f"no agent at {self.path}: {error or 'it ended'}") from error
            raise AgentLost(f"no agent at {self.path}: {error or 'it ended'}: start it with `reknit agent run -- …`, "
                            "or unset REKNIT_AGENT to train alone") from error
        if answer.status >= 300:
            raise _failure(answer.status, path, content)
        return json.loads(content) if answer.headers.get_content_type() == "application/json" else content

    def _dial(self):
        return _dial(self.path)

    def _open(self):
        """Opens the session, and returns its socket."""
        connection = self._dial()
        connection.sendall(f"GET /v1/session?session={self.session} HTTP/1.0\r\nHost: agent\r\n\r\n".encode())
        return connection

    def _attend(self, stream):
        """Hears of steps that are to be given up, and of the agent's end."""
        rest = b""
        while True:
            try:
                data = stream.recv(1 << 16)
            except (OSError, ValueError):
                data = b""
            if not data:
                stream.close()
                with self.lock:
                    self.lost = self.lost or stream is self.stream  # else this trainer has joined another agent
                if self.lost:
                    self._give_up(None)
                return
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                if line.startswith(b'{"abort"'):
                    self._give_up(json.loads(line)["abort"])
                elif line.startswith(b'{"waits"') and not _NO_OTHER:  # else the agent's log stands beside ours
                    held = json.loads(line)
                    say(f"reknit: training waits since {held['since']}: {held['waits']}" if held["waits"] else
                         "reknit: training goes on")
                elif line.startswith(b'{"leaving"'):
                    self.leaves.append(json.loads(line)["leaving"])
                elif line.startswith(b'{"late"') and not _NO_OTHER:
                    say(f"reknit: {json.loads(line)['late']}")

    def part(self, reason=""):
        """Ends this trainer for the agent, which keeps the state that it leaves: nothing is changed there any more. The others hear that
        the group is gone while that state is copied: whether the error came before they gave the step up is known only here."""
        in_step = self.get(_ABORT) < self.begun
        try:
            self.ends()
        except Exception:  # the state of a device that failed, say: others must have it
            say(traceback.format_exc())
        self.alive.close()  # before the session, after whose end agents look at it
        with self.lock:
            self.lost = True
        try:
            if reason:
                self._fail(reason, in_step)
        except (Error, OSError, http.client.HTTPException):
            pass  # an agent of before, or one that is gone: the end of the session says enough
        self.stream.shutdown(socket.SHUT_RDWR)

    def _fail(self, reason, in_step):
        """Tells the agent which error ends the script, and whether it came in a step that was not to be given up."""
        told = json.dumps({"reason": _shortened(reason, _MOST_REASON), "inStep": in_step}).encode()
        connection = _Connection(self._dial)
        connection.connect()
        connection.sock.settimeout(_FAIL_SECONDS)
        connection.request("POST", f"/v1/fail?session={self.session}", told)
        connection.getresponse().read()
        connection.close()

    def _give_up(self, step):
        with self.lock:
            due = self.watched and (step is None or self.watched <= step)
            abort = self.abort if due else None
            if due:
                self.watched, self.abort = 0, None
        if abort is not None:
            try:
                abort()
            except Exception:  # the script's: later steps are to be given up all the same
                say(traceback.format_exc())


def say(text):
    """Tells whoever reads the script's errors; where nobody does any more, training goes on all the same."""
    try:
        print(text, file=sys.stderr)
    except (OSError, ValueError):
        pass


class _Connection(http.client.HTTPConnection):
    """HTTP on a Unix socket."""

    def __init__(self, dial):
        super().__init__("agent")
        self.dial, self.pid = dial, os.getpid()

    def connect(self):
        self.sock = self.dial()


def _dial(path):
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(path)
    except OSError:
        connection.close()
        raise
    return connection


def _mapped(path):
    with open(path, "r+b") as file:
        return mmap.mmap(file.fileno(), 0)


def _failure(status, path, content):
    try:
        said = json.loads(content)
        what, fix = said["error"], said["fix"]
        text = f"{what}: {fix}"
    except (ValueError, KeyError):
        what = text = content.decode(errors="replace")
        fix = Refused.fix
    if path.startswith("store/"):
        return {404: KeyError, 410: StepAborted, 409: WrongOrder}.get(status, Refused)(text)
    error = {404: AgentLost, 409: WrongOrder, 410: Left}.get(status, Refused)(text)  # 404: it knows of no such session
    error.what, error.fix = what, fix
    return error


def _end_by_errors(agent):
    """Has an error that nobody catches end this trainer at once for its agent, and the process soon: an interpreter may wait at its end
    for ever, for a thread of the script, or for one of PyTorch in which a backward pass failed."""
    before, known, pid = sys.excepthook, weakref.ref(agent), os.getpid()

    def end(kind, error, trace):
        before(kind, error, trace)
        one = known()
        if one is None or os.getpid() != pid or sys.flags.interactive or hasattr(sys, "ps1"):
            return
        try:
            # Ctrl-C is somebody's wish, and no fault of the script's: a step in which it comes is not to blame.
            fault = not issubclass(kind, KeyboardInterrupt)
            one.part("".join(traceback.format_exception_only(kind, error)).strip() if fault else "")
        except OSError:
            pass  # the agent is gone
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(_END_SECONDS)

    sys.excepthook = end


def _forget_in_children(agent):
    """A child that kept the session or the lock would hide the trainer's end from the agent."""
    known = weakref.ref(agent)

    def forget():
        one = known()
        if one is not None:
            one.alive.close()  # before the session, after whose end agents look at it
            one.stream.close()
            one.lost = True

    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=forget)


def refusal(error, trace):
    """Returns in three lines where what was refused, why, and what to do."""
    what, _, why = getattr(error, "what", str(error)).partition(": ")
    own = [frame for frame in traceback.extract_tb(trace) if not os.path.basename(frame.filename).startswith("reknit")]
    at = f" at {own[-1].filename}:{own[-1].lineno}" if own else ""
    return f"reknit: refused{at}: {what}\n  because: {why or type(error).__name__}\n  do: {getattr(error, 'fix', Refused.fix)}"


def _tell_refusals():
    """Has a refusal that nobody catches told in three lines, in the place of a traceback."""
    before = sys.excepthook

    def tell(kind, error, trace):
        if getattr(error, "refused", False):
            say(refusal(error, trace))
        else:
            before(kind, error, trace)

    sys.excepthook = tell


_tell_refusals()
