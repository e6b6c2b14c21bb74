"""Trains a small network together with whoever is there: a node of Reknit, over NATS, with no code of Reknit.

    python3 worker.py --node n1 --url nats://127.0.0.1:4222

The duties of a node, in their order, are in events/README.md, "A node's part"; the methods come in that order. One queue
takes all that is heard, from NATS and from peers. One thread takes it out, and nothing else changes a worker.
"""

import argparse
import collections
import json
import math
import queue
import signal
import statistics
import sys
import time
import uuid

import moving
import peers
import wire
from perceptron import BATCH, MICRO_BATCH, Perceptron, digest
from trainer import NO_PLAN, Trainer

BEAT_SECONDS = 0.2
LOOK_SECONDS = 1.5  # within which who has this node's name answers
LISTENING = 8  # events of which a refusal is still waited for
LOSS_SECONDS = 0.5  # within which a peer whose connection ended is known to be lost; else the step is told as broken


def job(steps):
    """The job, which all workers must have alike. Its digest covers Python's version: a sum of floats differs between versions."""
    layers = [{"parameterBytes": len(unit) * 4, "optimizerBytes": len(unit) * 4, "gradientBytes": len(unit) * 4,
               "activationBytes": 1024, "outputBytes": 1024} for unit in Perceptron().units]
    return {"digest": digest(f"perceptron, Python {sys.version}".encode()), "kind": "data-parallel", "layers": layers,
            "steps": steps, "globalBatch": BATCH, "microBatch": MICRO_BATCH,
            "pipelines": {"min": 0, "max": 0}, "stages": {"min": 0, "max": 0}}


def report(**what):
    print(json.dumps(what), flush=True)


class Worker:
    def __init__(self, options):
        self.node, self.cluster, self.options = options.node, options.cluster, options
        self.inbox, self.leaving, self.over = queue.SimpleQueue(), False, False
        self.shards = f"REKNIT_SHARDS_{self.cluster}"  # the bucket of units on their way
        self.trainer = Trainer(self.node, self.send)
        self.trained = NO_PLAN  # the plan before this worker was given up: it claims what it holds
        self.heard = collections.deque(maxlen=1000)  # ids of events
        self.beats, self.next_beat = 0, 0.0
        self.fresh, self.completed_at, self.seconds = False, time.monotonic(), collections.deque([0.0], maxlen=20)

    def run(self):
        """Takes part until the end. Nothing that NATS says is heard while the connection is down: then this worker asks anew."""
        self.peers = peers.Peers(self.node, self.options.host, lambda *said: self.inbox.put((self.hear_peer, *said)))
        signal.signal(signal.SIGTERM, self.told_to_end)
        while not self.over:
            try:
                with wire.Connection(self.options.url, lambda *ended: self.inbox.put((self.hub_ended, *ended))) as self.hub:
                    if self.trainer.plan is NO_PLAN and self.trained is NO_PLAN:
                        self.look()
                    if not self.over:
                        self.subscribe()
                        self.join()
                    while not self.over:
                        self.take_part()
            except wire.Error as error:
                report(hub=str(error))
                time.sleep(1)

    def take_part(self):
        if time.monotonic() >= self.next_beat:
            self.beat()
        try:
            act, *what = self.inbox.get(timeout=BEAT_SECONDS)
            act(*what)
        except queue.Empty:
            pass
        self.adopt()
        self.move()
        self.train()

    def look(self):
        """Ends where another process has this node's name: to ask for a place would end the other's membership. A worker
        that has trained does not look: it may hold what nobody else does."""
        try:
            self.hub.request(f"reknit.probe.{self.cluster}.{self.node}", b"{}", timeout=LOOK_SECONDS)
        except wire.Error:
            return  # nobody answers to it
        self.end(f"another process answers to the name {self.node}: expected one for each")

    def subscribe(self):
        self.listening = collections.deque()
        event, me = f"reknit.event.{self.cluster}", self.node
        for subject, hear in {
            f"reknit.plan.{self.cluster}.*": self.hear, f"{event}.negotiation.*.*": self.hear,
            f"{event}.shard.offered.*": self.hear, f"{event}.membership.refused.{me}": self.hear,
            f"{event}.training.completed.*": self.hear,
            f"reknit.probe.{self.cluster}.{me}": self.answer_probe, f"reknit.relay.{self.cluster}.{me}": self.hear_relayed,
        }.items():
            self.hub.subscribe(subject, lambda message, hear=hear: self.inbox.put((hear, message)))

    def hub_ended(self, hub, why):
        if hub is self.hub:
            raise wire.Error(why)

    def end(self, why):
        self.over = True
        report(ended=why)

    # Membership.

    def join(self):
        """Asks for a place, as one that is new, and claims what it trained before."""
        if self.trainer.world:
            self.trained = self.trainer.plan
        self.trainer.follow(NO_PLAN)
        self.pending = collections.deque()  # committed plans, each for a step to come
        self.opening = None  # of the negotiation under way
        self.early = None  # an opening that came before the plan it follows
        self.schedule, self.given, self.offers = None, False, {}  # of the move under way
        self.taken = {}  # units that came for the next plan
        self.told_end, self.told_end_at = 0, 0.0  # generation under which this worker told that training is complete here, and when
        self.stop = math.inf  # not to be passed: a promise
        self.hold = 0  # the step was given up: none begins before a plan of this generation
        self.suspicions, self.broken_at = {}, math.inf  # peers whose connections ended; when that is told as a broken step
        self.incarnation = uuid.uuid4().hex[:12]
        self.say("membership.join-requested", address=self.peers.address, memoryBytes=1 << 30, job=job(self.options.steps))
        report(node=self.node, incarnation=self.incarnation, address=self.peers.address)

    def told_to_end(self, *_):
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # whoever cannot wait for the others sends another one
        self.inbox.put((self.leave,))

    def leave(self):
        self.leaving = True
        self.say("membership.leave-requested", reason="SIGTERM", deadlineSeconds=0)

    def refused(self, _, refusal):
        """Ends, or asks again where it was given up while it lived. A leave that is refused changes nothing."""
        if refusal.get("incarnation") != self.incarnation:
            return
        if refusal["refused"] != "membership":
            self.end(f"{refusal['refused']} refused: {refusal['reason']}")
            return
        self.join()
        if refusal.get("astray"):
            self.trained = NO_PLAN

    def say(self, kind, subject="", cause="", **data):
        """Says an event, and returns when the log has it. The id of an answer follows from what caused it, so that a
        repeat is no second answer."""
        subject = subject or self.node
        words = [self.node, self.incarnation, kind, subject, cause or uuid.uuid4().hex]
        identity = digest(" ".join(words).encode())[-32:]
        event = {"specversion": "1.0", "id": identity, "type": f"io.reknit.{kind}.v1", "source": f"/node/{self.node}",
                 "subject": subject, "cluster": self.cluster, "datacontenttype": "application/json",
                 "data": {"node": self.node, "incarnation": self.incarnation, **data}}
        if cause:
            event["cause"] = cause
        try:
            number = self.hub.store(f"reknit.event.{self.cluster}.{kind}.{subject}", json.dumps(event).encode(),
                                    {"Nats-Msg-Id": identity})
            self.listen_for_refusal(kind, number)
        except wire.Refused as why:
            report(unsaid=kind, why=str(why))

    def listen_for_refusal(self, kind, number):
        """Hears whether the services refuse a message of the log, for as long as it is one of the last that were said."""
        subject = f"reknit.event.{self.cluster}.event.refused.{number}"

        def hear(data):
            self.inbox.put((self.told_refusal, kind, data))

        self.listening.append(self.hub.subscribe(subject, lambda message: hear(message.data)))
        if len(self.listening) > LISTENING:
            self.hub.unsubscribe(self.listening.popleft())
        said_already = self.hub.last(f"REKNIT_EVENTS_{self.cluster}", subject)
        if said_already:
            hear(said_already)

    def told_refusal(self, kind, data):
        """Tells why an event was refused; whoever is no service says nothing of that. One that was to be answered ends it."""
        event = json.loads(data)
        if event.get("source") in ("/monitor", "/negotiator", "/planner", "/restorer"):
            why = f"{kind}: {event['data']['reason']}: {event['data']['detail']}"
            report(refused=why)
            if kind == "membership.join-requested":
                self.end(why)

    def beat(self, left=False):
        self.beats += 1
        self.next_beat = time.monotonic() + BEAT_SECONDS
        pulse = {"node": self.node, "incarnation": self.incarnation, "number": self.beats, "left": left,
                 "generation": self.trainer.plan["generation"], "step": self.trainer.done,
                 "stepSeconds": statistics.median(self.seconds), "loss": self.trainer.loss,
                 "suspicions": list(self.suspicions.values())}
        self.hub.publish(f"reknit.pulse.{self.cluster}.{self.node}", json.dumps(pulse).encode())

    def answer_probe(self, message):
        probe = json.loads(message.data)
        answer = {"node": self.node, "incarnation": self.incarnation}
        if probe.get("target"):
            try:
                answer["measured"] = peers.measure(self.node, probe["target"], probe["address"], probe.get("bytes", 0))
            except OSError as error:
                answer["error"] = str(error)
        self.hub.publish(message.reply, json.dumps(answer).encode())

    # A negotiation, from its opening to the plan or its end.

    def hear(self, message):
        event = json.loads(message.data)
        if event["id"] in self.heard:
            return
        self.heard.append(event["id"])
        act = {"io.reknit.negotiation.opened.v1": self.opened, "io.reknit.negotiation.prepared.v1": self.prepared,
               "io.reknit.negotiation.scheduled.v1": self.scheduled, "io.reknit.negotiation.aborted.v1": self.aborted,
               "io.reknit.shard.offered.v1": self.offered, "io.reknit.plan.committed.v1": self.committed,
               "io.reknit.membership.refused.v1": self.refused, "io.reknit.training.completed.v1": self.complete}.get(event["type"])
        if act:
            if "data" not in event:  # it is over 64 KiB
                bucket = "REKNIT_PLAN_PAYLOADS" if act == self.committed else "REKNIT_PAYLOADS"
                event["data"] = json.loads(wire.Objects(self.hub, f"{bucket}_{self.cluster}").get(event["dataref"]))
            act(event, event["data"])

    def opened(self, event, opening):
        newest = self.newest()["generation"]
        if opening["generation"] <= newest:
            return  # it is over
        if not self.named(opening["members"]):
            if opening["abandon"] and self.pending and not self.named(self.newest()["nodes"]):
                self.follow(self.pending.pop())  # nobody comes to the step at which this worker was to leave
            elif opening["abandon"]:
                self.early = event  # the plan that leaves this worker out may be still to come
            return
        if newest and opening["generation"] != newest + 1:
            self.early = event  # the plan before it is still to come
            return
        self.opening, self.schedule, self.taken, self.offers, self.stop = opening, None, {}, {}, math.inf
        if opening["abandon"]:
            self.hold = opening["generation"]
        self.say("negotiation.consented", cause=event["id"], negotiation=opening["negotiation"], accepted=True,
                 step=self.trainer.done, measurements=peers.measure_links(self.node, opening), **self.holdings(opening))

    def holdings(self, opening):
        trainer, units = self.trainer, {"first": 0, "end": len(self.trainer.model.units)}
        if opening["generation"] == 1 or opening.get("begins"):
            return {"holdings": [{"units": units, "steps": [0]}]}
        if trainer.world and self.hold:
            return {"holdings": [{"units": units, "steps": [trainer.done + 1] * trainer.ready() + [trainer.done]}]}
        if trainer.world:
            return {"holdings": [{"units": units, "steps": [trainer.done], "current": True}]}
        if self.trained["generation"] and opening["abandon"]:
            claims = [{"unit": unit, "step": trainer.done, "digest": digest(trainer.model.read(unit))}
                      for unit in range(units["end"])]
            return {"holdings": [], "claims": claims, "trained": self.trained["generation"]}
        return {"holdings": []}

    def prepared(self, event, preparation):
        if self.negotiates(preparation) and self.trainer.world:
            self.stop = min(max(self.trainer.done + 2, self.newest()["resumeStep"]), self.options.steps)
            self.say("negotiation.promised", cause=event["id"], negotiation=preparation["negotiation"], stopStep=self.stop)

    def scheduled(self, event, schedule):
        if self.negotiates(schedule):
            self.schedule, self.given, self.stop = {**schedule, "cause": event["id"]}, False, schedule["stopStep"]

    def offered(self, _, offer):
        if self.negotiates(offer):
            self.offers[offer["node"], offer["unit"]] = offer

    def aborted(self, _, abort):
        if self.negotiates(abort):
            self.opening, self.schedule, self.taken = None, None, {}
            if not abort["superseded"]:
                self.stop = math.inf

    def committed(self, _, plan):
        if self.newest()["generation"] == 0 and not self.named(plan["nodes"]):
            return  # a newcomer's own is still to come
        self.pending.append(plan)
        self.opening, self.schedule, self.stop = None, None, math.inf
        self.adopt()
        if self.early:
            event, self.early = self.early, None
            self.opened(event, event["data"])

    def newest(self):
        return self.pending[-1] if self.pending else self.trainer.plan

    def named(self, members):
        return any(member["node"] == self.node and member["incarnation"] == self.incarnation for member in members)

    def negotiates(self, word):
        return self.opening is not None and self.opening["negotiation"] == word["negotiation"]

    def move(self):
        """Gives and takes units once this worker stands where all stop."""
        schedule = self.schedule
        if not schedule or self.trainer.world and not self.hold and self.trainer.done != schedule["stopStep"]:
            return
        about = {"cause": schedule["cause"], "negotiation": schedule["negotiation"]}
        try:
            if not self.given:
                self.given = True
                self.give(schedule, about)
            taken = moving.take(self.node, schedule["plan"]["migration"], self.offers, wire.Objects(self.hub, self.shards))
        except (wire.Refused, wire.Error, ValueError) as error:
            self.schedule = None
            self.say("restoration.failed", reason=str(error), **about)
            return
        if taken is not None:
            self.schedule, self.taken = None, taken
        if taken:
            self.say("shard.received", seconds=0, **about, units=[
                {"unit": unit, "step": schedule["stopStep"], "digest": digest(content), "bytes": len(content)}
                for unit, content in taken.items()])

    def give(self, schedule, about):
        def content_of(unit):
            self.trainer.reach(schedule["stopStep"])
            return self.trainer.model.read(unit)

        for offer in moving.give(self.node, schedule["plan"]["migration"], content_of, wire.Objects(self.hub, self.shards)):
            self.say("shard.offered", f"unit-{offer['unit']}", step=schedule["stopStep"], **about, **offer)

    def adopt(self):
        """Goes over to committed plans: to each at its step, or at once where this worker trains nothing or gave up its
        step for it. A plan that was on its way when a step was given up for a later one is passed over."""
        trainer = self.trainer
        while self.pending and not self.over:
            plan = self.pending[0]
            gave_up = self.hold and plan["generation"] >= self.hold
            if not trainer.world or gave_up or trainer.done == plan["resumeStep"]:
                self.hold = 0 if gave_up else self.hold
                self.follow(plan)
            elif not self.hold or len(self.pending) == 1:
                return
            self.pending.popleft()

    def follow(self, plan):
        trainer = self.trainer
        if not self.named(plan["nodes"]):
            self.beat(left=True)
            self.end("left")
            return
        asked_anew = self.leaving and not trainer.world
        if self.taken:
            trainer.load(plan["resumeStep"], self.taken)
        elif trainer.world or self.trained["generation"]:
            trainer.reach(plan["resumeStep"])
        trainer.follow(plan)
        self.taken, self.trained, self.suspicions, self.broken_at, self.fresh = {}, NO_PLAN, {}, math.inf, True
        self.peers.meet({member["node"]: member["address"] for member in plan["nodes"]
                         if member["node"] in trainer.world and member["node"] != self.node and not self.relayed(member["node"])})
        report(generation=plan["generation"], resumes=trainer.done, nodes=len(trainer.world))
        if asked_anew:
            self.leave()  # the wish ended with the incarnation that had it

    # Training.

    def train(self):
        """Goes on with the step under way, where there is one."""
        trainer = self.trainer
        if not trainer.world or self.hold or self.over:
            return
        if trainer.done >= self.options.steps:
            self.tell_end()
        elif trainer.done < min([self.stop] + [plan["resumeStep"] for plan in self.pending]):
            if trainer.advance():
                self.completed()
            elif time.monotonic() > self.broken_at:
                self.hold = math.inf  # until an opening tells the generation
                self.say("step.broken", generation=trainer.plan["generation"], step=trainer.done, reason="a connection ended")

    def completed(self):
        trainer, now, usual = self.trainer, time.monotonic(), statistics.median(self.seconds)
        took, self.completed_at = now - self.completed_at, now
        if self.fresh:
            self.fresh, stall = False, max(0.0, took - usual)
            self.say("plan.activated", generation=trainer.plan["generation"], step=trainer.done, stallSeconds=stall,
                     stallSteps=stall / usual if usual else 0, stepSeconds=usual)
        else:
            self.seconds.append(took)
        report(done=trainer.done, world=len(trainer.world), loss=trainer.loss)
        time.sleep(self.options.pause)
        if trainer.done == self.options.cut_at:
            self.peers.cut()

    def tell_end(self):
        """Tells, under each plan and then once a minute, that training is complete here. The others may need what this worker
        holds until it is complete for all."""
        generation = self.trainer.plan["generation"]
        if self.told_end != generation or time.monotonic() > self.told_end_at + 60:
            self.told_end, self.told_end_at = generation, time.monotonic()
            self.say("training.digested", generation=generation, step=self.trainer.done, final=True, units=[])

    def complete(self, _, end):
        """Ends: the job is complete."""
        if self.trainer.done >= self.options.steps:
            report(finished=self.trainer.done, digest=self.trainer.model.digest())
        self.end(f"the job is complete: step {end['step']} was made")

    def send(self, peer, message):
        if self.relayed(peer):
            self.hub.publish(f"reknit.relay.{self.cluster}.{peer}", json.dumps({"from": self.node, **message}).encode())
        else:
            self.peers.send(peer, message)

    def relayed(self, peer):
        """Tells whether the plan forbids a connection to a peer."""
        return {"a": min(self.node, peer), "b": max(self.node, peer)} in self.trainer.plan.get("relays", [])

    def hear_relayed(self, message):
        said = json.loads(message.data)
        self.hear_peer(said["from"], said)

    def hear_peer(self, peer, message):
        """Takes a peer's word. None tells that its connection ended: the monitor asks after it, and it is lost within
        milliseconds. If it lives, the step is broken all the same."""
        if message is not None:
            self.trainer.hear(peer, message)
            return
        self.peers.drop(peer)
        if peer in self.trainer.world and not self.relayed(peer):
            self.suspicions[peer] = {"node": peer, "refused": True, "reason": "its connection ended"}
            self.broken_at = min(self.broken_at, time.monotonic() + LOSS_SECONDS)
            self.beat()


def main():
    parser = argparse.ArgumentParser(description="Trains a small network together with whoever is there, over NATS.")
    parser.add_argument("--node", required=True, help="id of this worker: letters, digits, - and _")
    parser.add_argument("--url", default="nats://127.0.0.1:4222", help="of NATS")
    parser.add_argument("--cluster", default="default")
    parser.add_argument("--host", default="127.0.0.1", help="under which the others reach this worker")
    parser.add_argument("--steps", type=int, default=1000, help="in all")
    parser.add_argument("--pause", type=float, default=0.0, help="seconds after each step, so that there is time to look")
    parser.add_argument("--cut-at", type=int, default=-1, help="step after which all of its connections to others break, once")
    Worker(parser.parse_args()).run()


if __name__ == "__main__":
    main()
