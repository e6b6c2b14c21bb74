package trainer

import (
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/agent/consent"
	"github.com/reknit/reknit/services/agent/snapshots"
	"github.com/reknit/reknit/services/trainer/model"
	"github.com/reknit/reknit/services/trainer/oracle"
	"github.com/reknit/reknit/services/trainer/text"
	"github.com/reknit/reknit/shared/service"
)

// Config is a trainer's environment.
type Config struct {
	service.Common
	snapshots.Settings
	consent.Policy
	Node         string   `env:"REKNIT_TRAINER_NODE" unit:"id" reason:"two trainers must not share one; by default the key of REKNIT_NATS_KIT, and where there is no kit it must be set"`
	Listen       string   `env:"REKNIT_TRAINER_LISTEN" envDefault:"127.0.0.1:0" unit:"host:port" reason:"other trainers of this host only; port 0 takes a free one"`
	Advertise    string   `env:"REKNIT_TRAINER_ADVERTISE" unit:"host:port" reason:"by default where it listens; set it where others see another address"`
	Site         string   `env:"REKNIT_SITE" unit:"id" reason:"none; nodes that share their way to the others have the same one, so that its failure is not taken for theirs"`
	Neighbours   []string `env:"REKNIT_NEIGHBOURS" unit:"ids, with commas" reason:"of the nodes to which this one wants direct links, out of those that there are when it joins; by default each"`
	ShardPort    int      `env:"REKNIT_TRAINER_SHARD_PORT" envDefault:"0" unit:"port" is:"min=0,max=65535" reason:"where others fetch layers from, on the host of REKNIT_TRAINER_LISTEN; 0 takes a free one"`
	ShardDir     string   `env:"REKNIT_TRAINER_SHARD_DIR" unit:"path" reason:"of a few kilobytes of the store that gives layers, the owner's way into it among them; by default a new one in shared memory"`
	Text         string   `env:"REKNIT_TRAINER_TEXT" unit:"path" reason:"none: what is trained on"`
	Steps        uint64   `env:"REKNIT_TRAINER_STEPS" envDefault:"1000" unit:"steps" is:"min=1" reason:"where the loss of the default model has flattened"`
	CompareEvery uint64   `env:"REKNIT_TRAINER_COMPARE_EVERY" envDefault:"100" unit:"steps" reason:"replicas are compared so often, for 3 ms of hashing with the default model; 0: only where layers moved"`
	Seed         uint64   `env:"REKNIT_TRAINER_SEED" envDefault:"1" unit:"number" reason:"of the first weights and of the order of the data"`
	GlobalBatch  int      `env:"REKNIT_TRAINER_GLOBAL_BATCH" envDefault:"36" unit:"samples" is:"min=1" reason:"a step of the default model in about a tenth of a second on two cores"`
	MicroBatch   int      `env:"REKNIT_TRAINER_MICRO_BATCH" envDefault:"1" unit:"samples" is:"min=1" reason:"the finest shares that pipelines can have"`
	Width        int      `env:"REKNIT_TRAINER_WIDTH" envDefault:"64" unit:"numbers" is:"min=1,max=1024" reason:"of a position between two layers"`
	Hidden       int      `env:"REKNIT_TRAINER_HIDDEN" envDefault:"128" unit:"numbers" is:"min=1,max=4096" reason:"of a block's inner layer"`
	Blocks       int      `env:"REKNIT_TRAINER_BLOCKS" envDefault:"10" unit:"layers" is:"min=0,max=1024" reason:"with embedding and head: twelve layers, which two to six stages share evenly"`
	MemoryBytes  int64    `env:"REKNIT_TRAINER_MEMORY_BYTES" envDefault:"1073741824" unit:"bytes" is:"min=1" reason:"many times the default model"`

	OptimizerPartitions int `env:"REKNIT_TRAINER_OPTIMIZER_PARTITIONS" envDefault:"0" unit:"partitions" is:"min=0,max=64" reason:"into how many a layer's optimizer state is cut, of which a node keeps some (ZeRO stage 1); 0: every holder keeps all of it"`

	Pipelines   int `env:"REKNIT_TRAINER_PIPELINES" envDefault:"0" unit:"pipelines" reason:"0: the planner chooses the data-parallel degree"`
	LeastStages int `env:"REKNIT_TRAINER_LEAST_STAGES" envDefault:"0" unit:"stages" reason:"0: the planner chooses the pipelines' lengths"`
	MostStages  int `env:"REKNIT_TRAINER_MOST_STAGES" envDefault:"0" unit:"stages" reason:"0: the planner chooses the pipelines' lengths"`
}

// Positions that predict from a context, and how much context: small ones, for the model is a test's and not a
// product's.
const (
	contextCharacters = 8
	windowPositions   = 16
)

// declaredOperationsPerSecond turns a layer's operations into the seconds that a job declares. A core of a Xeon takes
// 3.0 ms for the 16.3 million operations of a sample of the default model (measured, plain Go).
const declaredOperationsPerSecond = 5.4e9

// validate says what the tags cannot. The node may have its name from a kit.
func (c Config) validate() error {
	var faults []error
	expect := func(holds bool, variable, expected string, got any) {
		if !holds {
			faults = append(faults, fmt.Errorf("%s: expected %s, got %v", variable, expected, got))
		}
	}
	expect(events.Token(c.Node), "REKNIT_TRAINER_NODE", "1 to 64 characters of A-Z a-z 0-9 - _, such as n1", fmt.Sprintf("%q", c.Node))
	expect(c.Text != "", "REKNIT_TRAINER_TEXT", "the path of a text file to train on, such as README.md", "none")
	divides := c.MicroBatch > 0 && c.GlobalBatch%c.MicroBatch == 0
	expect(divides, "REKNIT_TRAINER_MICRO_BATCH", "a divisor of REKNIT_TRAINER_GLOBAL_BATCH", c.MicroBatch)
	expect(c.MicroBatch <= 0 || c.GlobalBatch/c.MicroBatch <= events.MostMicroBatches, "REKNIT_TRAINER_GLOBAL_BATCH",
		fmt.Sprintf("at most %d micro-batches of %d samples", events.MostMicroBatches, c.MicroBatch), c.GlobalBatch)
	expect(c.Advertise != "" || !everywhere(c.Listen), "REKNIT_TRAINER_ADVERTISE",
		"an address that others reach, where REKNIT_TRAINER_LISTEN names no host", `""`)
	expect(c.MostStages == 0 || c.MostStages >= max(1, c.LeastStages),
		"REKNIT_TRAINER_MOST_STAGES", "0, or at least REKNIT_TRAINER_LEAST_STAGES", c.MostStages)
	return errors.Join(append(faults, c.Policy.Validate(), c.Settings.Validate())...)
}

// everywhere reports whether an address to listen on names no host.
func everywhere(address string) bool {
	host, _, _ := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	return host == "" || ip != nil && ip.IsUnspecified()
}

// Training reads the text and returns what is trained; the oracle trains the same.
func (c Config) Training() (oracle.Training, *text.Text, error) {
	content, err := os.ReadFile(c.Text)
	if err != nil {
		return oracle.Training{}, nil, fmt.Errorf("REKNIT_TRAINER_TEXT: %w", err)
	}
	samples, err := text.New(content, contextCharacters, windowPositions, c.Seed)
	if err != nil {
		return oracle.Training{}, nil, fmt.Errorf("REKNIT_TRAINER_TEXT: %s: %w", c.Text, err)
	}
	shape := model.Shape{
		Context: contextCharacters, Window: windowPositions, Width: c.Width, Hidden: c.Hidden, Blocks: c.Blocks,
		Vocabulary: len(samples.Vocabulary()), Partitions: c.OptimizerPartitions,
	}
	if err := shape.Validate(); err != nil {
		return oracle.Training{}, nil, fmt.Errorf("REKNIT_TRAINER_WIDTH, _HIDDEN, _BLOCKS and _TEXT: %w", err)
	}
	return oracle.Training{
		Shape: shape, Adam: model.DefaultAdam(), Seed: c.Seed, GlobalBatch: c.GlobalBatch, Steps: int(c.Steps),
	}, samples, nil
}

// dataPlaneVersion is that of what trainers say to each other in a step, and of the order of samples. Those of another
// one refuse to train together.
const dataPlaneVersion = 4

// job is what the cluster must know of the training. Its digest covers all that determines the result, and the data
// plane.
func (c Config) job(training oracle.Training) (events.Job, error) {
	content, err := os.ReadFile(c.Text)
	if err != nil {
		return events.Job{}, err
	}
	what := fmt.Sprintf("%+v %d %s %d", training, c.MicroBatch, events.Digest(content), dataPlaneVersion)
	job := events.Job{
		Digest: events.Digest([]byte(what)), Steps: c.Steps, GlobalBatch: c.GlobalBatch, MicroBatch: c.MicroBatch,
		OptimizerPartitions: c.OptimizerPartitions,
		Pipelines:           events.Bounds{Min: c.Pipelines, Max: c.Pipelines},
		Stages:              events.Bounds{Min: c.LeastStages, Max: c.MostStages},
	}
	for layer := range training.Shape.Layers() {
		job.Layers = append(job.Layers, c.profile(training.Shape.Costs(layer)))
	}
	return job, nil
}

func (c Config) profile(costs model.Costs) events.LayerProfile {
	microBatch := int64(c.MicroBatch)
	return events.LayerProfile{
		ParameterBytes: costs.ParameterBytes, OptimizerBytes: costs.OptimizerBytes, GradientBytes: costs.GradientBytes,
		ActivationBytes: microBatch * costs.ActivationBytes, OutputBytes: microBatch * costs.OutputBytes,
		ForwardSeconds:  float64(microBatch*costs.ForwardOperations) / declaredOperationsPerSecond,
		BackwardSeconds: float64(microBatch*costs.BackwardOperations) / declaredOperationsPerSecond,
	}
}
