package main

import (
	"cmp"
	"time"
)

// row is one way in which a script is wrong, and what a person is told about it.
type row struct {
	wrong    string        // the argument of wrong.py
	what     string        // in words
	alone    bool          // nobody else trains
	settings []string      // of its agent beside the usual ones; DIR is a folder of the row
	where    string        // it is said: script, which stands for what its agent and the script write; status; or doctor
	says     []string      // words that are all there
	within   time.Duration // zero: two minutes
}

// limit is how long a person may be left without an answer.
func (r row) limit() time.Duration { return cmp.Or(r.within, patience) }

// soon is what a hang or a refusal may take, with the start of the script and three others that are tried beside it.
const soon = 12 * time.Second

// Places where something is said.
const (
	script = "script"
	status = "status"
	doctor = "doctor"
)

var rows = []row{
	{wrong: "steps", what: "steps are others than the cluster's", where: script,
		says: []string{"because: field \"job.steps\": expected 100000", "got 900"}},
	{wrong: "batch", what: "the batch is another one", where: script,
		says: []string{"because: field \"job.globalBatch\": expected 12", "got 24"}},
	{wrong: "model", what: "the model has another size under the same digest", where: script,
		says: []string{"because: field \"job.units[1]\": expected 8 bytes", "got 16 bytes"}, within: soon},
	{wrong: "data", what: "the data are others", where: script, says: []string{"refused at", "because: field \"job.digest\""}},
	{wrong: "batch", what: "the same, where people look", where: status, says: []string{"refused", "globalBatch"}},
	{wrong: "divisor", what: "micro_batch does not divide batch", alone: true, where: script,
		says: []string{"micro_batch", "expected a divisor of batch, 12, got 5"}},
	{wrong: "no-batch", what: "batch is out of range", alone: true, where: script,
		says: []string{"refused at", ": batch", "got 0"}},
	{wrong: "word", what: "an argument is a word that is none", alone: true, where: script,
		says: []string{": kind", "data-parallel", "data-wise"}},
	{wrong: "unknown", what: "an argument is none of join", alone: true, where: script, says: []string{"batchsize"}},
	{wrong: "no-units", what: "there is no state", alone: true, where: script, says: []string{"refused at", "units"}},
	{wrong: "none", what: "the URL names no server", alone: true, settings: []string{"REKNIT_NATS_URL=nats://127.0.0.1:1"}, where: script,
		says: []string{"no NATS server answers yet; trying until one does"}},
	{wrong: "none", what: "no services serve the cluster", alone: true, settings: []string{"REKNIT_CLUSTER=nobodys"}, where: script,
		says: []string{"no plan yet, and no services serve this cluster", "reknit status tells which there are"}},
	{wrong: "none", what: "there is no such kit", alone: true, settings: []string{"REKNIT_NATS_KIT=/no/such/kit"}, where: script,
		says: []string{"REKNIT_NATS_KIT", "no such file or directory"}},
	{wrong: "import", what: "a module is missing", alone: true, where: script,
		says: []string{"No module named 'no_such_module'", "the trainer failed, and is not started again"}},
	{wrong: "path", what: "a file is missing", alone: true, where: script,
		says: []string{"/no/such/corpus.txt", "the trainer failed, and is not started again"}},
	{wrong: "error", what: "an error in a step", where: script,
		says: []string{"ValueError: record 3605 cannot be read", "the trainer failed; it is started again"}},
	{wrong: "error", what: "the same, where people look", where: status,
		says: []string{"who fails again and again waits longer each time"}},
	{wrong: "error-in-first", what: "an error in the first step of all", alone: true, where: status,
		says: []string{"nobody trains any more"}},
	{wrong: "no-commit", what: "step.commit() is forgotten", where: script,
		says: []string{"call step.commit() or step.give_up(why) before the next"}},
	{wrong: "killed", what: "something kills it, as where memory runs out", where: script,
		says: []string{"the trainer has ended", "signal: killed"}},
	{wrong: "crashes", what: "a library of it crashes", where: script, says: []string{"signal: aborted"}},
	{wrong: "exits", what: "it ends well in the middle of the job", where: script, says: []string{"the job is not complete"}},
	{wrong: "hangs", what: "it hangs in a step", where: script, says: []string{"hangs"}, within: soon},
	{wrong: "hangs", what: "the same, where people look", where: status, says: []string{"no step for", "waits for wrong"}, within: soon},
	{wrong: "hangs", what: "it hangs in a step, and nobody waits for it", alone: true, where: status,
		says: []string{"no step for"}},
	{wrong: "sleeps-behind", what: "it does something else behind a step for long", where: status,
		says: []string{"no step for", "(between steps)"}},
	{wrong: "hangs-before", what: "it never joins", where: script, says: []string{"the script has not joined yet", "--unchanged"}},
	{wrong: "nan", what: "the loss is no number", alone: true, where: status,
		says: []string{"the loss is not finite since step 4", "begin anew"}},
	{wrong: "nan", what: "the same, with snapshots", alone: true, where: status,
		settings: []string{"REKNIT_SNAPSHOT_FOLDER=DIR/snapshots", "REKNIT_SNAPSHOT_DISK_EVERY=1"},
		says:     []string{"the loss is not finite since step 4", "that of step 3 (disk) stays", "training goes on from step 3"}},
	{wrong: "nan", what: "the same, where an operator looks", alone: true, where: doctor,
		says: []string{"the loss is not finite since step 4"}},
}
