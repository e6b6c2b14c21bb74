package machine

import (
	"strings"
	"testing"

	"github.com/reknit/reknit/events"
)

func TestAJoinWithAnotherJobIsRefusedByTheFieldThatDiffers(t *testing.T) {
	for field, change := range map[string]func(*events.Job){
		`"job.digest": expected "sha256:`:                                               func(job *events.Job) { job.Digest = events.Digest([]byte("another")) },
		`"job.steps": expected 40 as in the cluster's job, got 300: `:                   func(job *events.Job) { job.Steps = 300 },
		`batch 12, 40 steps, this is 3 layers, 900 bytes of state, batch 12, 300 steps`: func(job *events.Job) { job.Steps = 300 },
		`"job.globalBatch": expected 12 as`:                                             func(job *events.Job) { job.Steps, job.GlobalBatch = 300, 24 },
		`"job.layers": expected 3`:                                                      func(job *events.Job) { job.Layers = job.Layers[:2] },
		`this is 1 layer, `:                                                             func(job *events.Job) { job.Layers = job.Layers[:1] },
		`"job.tied": expected [] `:                                                      func(job *events.Job) { job.Tied = []events.Range{{First: 0, End: 2}} },
		`"job.kind": expected "pipeline"`:                                               func(job *events.Job) { job.Kind = events.DataParallel },
		`"job.replicas": expected "equal"`:                                              func(job *events.Job) { job.Replicas = events.AlikeReplicas },
		`"job.optimizerPartitions": expected 2`:                                         func(job *events.Job) { job.OptimizerPartitions = 3 },
		`"job.globalBatch": expected 12`:                                                func(job *events.Job) { job.GlobalBatch = 24 },
		`"job.microBatch": expected 1`:                                                  func(job *events.Job) { job.MicroBatch = 2 },
		`"job.batchRule": expected {"samplesPerNode":4`:                                 func(job *events.Job) { job.BatchRule = nil },
		`"job.units[2]": expected 100 bytes as in the cluster's job, got 7 bytes`:       func(job *events.Job) { job.Layers[2].ParameterBytes = 7 },
	} {
		w := newEmptyWorld(t, 2, 2)
		w.steps = 40
		w.batchRule = &events.BatchRule{SamplesPerNode: 4, LearningRate: "linear"}
		w.begin(2)
		join := must[events.Join](t, w.heard[0])
		join.Node, join.Incarnation = "n7", "x"
		change(&join.Job)
		w.hear(events.JoinRequested, "/node/n7", "n7", &join)
		w.run()
		refused := w.refusals("n7")
		if len(refused) != 1 || refused[0].Incarnation != "x" || !refused[0].OtherJob || !strings.Contains(refused[0].Reason, field) {
			t.Errorf("expected a refusal that says %s, got %+v", field, refused)
		} else if !strings.Contains(refused[0].Reason, "the cluster trains 3 layers, ") {
			t.Errorf("expected that it says what the cluster trains, got %q", refused[0].Reason)
		}
	}
}

// A script that loads its newest checkpoint has another first state at each start.
func TestFirstStatesAreComparedUntilThereIsAPlan(t *testing.T) {
	w := newWorld(t, 2)
	join := must[events.Join](t, w.heard[0])
	w = newEmptyWorld(t, 1, 2)
	asks := func(node, state string) {
		join.Node, join.Incarnation, join.Job.FirstState = node, node+"-1", ""
		if state != "" {
			join.Job.FirstState = events.Digest([]byte(state))
		}
		w.process[node] = join.Incarnation
		w.hear(events.JoinRequested, "/node/"+node, node, &join)
	}
	w.mute[events.PlanRequested] = true // so that there is none
	asks("n1", "seed 1")
	asks("n2", "seed 1")
	asks("n3", "seed 2")
	asks("n4", "")
	w.run()
	if refused := w.refusals("n3"); len(refused) != 1 || !refused[0].OtherJob || !strings.Contains(refused[0].Reason, `"job.firstState": expected "sha256:`) {
		t.Errorf("refused %+v", refused)
	}
	for _, node := range []string{"n1", "n2", "n4"} {
		if refused := w.refusals(node); len(refused) > 0 {
			t.Errorf("%s is refused: %+v", node, refused)
		}
	}
	w = newWorld(t, 2)
	w.machine.state.Job.FirstState = events.Digest([]byte("seed 1"))
	asks("n3", "a checkpoint of step 40")
	w.run()
	if refused := w.refusals("n3"); len(refused) > 0 || w.nodes() != "n1 n2 n3" {
		t.Errorf("nodes %q, refused %+v", w.nodes(), refused)
	}
}

func TestAJobWithWhatIsUsualLeftOutIsTheSame(t *testing.T) {
	w := newWorld(t, 2)
	join := must[events.Join](t, w.heard[0])
	join.Node, join.Incarnation = "n7", "x"
	join.Job.Kind, join.Job.Replicas, join.Job.Data = events.Pipelined, events.EqualReplicas, events.SharedData
	join.Job.Tied, join.Job.Layers[0].ForwardSeconds = []events.Range{}, 7
	w.hear(events.JoinRequested, "/node/n7", "n7", &join)
	w.run()
	if refused := w.refusals("n7"); len(refused) > 0 || w.nodes() != "n1 n2 n7" {
		t.Errorf("nodes %q, refused %+v", w.nodes(), refused)
	}
}

// An agent of before tells no number, and neither does a script of which nobody knows when it ends.
func TestWhoDoesNotKnowWhenTheJobEndsMayTrainWithWhoKnows(t *testing.T) {
	for _, steps := range [][2]uint64{{40, 0}, {0, 40}} {
		w := newEmptyWorld(t, 1, 0)
		w.steps = steps[0]
		w.begin(1)
		w.steps = steps[1]
		w.join("n2")
		w.run()
		if refused := w.refusals("n2"); len(refused) > 0 || w.nodes() != "n1 n2" {
			t.Errorf("%d steps, and %d: nodes %q, refused %+v", steps[0], steps[1], w.nodes(), refused)
		}
		w.steps = 300 // one of both has told 40
		w.join("n3")
		w.run()
		if refused := w.refusals("n3"); len(refused) != 1 || !strings.Contains(refused[0].Reason, `"job.steps": expected 40`) {
			t.Errorf("%d steps, and %d: 300 are not refused: nodes %q, %+v", steps[0], steps[1], w.nodes(), refused)
		}
	}
}
