"""Measures by how much predicted steps are off, on real processes: before a kill and after it. Standard library.

usage: python3 tests/bench/estimate/estimate.py [--only WORD] [--trace]   (make bench-estimate; PYTHON= one that has PyTorch)

Each row is a job of its own: `reknit up`, trainers that join one after the other until all are there, then one that is killed. A
plan is judged after HOLD seconds of training, by what `reknit status --json` says then, as a user reads it. The first plan of a job is
a guess, or what the job declares, and is no row.

Cores of one machine share what they compute with: two trainers that know nothing of each other slow each other down. So a core that has
no trainer of the job has one all the same, of a cluster of its own, and a trainer's core is as fast under one plan as under another.

A fixed work is timed ten times a second on each core, by processor time, which others do not lengthen. By how much the slowest core of
the job was slower under the plan than under the one before, from which the prediction came, stands in the row: of that no estimator
can know. The error without it is told, too.
"""

import argparse
import functools
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
REKNIT = os.path.join(ROOT, "bin", "reknit")
TEXT = os.path.join(ROOT, "README.md")
SLEEPER = os.path.join(ROOT, "tests", "bench", "estimate", "sleeper.py")
ELASTIC = os.path.join(ROOT, "services", "agent", "examples", "pytorch", "elastic.py")
TARGET = 0.10
PATIENCE = 240.0  # seconds until a plan has measured steps
HOLD = 40.0  # seconds of a plan: cores are up to twice as slow for some seconds, and their means over so many differ by a twentieth
TRACE = "--trace" in sys.argv
ENDLESS = "1000000"
WORK = 20000  # squares, which take a millisecond or two

# The row's words, how many trainers, whether each has a core of its own, whether it needs PyTorch, its command and its settings.
JOBS = [
    ("reference trainer, 2 replicas or stages", 2, True, False, [REKNIT, "trainer"], {}),
    ("reference trainer, 1 pipeline", 2, True, False, [REKNIT, "trainer"], {"REKNIT_TRAINER_PIPELINES": "1"}),
    ("reference trainer, 2 replicas, 6 in a micro-batch", 2, True, False, [REKNIT, "trainer"],
     {"REKNIT_TRAINER_MOST_STAGES": "1", "REKNIT_TRAINER_MICRO_BATCH": "6"}),
    ("PyTorch, replicas", 2, True, True, [REKNIT, "agent", "run", "--", sys.executable, ELASTIC, "--text", TEXT, "--steps", ENDLESS], {}),
    ("PyTorch, sleeps, 1 pipeline", 6, False, True, [REKNIT, "agent", "run", "--", sys.executable, SLEEPER, "1"], {"REKNIT_SNAPSHOT_MEMORY_EVERY": "5"}),
    ("PyTorch, sleeps, 2 pipelines", 6, False, True, [REKNIT, "agent", "run", "--", sys.executable, SLEEPER, "2"], {}),
    ("PyTorch, sleeps, 3 pipelines", 6, False, True, [REKNIT, "agent", "run", "--", sys.executable, SLEEPER, "3"], {}),
]


class Cluster:
    """NATS, the services and trainers of one row."""

    def __init__(self, directory, start_nodes):
        self.directory, self.processes, self.cores, self.companion = directory, [], [], None
        log = open(os.path.join(directory, "up.log"), "w+")
        self.up = subprocess.Popen([REKNIT, "up", "--dir", os.path.join(directory, "data"), "--port", "0", "--page", "none",
                                    "--start-nodes", str(start_nodes)], stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
        self.url = wait(lambda: url_in(log.name), 60, "NATS")

    def start(self, name, command, settings, core=None):
        """Starts a trainer, on a core of its own where one is named."""
        environment = {**os.environ, "REKNIT_NATS_URL": self.url, "REKNIT_TRAINER_NODE": name, "REKNIT_AGENT_NODE": name,
                       "REKNIT_TRAINER_TEXT": TEXT, "REKNIT_TRAINER_STEPS": ENDLESS, "OMP_NUM_THREADS": "1", "GOMAXPROCS": "1",
                       "GLOO_SOCKET_IFNAME": "lo", "PYTHONPATH": os.path.join(ROOT, "services", "agent", "python"), **settings}
        log = open(os.path.join(self.directory, f"{name}.log"), "w")
        process = subprocess.Popen(command, env=environment, cwd=self.directory, stdout=log, stderr=subprocess.STDOUT,
                                   start_new_session=True, preexec_fn=core is not None and functools.partial(os.sched_setaffinity, 0, {core}) or None)
        if core is not None:
            self.cores.append(Core(core))
        self.processes.append(process)

    def share_core(self, command, settings, core):
        """Has a trainer of another cluster use a core, until leave_core."""
        self.companion = Cluster(tempfile.mkdtemp(dir=self.directory), 1)
        self.companion.start("companion", command, settings, core)

    def leave_core(self):
        """Ends the trainer of another cluster, where there is one."""
        if self.companion:
            self.companion.close()
        self.companion = None

    def kill_last(self):
        """Kills a trainer with all that it started."""
        os.killpg(self.processes.pop().pid, signal.SIGKILL)
        if self.cores:
            self.cores.pop().close()

    def status(self):
        """Returns what reknit status says; nothing where it says nothing."""
        said = subprocess.run([REKNIT, "status", "--json", "--nats", self.url], capture_output=True, text=True)
        try:
            return json.loads(said.stdout)
        except ValueError:
            return {}

    def busy(self):
        """Returns the processor seconds of this machine so far, and those of them that the row itself used."""
        with open("/proc/stat") as file:
            user, nice, system, _, _, irq, softirq, steal = map(int, file.readline().split()[1:9])
        clusters = [cluster for cluster in (self, self.companion) if cluster]
        sessions, own = {process.pid for cluster in clusters for process in [*cluster.processes, cluster.up]}, 0
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/stat") as file:
                    fields = file.read().rpartition(")")[2].split()
            except OSError:
                continue  # it ended
            if int(fields[3]) in sessions:
                own += int(fields[11]) + int(fields[12])
        tick = os.sysconf("SC_CLK_TCK")
        return (user + nice + system + irq + softirq + steal) / tick, own / tick

    def measured(self, nodes, after):
        """Returns the status once so many nodes have trained for HOLD seconds under a plan after one of a generation; how many
        processors others than this row were using meanwhile: a busy machine is seen by it; and what the fixed work took on the slowest
        core of a trainer."""
        began, generation, begun = 0.0, after, (0.0, 0.0)
        def look():
            nonlocal began, generation, begun
            time.sleep(1)
            status = self.status()
            states = status.get("nodes", {})
            if status.get("generation", 0) <= after or states.get("training", 0) + states.get("spare", 0) != nodes or not status.get("step"):
                return None
            if status["generation"] != generation:
                began, generation, begun = time.monotonic(), status["generation"], self.busy()
            if TRACE:
                print(f"  {time.monotonic() - began:5.1f} s  generation {generation}  step {status.get('step')}  {states}  "
                      f"{status.get('prediction')}", flush=True)
            return time.monotonic() - began > HOLD and (status.get("prediction") or status.get("guessed")) and status
        status = wait(look, PATIENCE, f"a measured plan of {nodes}")
        busy, own = (now - before for now, before in zip(self.busy(), begun))
        return status, max(0.0, busy - own) / (time.monotonic() - began), max((core.took(began) for core in self.cores), default=0.0)

    def close(self):
        self.leave_core()
        for core in self.cores:
            core.close()
        for process in [*self.processes, self.up]:
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
            process.wait()


class Core:
    """A processor whose own speed is measured."""

    def __init__(self, number):
        loop = (f"import os, time\nos.sched_setaffinity(0, {{{number}}})\nwhile True:\n began = time.process_time()\n"
                f" sum(i * i for i in range({WORK}))\n print(time.monotonic(), time.process_time() - began, flush=True)\n time.sleep(0.1)")
        self.file = tempfile.NamedTemporaryFile("w+")
        self.process = subprocess.Popen([sys.executable, "-c", loop], stdout=self.file)

    def took(self, since):
        """Returns the mean of the processor seconds of the work since a moment: a core is fast by turns, and steps go through both."""
        with open(self.file.name) as file:
            lines = [line.split() for line in file if line.endswith("\n")]
        return statistics.mean([float(seconds) for at, seconds in lines if float(at) >= since])

    def close(self):
        self.process.kill()
        self.process.wait()
        self.file.close()


def wait(look, seconds, what):
    """Returns what look returns, once that is something."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        found = look()
        if found:
            return found
        time.sleep(0.2)
    raise TimeoutError(f"{what}: not there after {seconds:.0f} s")


def url_in(log):
    with open(log) as file:
        found = re.search(r"nats://[\w.:]+", file.read())
    return found and found.group()


def row(name, when, measured, before):
    """Prints a row, and returns its error, and that without what cores were slower than under the plan before."""
    status, others, pace = measured
    p = status["prediction"]
    slower = pace / before[2] if pace else 1.0
    own = abs(slower * p["predictedSeconds"] - p["measuredSeconds"]) / p["measuredSeconds"]
    print(f"{name:50} {when:7} {status['shape']:12} {1000 * p['predictedSeconds']:9.2f} {1000 * p['measuredSeconds']:9.2f} "
          f"{100 * p['error']:6.1f} % {slower:7.2f} {100 * own:6.1f} % {others:6.1f}  {'' if p['error'] <= TARGET else 'beyond the target  '}"
          f"{p.get('why', '')}", flush=True)
    return p["error"], own


def run(name, nodes, pinned, command, settings, errors):
    """Runs a job, and adds the errors of its rows."""
    directory = tempfile.mkdtemp(prefix="reknit-estimate-")
    cluster = Cluster(directory, nodes - 1)
    try:
        last = nodes - 1
        for n in range(last):
            cluster.start(f"n{n + 1}", command, settings, n if pinned else None)
        if pinned:
            cluster.share_core(command, settings, last)
        first = cluster.measured(last, 0)
        cluster.leave_core()
        cluster.start(f"n{nodes}", command, settings, last if pinned else None)
        joined = cluster.measured(nodes, first[0]["generation"])
        errors.append(row(name, "joined", joined, first))
        cluster.kill_last()
        if pinned:
            cluster.share_core(command, settings, last)
        errors.append(row(name, "killed", cluster.measured(last, joined[0]["generation"]), joined))
    finally:
        cluster.close()
    shutil.rmtree(directory, ignore_errors=True)


def has_torch():
    return subprocess.run([sys.executable, "-c", "import torch"], capture_output=True).returncode == 0


def main():
    """Run all jobs, one after the other."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="run the jobs whose name has this word")
    parser.add_argument("--trace", action="store_true", help="print what status says each second")
    only, errors, torch = parser.parse_args().only, [], has_torch()
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} before; the error is |predicted - measured| / measured, target {TARGET:.0%}")
    print(f"{'job':50} {'node':7} {'pipelines':12} {'predicted':>9} {'measured':>9}  error    slower  error  others   (ms a step; "
          "how many times as slow cores were as before, and the error without that; processors that others used)", flush=True)
    for name, nodes, pinned, needs_torch, command, settings in JOBS:
        if only not in name:
            continue
        if needs_torch and not torch or pinned and os.cpu_count() < nodes:
            print(f"{name:50} skipped: {'PyTorch is not installed' if needs_torch and not torch else f'fewer than {nodes} cores'}")
            continue
        try:
            run(name, nodes, pinned, command, settings, errors)
        except (TimeoutError, KeyError) as error:
            print(f"{name:50} failed: {error}")
            errors.append((float("inf"), float("inf")))
    within, without = (sum(error[column] <= TARGET for error in errors) for column in (0, 1))
    print(f"{within} of {len(errors)} rows within the target, {without} without what cores were slower; load {os.getloadavg()[0]:.1f} after")
    return 0 if errors and within == len(errors) else 1


if __name__ == "__main__":
    sys.exit(main())
