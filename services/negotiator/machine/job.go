package machine

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/reknit/reknit/events"
)

// goal is the job, and how it ends.
type goal struct {
	Job      *events.Job            `json:"job,omitempty"`      // of the first to join; everybody else's must equal it
	Bids     map[string]*events.Job `json:"bids,omitempty"`     // jobs of those who wait for a first plan of several nodes
	Reset    *events.JobReset       `json:"reset,omitempty"`    // somebody has training begin with the next plan; nil: nobody
	Finals   *finals                `json:"finals,omitempty"`   // nil: training is complete for nobody yet
	Complete *events.JobEnd         `json:"complete,omitempty"` // nil: the job is not done
	Stopping string                 `json:"stopping,omitempty"` // why all who train are to stop, as somebody asked; empty: nobody did
	Stored   stored                 `json:"stored,omitzero"`
	Stop     *events.JobStop        `json:"stop,omitempty"`   // nil: training was not stopped since the last commit
	Ended    time.Time              `json:"ended,omitzero"`   // the job, by the log's clock
	EndTold  time.Time              `json:"endTold,omitzero"` // when that was logged last
}

// difference is a field in which two jobs differ, and what they say there.
type difference struct{ name, want, got string }

// differ returns the first field in which a job is not another one; nil where it is.
func (m *Machine) differ(own, job events.Job) *difference {
	if job.Steps == 0 || own.Steps == 0 { // who does not know when it ends may take part
		job.Steps, own.Steps = 0, 0
	}
	if !m.isFirst() || job.FirstState == "" || own.FirstState == "" {
		job.FirstState, own.FirstState = "", "" // who joins a job that trains takes the state of the others
	}
	return cmp.Or(firstOther(alike(&own), alike(&job)), differInUnits(&own, &job), firstOther(digests(&own), digests(&job)))
}

// firstOther returns the first field in which the fields of two jobs differ; nil where there is none.
func firstOther(own, got []field) *difference {
	for i, field := range own {
		if want, is := text(field.value), text(got[i].value); want != is {
			return &difference{"job." + field.name, brief(want), brief(is)}
		}
	}
	return nil
}

// differInUnits returns the first unit of the state that is longer in one job than in the other, and cannot move between them; nil where
// there is none.
func differInUnits(own, job *events.Job) *difference {
	got := job.UnitBytes()
	if len(got) != own.Units() {
		return nil // another field says so
	}
	for unit, want := range own.UnitBytes() {
		if want != got[unit] {
			return &difference{fmt.Sprintf("job.units[%d]", unit), fmt.Sprintf("%d bytes", want), fmt.Sprintf("%d bytes", got[unit])}
		}
	}
	return nil
}

// saysOther names the first field in which a job is not the cluster's, and what was expected there; empty where it is. The number of steps
// is named where nothing else differs, for there is more to do about it.
func (m *Machine) saysOther(job events.Job) string {
	same := job
	same.Steps = m.state.Job.Steps
	at := cmp.Or(m.differ(*m.state.Job, same), m.differ(*m.state.Job, job))
	if at == nil {
		return ""
	}
	trains, differ := shape(m.state.Job), shape(&job)
	if trains == differ {
		differ += " too; what differs is none of this, such as the data, the seed, or a setting of the optimizer"
	}
	return fmt.Sprintf("field %q: expected %s as in the cluster's job, got %s: model, data, seed and settings must be equal "+
		"(the cluster trains %s, this is %s)", at.name, at.want, at.got, trains, differ)
}

// shape says what a job looks like to those who know it by more than a digest.
func shape(job *events.Job) string {
	var bytes int64
	for _, layer := range job.Layers {
		bytes += layer.StateBytes()
	}
	layers := "1 layer"
	if len(job.Layers) != 1 {
		layers = fmt.Sprintf("%d layers", len(job.Layers))
	}
	shape := fmt.Sprintf("%s, %d bytes of state, batch %d", layers, bytes, job.GlobalBatch)
	if job.Steps > 0 {
		shape += fmt.Sprintf(", %d steps", job.Steps)
	}
	return shape
}

type field struct {
	name  string
	value any
}

// alike are the fields that all who train one job must have alike. The costs of layers may have been measured, and
// differ.
func alike(job *events.Job) []field {
	return []field{
		{"steps", job.Steps}, {"globalBatch", job.GlobalBatch}, {"microBatch", job.MicroBatch}, {"batchRule", job.BatchRule},
		{"layers", len(job.Layers)}, {"tied", append([]events.Range{}, job.Tied...)},
		{"kind", cmp.Or(job.Kind, events.Pipelined)}, {"replicas", cmp.Or(job.Replicas, events.EqualReplicas)},
		{"data", cmp.Or(job.Data, events.SharedData)}, {"optimizerPartitions", job.OptimizerPartitions},
	}
}

// digests are alike, too. They are looked at last: one may cover what other fields tell by itself, and says less.
func digests(job *events.Job) []field {
	return []field{{"digest", job.Digest}, {"firstState", job.FirstState}}
}

// text is a value as it stands in a join.
func text(value any) string {
	data, err := json.Marshal(value)
	if err != nil {
		return err.Error() // plain data always has a text
	}
	return string(data)
}

// brief is a text for people, to whom the beginning of a digest says as much as all of it.
func brief(text string) string {
	const begins, letters = `"sha256:`, 12
	if !strings.HasPrefix(text, begins) || len(text) < len(begins)+letters {
		return text
	}
	return text[:len(begins)+letters] + `…"`
}
