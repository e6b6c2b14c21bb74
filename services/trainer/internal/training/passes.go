package training

import (
	"context"
	"fmt"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/trainer/internal/transport"
	"github.com/reknit/reknit/services/trainer/model"
	"github.com/reknit/reknit/services/trainer/schedule"
)

// passPhase is the phase of activations and of their gradients.
const passPhase = 0

// passes is the part of a step in which micro-batches go forward and backward.
type passes struct {
	worker *worker
	step   uint64
	agenda *schedule.Agenda
	inputs map[schedule.Task][]byte             // arrived, not yet used
	kept   map[schedule.Task][]*stageActivation // of forward passes, by sample, until their backward passes
}

// stageActivation is what a stage keeps of one sample.
type stageActivation struct {
	sample model.Sample
	layers []*model.Activations // first layer of the stage first
}

// passAll runs all of this node's passes of a step.
func (w *worker) passAll(ctx context.Context, step uint64) error {
	p := &passes{
		worker: w, step: step, agenda: schedule.NewAgenda(w.part.routes, w.config.Node),
		inputs: map[schedule.Task][]byte{}, kept: map[schedule.Task][]*stageActivation{},
	}
	for p.agenda.Left() > 0 {
		if message, ok := w.network.Take(passPhase); ok {
			if err := p.arrived(message); err != nil {
				return err
			}
			continue
		}
		task, ok := p.agenda.Next()
		if !ok {
			message, err := w.hear(ctx, passPhase)
			if err == nil {
				err = p.arrived(message)
			}
			if err != nil {
				return err
			}
			continue
		}
		if err := p.run(ctx, task); err != nil {
			return fmt.Errorf("%+v: %w", task, err)
		}
	}
	return nil
}

// itemOf names a task in a message.
func itemOf(task schedule.Task) uint64 {
	item := uint64(task.MicroBatch)<<32 | uint64(task.Hop)<<1
	if task.Backward {
		item |= 1
	}
	return item
}

func taskOf(item uint64) schedule.Task {
	return schedule.Task{MicroBatch: int(item >> 32), Hop: int(item & 0xffffffff >> 1), Backward: item&1 == 1}
}

func (p *passes) arrived(message transport.Message) error {
	task := taskOf(message.Item)
	if err := p.agenda.Arrived(task); err != nil {
		return fmt.Errorf("message from %q: %w", message.From, err)
	}
	shape := p.worker.config.Shape
	if want := 4 * p.worker.config.MicroBatch * shape.Window * shape.Width; len(message.Payload) != want {
		return fmt.Errorf("message from %q: input for %+v has %d bytes: expected %d",
			message.From, task, len(message.Payload), want)
	}
	p.inputs[task] = message.Payload
	return nil
}

// run does one pass of a micro-batch through this stage, and sends the result on.
func (p *passes) run(ctx context.Context, task schedule.Task) error {
	pass, following := p.forward, schedule.Task{MicroBatch: task.MicroBatch, Hop: task.Hop + 1}
	if task.Backward {
		pass, following = p.backward, schedule.Task{MicroBatch: task.MicroBatch, Hop: task.Hop - 1, Backward: true}
	}
	route, start := p.worker.part.routes[task.MicroBatch], time.Now()
	output, err := pass(ctx, task)
	took := time.Since(start)
	p.worker.passed += took
	p.worker.speed.Meter.Pass(p.declaredSeconds(route[task.Hop], task.Backward), took.Seconds())
	if err != nil || following.Hop < 0 || following.Hop == len(route) {
		return err
	}
	return p.worker.network.Send(route[following.Hop].Node, passPhase, itemOf(following), output)
}

// watch measures what each layer takes in a pass: from the layer before, or the beginning, to its end.
type watch struct {
	passes   *passes
	backward bool
	last     time.Time
}

func (p *passes) watch(backward bool) *watch { return &watch{p, backward, time.Now()} }

// took notes that a layer is done with a sample. It costs a look at the clock.
func (w *watch) took(layer int) {
	now := time.Now()
	w.passes.worker.speed.Layers.Pass(layer, w.backward, 1/float64(w.passes.worker.config.MicroBatch), now.Sub(w.last).Seconds())
	w.last = now
}

// declaredSeconds is what the job says that a pass takes.
func (p *passes) declaredSeconds(stage schedule.Stage, backward bool) (seconds float64) {
	for layer := stage.First; layer < stage.End && layer < len(p.worker.config.Job.Layers); layer++ {
		if backward {
			seconds += p.worker.config.Job.Layers[layer].BackwardSeconds
		} else {
			seconds += p.worker.config.Job.Layers[layer].ForwardSeconds
		}
	}
	return seconds
}

// input returns what arrived for one sample of a task; nil where the task needs none.
func (p *passes) input(task schedule.Task, sample int) []float32 {
	encoded := p.inputs[task]
	if encoded == nil {
		return nil
	}
	bytes := len(encoded) / p.worker.config.MicroBatch
	return floats(encoded[sample*bytes : (sample+1)*bytes])
}

func (p *passes) forward(ctx context.Context, task schedule.Task) (output []byte, err error) {
	stage := p.worker.part.routes[task.MicroBatch][task.Hop]
	kept, watch := make([]*stageActivation, p.worker.config.MicroBatch), p.watch(false)
	for i := range kept {
		sample, err := p.sample(task.MicroBatch, i)
		if err != nil {
			return nil, err
		}
		kept[i] = &stageActivation{sample: sample}
		between := p.input(task, i)
		for layer := stage.First; layer < stage.End; layer++ {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			p.worker.phase.enter(events.PhaseComputing)
			room := p.worker.room(layer)
			kept[i].layers = append(kept[i].layers, room)
			if between, err = p.worker.state.Trained(layer).Forward(sample, between, room); err != nil {
				return nil, err
			}
			watch.took(layer)
		}
		output = appendFloats(output, between)
		if err := p.addLoss(stage, kept[i]); err != nil {
			return nil, err
		}
	}
	delete(p.inputs, task)
	task.Backward = true
	p.kept[task] = kept
	return output, nil
}

// addLoss counts a sample's loss where the stage has the head.
func (p *passes) addLoss(stage schedule.Stage, activation *stageActivation) error {
	if stage.End != p.worker.config.Shape.Layers() {
		return nil
	}
	head := activation.layers[len(activation.layers)-1]
	return p.worker.loss.Add([]float32{head.Loss})
}

func (p *passes) backward(ctx context.Context, task schedule.Task) (output []byte, err error) {
	stage, watch := p.worker.part.routes[task.MicroBatch][task.Hop], p.watch(true)
	for i, kept := range p.kept[task] {
		between := p.input(task, i)
		for layer := stage.End - 1; layer >= stage.First; layer-- {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			p.worker.phase.enter(events.PhaseComputing)
			room := kept.layers[layer-stage.First]
			trained, sums := p.worker.state.Trained(layer), p.worker.sums[layer]
			if between, err = trained.Backward(room, between, p.worker.scratch, sums); err != nil {
				return nil, err
			}
			watch.took(layer)
		}
		output = appendFloats(output, between)
		for n, room := range kept.layers {
			layer := stage.First + n
			p.worker.spare[layer] = append(p.worker.spare[layer], room)
		}
	}
	delete(p.inputs, task)
	delete(p.kept, task)
	return output, nil
}

// sample returns one of a micro-batch's samples: micro-batches cut a step's samples in order.
func (p *passes) sample(microBatch, i int) (model.Sample, error) {
	index := int(p.worker.part.plan.SamplesAt(p.step)) + microBatch*p.worker.config.MicroBatch + i
	characters, targets, err := p.worker.config.Samples.Sample(index)
	return model.Sample{Characters: characters, Targets: targets}, err
}

// room returns activations to use in one layer.
func (w *worker) room(layer int) *model.Activations {
	spare := w.spare[layer]
	if len(spare) == 0 {
		return model.NewActivations(w.config.Shape, layer)
	}
	w.spare[layer] = spare[:len(spare)-1]
	return spare[len(spare)-1]
}
