package main

import (
	"context"
	"fmt"
	"syscall"
	"time"

	"github.com/reknit/reknit/shared/bus"
	"github.com/reknit/reknit/tests/torch"
)

const (
	limit       = 5 * time.Minute // for which healing is waited for
	storeStates = 3               // what an agent's store takes, and a little more
	settleSteps = 2               // completed by all before the next scene: a third would tell nothing more of a usual step
	churnSteps  = 1               // before the next of those who come and go
)

// row is a scene, and what it cost.
type row struct {
	what string
	torch.Healing
	arrival                // of the state, where somebody joined
	begun          float64 // seconds from the start of a node until it asks to join
	gives, takes   float64 // most that an agent took, in states: of those who give, and who takes
	killed, joined bool
}

// stage is where the scenes are played.
type stage struct {
	ctx       context.Context
	job       *torch.Job
	ears      *bus.Bus
	log       *log
	scale     *scale
	stores    stores
	directory string
	started   int // nodes
	calm      int // steps that are completed by all before the next scene
	training  []string
	rows      []row
	err       error // the first; nothing is played after it
}

func node(number int) string { return fmt.Sprintf("n%d", number) }

// newStage returns a stage for a job of one node.
func newStage(ctx context.Context, job *torch.Job, directory string) (*stage, error) {
	ears, err := bus.Connect(ctx, bus.Config{URL: job.URL(), Name: "bench-big", Cluster: torch.Cluster})
	if err != nil {
		return nil, err
	}
	context.AfterFunc(ctx, ears.Close)
	s := &stage{
		ctx: ctx, job: job, ears: ears, directory: directory, scale: &scale{}, stores: stores{},
		started: 1, calm: settleSteps, training: []string{node(1)},
	}
	s.scale.reset()
	go s.scale.watch(ctx, job)
	s.log, err = listen(ctx, ears)
	return s, err
}

// play has nodes join until there are enough, one leave, one join, one killed, and one join. Then further ones join, take
// the state and leave.
func (s *stage) play(nodes, joins int) error {
	s.settle()
	for len(s.training) < nodes && s.err == nil {
		s.join()
	}
	s.leave()
	s.join()
	s.kill()
	s.join()
	s.calm = churnSteps
	for range joins {
		s.join()
		s.leave()
	}
	return s.err
}

func (s *stage) settle() {
	if s.err == nil {
		s.err = s.job.SettleFor(s.ctx, limit, s.calm, len(s.training))
	}
}

// perform plays a scene, unless one before it failed, and lets the job settle.
func (s *stage) perform(r row, play func() (torch.Healing, error)) {
	if s.err != nil {
		return
	}
	s.scale.reset()
	at := time.Now()
	if r.Healing, s.err = play(); s.err != nil {
		s.err = fmt.Errorf("%s: %w", r.what, s.err)
		return
	}
	if r.joined {
		r.arrive(s, at)
	}
	fmt.Println(r)
	s.rows = append(s.rows, r)
	if s.err = s.stores.look(s.ctx, s.ears.JetStream()); s.err == nil {
		s.settle()
	}
}

// join starts another node.
func (s *stage) join() {
	s.started++
	name := node(s.started)
	s.training = append(s.training, name)
	s.perform(row{what: "a node joins", joined: true}, func() (torch.Healing, error) {
		return s.job.Join(s.ctx, limit, name)
	})
}

// arrive adds how the state came to the last that joined, and what that took.
func (r *row) arrive(s *stage, at time.Time) {
	newcomer := s.training[len(s.training)-1]
	r.arrival = s.log.arrival(newcomer)
	r.begun = r.asked.Sub(at).Seconds()
	for _, name := range s.training {
		peak := s.scale.peak(name)
		states := float64(peak.process+peak.shared) / float64(r.state)
		if name == newcomer {
			r.takes = states
		} else {
			r.gives = max(r.gives, states)
		}
		s.stores.see(givenStores, peak.given, storeStates*r.state)
	}
}

func (s *stage) leave() { s.strike(row{what: "a node leaves"}, torch.Leave) }
func (s *stage) kill()  { s.strike(row{what: "kill -9 of a node", killed: true}, torch.KillNode) }

// strike has a fault strike the last node.
func (s *stage) strike(r row, fault torch.Fault) {
	if s.err != nil {
		return
	}
	last := len(s.training) - 1
	name := s.training[last]
	s.training = s.training[:last]
	s.perform(r, func() (torch.Healing, error) { return s.job.Hit(s.ctx, limit, fault, name) })
	if s.err == nil {
		_ = s.job.Worker(name).SignalAll(syscall.SIGKILL) // what is left of it
		s.err = s.job.Await(name, limit)
	}
}
