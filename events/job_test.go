package events

import (
	"math"
	"slices"
	"strings"
	"testing"
)

// job is a sound one of four layers.
func job() *Job {
	return &Job{Digest: Digest(nil), Layers: slices.Repeat([]LayerProfile{{ParameterBytes: 1}}, 4), GlobalBatch: 64, MicroBatch: 4}
}

func TestASoundJobOfEachKindIsAccepted(t *testing.T) {
	for _, change := range []func(*Job){
		func(*Job) {},
		func(j *Job) { j.Kind = Pipelined },
		func(j *Job) { j.Kind, j.Pipelines.Min, j.Stages.Max = DataParallel, 2, 1 },
		func(j *Job) { j.Kind, j.Stages.Min = Sharded, 2 },
		func(j *Job) { j.Replicas = AlikeReplicas },
		func(j *Job) { j.Kind, j.Data = DataParallel, LocalData },
		func(j *Job) { j.Tied = []Range{{0, 2}, {2, 4}} },
		func(j *Job) { j.BatchRule = &BatchRule{SamplesPerNode: 8, LearningRate: linear} },
		func(j *Job) { j.GlobalBatch = 4 * MostMicroBatches },
		func(j *Job) { j.GlobalBatch, j.MicroBatch = 1<<30, 1<<20 },
	} {
		j := job()
		change(j)
		if err := j.Validate(); err != nil {
			t.Errorf("%+v: %v", j, err)
		}
	}
}

func TestAJobThatBreaksARuleIsRefusedByName(t *testing.T) {
	for _, test := range []struct {
		names string
		spoil func(*Job)
	}{
		{"kind", func(j *Job) { j.Kind = "ddp" }},
		{"layers[2]", func(j *Job) { j.Layers[2].ParameterBytes = 0 }}, // it could not be moved
		{"replicas", func(j *Job) { j.Replicas = "similar" }},
		{"data", func(j *Job) { j.Data = "private" }},
		{"data", func(j *Job) { j.Data = LocalData }},
		{"stages", func(j *Job) { j.Kind, j.Stages.Min = DataParallel, 2 }},
		{"pipelines", func(j *Job) { j.Kind, j.Pipelines.Max = DataParallel, 2 }},
		{"optimizerPartitions", func(j *Job) {
			j.Kind, j.OptimizerPartitions, j.Layers = Sharded, 2, []LayerProfile{{ParameterBytes: 1, OptimizerBytes: 2}}
		}},
		{"tied[0]", func(j *Job) { j.Tied = []Range{{0, 5}} }},
		{"tied[0]", func(j *Job) { j.Tied = []Range{{1, 2}} }},
		{"tied[1]", func(j *Job) { j.Tied = []Range{{0, 2}, {1, 3}} }},
		{"batchRule.samplesPerNode", func(j *Job) { j.BatchRule = &BatchRule{6, linear, 0} }},
		{"batchRule.samplesPerNode", func(j *Job) { j.BatchRule = &BatchRule{4 * (MostMicroBatches + 1), linear, 0} }},
		{"globalBatch", func(j *Job) { j.GlobalBatch = 4 * (MostMicroBatches + 1) }},
		{"globalBatch", func(j *Job) { j.GlobalBatch, j.MicroBatch = MostWhole, 1 }},
		{"batchRule.learningRate", func(j *Job) { j.BatchRule = &BatchRule{SamplesPerNode: 4} }},
		{"batchRule.warmUpSteps", func(j *Job) { j.BatchRule = &BatchRule{4, sqrt, -1} }},
	} {
		j := job()
		test.spoil(j)
		if err := j.Validate(); err == nil || !strings.Contains(err.Error(), test.names) {
			t.Errorf("%+v: error %v, expected one that names %s", j, err, test.names)
		}
	}
}

func TestTheBatchStaysUnlessTheJobLetsItFollowTheNodes(t *testing.T) {
	j := job()
	if batch, scale := j.BatchOf(7); batch != 64 || scale != 1 {
		t.Errorf("without a rule %d samples at a scale of %v", batch, scale)
	}
	j.BatchRule = &BatchRule{SamplesPerNode: 16, LearningRate: linear}
	if batch, scale := j.BatchOf(8); batch != 128 || scale != 2 {
		t.Errorf("8 nodes train %d samples at a scale of %v", batch, scale)
	}
	j.BatchRule.LearningRate = sqrt
	if batch, scale := j.BatchOf(2); batch != 32 || scale != math.Sqrt(0.5) {
		t.Errorf("2 nodes train %d samples at a scale of %v", batch, scale)
	}
}

func TestAMicroBatchTakesWhatTheLayersOfItsStageTake(t *testing.T) {
	layers := []LayerProfile{{ForwardSeconds: 1, BackwardSeconds: 2}, {ForwardSeconds: 10, BackwardSeconds: 20}}
	pipelined, replicated := Job{Layers: layers}, Job{Kind: DataParallel, Layers: layers}
	sharded := Job{Kind: Sharded, Layers: layers}
	unmeasured, untimed := Job{Kind: DataParallel, Layers: make([]LayerProfile, 2)}, Job{Layers: make([]LayerProfile, 2)}
	for _, test := range []struct {
		what    string
		seconds float64
		want    float64
	}{
		{"the second stage of a pipeline", pipelined.MicroBatchSeconds(Range{1, 2}), 30},
		{"both stages", pipelined.MicroBatchSeconds(Range{0, 2}), 33},
		{"a replica", replicated.MicroBatchSeconds(Range{0, 2}), 33},
		{"a shard, which trains all layers with its group", sharded.MicroBatchSeconds(Range{1, 2}), 33},
		{"a job that does not say", unmeasured.MicroBatchSeconds(Range{0, 2}), 1},
		{"half of a pipeline that does not say", untimed.MicroBatchSeconds(Range{1, 2}), 0.5},
	} {
		if test.seconds != test.want {
			t.Errorf("%s takes %v s: expected %v", test.what, test.seconds, test.want)
		}
	}
}
