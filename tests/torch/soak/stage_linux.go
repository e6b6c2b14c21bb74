package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/monitor/machine/changes"
	"github.com/reknit/reknit/services/reknit/history"
	"github.com/reknit/reknit/shared/bus"
	"github.com/reknit/reknit/tests/torch"
)

const (
	world    = 4                // workers
	patience = 2 * time.Minute  // for training to go on with all of them
	poisoned = 15 * time.Second // for which a sample cannot be read
	calm     = 5                // steps of all before the next failure
	strikes  = 2                // after which a worker's machine is replaced: one that fails more often waits, which is right
	looks    = 100 * time.Millisecond
	newest   = 20 // changes of the history that are looked at
)

// stage is a job, and what has happened to it.
type stage struct {
	ctx     context.Context
	random  *rand.Rand
	job     *torch.Job
	log     *bus.Bus
	reknit  string         // the command
	orders  string         // folder of what scripts are told to do
	struck  map[string]int // by worker
	started int            // workers so far
	seen    uint64         // generation before the failure
	reached uint64         // steps completed before it
	results []result
}

// result is what came of one failure.
type result struct {
	name    string
	worker  string
	seconds float64 // until all train calmly again
	steps   uint64  // that were completed before, and had to be trained again
	wrong   string  // what history should have told, and what it told
}

// open starts the job, and returns when all its workers train.
func open(ctx context.Context, place torch.Place, directory string, random *rand.Rand) (*stage, error) {
	s := &stage{ctx: ctx, random: random, reknit: place.Reknit, struck: map[string]int{}, orders: filepath.Join(directory, "orders")}
	if err := os.Mkdir(s.orders, 0o755); err != nil {
		return nil, err
	}
	machines := 1 // a worker is a machine of its own: failures count by host, too
	place.More = func(string) []string {
		machines++
		return []string{"SOAK=" + s.orders, fmt.Sprintf("REKNIT_AGENT_LISTEN=127.0.%d.%d:0", machines/250, 1+machines%250)}
	}
	var names []string
	for range world {
		name := s.name()
		names, s.struck[name] = append(names, name), 0
	}
	var err error
	if s.job, err = torch.NewReknit(place, filepath.Join(place.Tests, "soak", torch.Soak), directory, names, torch.Endless); err != nil {
		return nil, err
	}
	if s.log, err = bus.Connect(ctx, bus.Config{URL: s.job.URL(), Name: "soak", Cluster: torch.Cluster, Command: true}); err == nil {
		err = s.job.SettleFor(ctx, patience, calm, world)
	}
	if err != nil {
		s.close()
		return nil, fmt.Errorf("%w; logs are in %s", err, directory)
	}
	return s, nil
}

// name is that of the next worker.
func (s *stage) name() string {
	s.started++
	return fmt.Sprintf("h%d", s.started)
}

func (s *stage) close() {
	if s.log != nil {
		s.log.Close()
		s.log = nil
	}
	s.job.Close()
}

// play has so many failures strike, each kind in turn before one comes twice; no other one begins after a time.
func (s *stage) play(drawn []failure, count int, until time.Time) error {
	var turn []failure
	for n := 0; n < count && time.Now().Before(until); n++ {
		if len(turn) == 0 {
			turn = slices.Clone(drawn)
			s.random.Shuffle(len(turn), func(i, j int) { turn[i], turn[j] = turn[j], turn[i] })
		}
		f, worker := turn[0], pick(s.random, s.job.Running())
		turn = turn[1:]
		if err := s.suffer(f, worker); err != nil {
			return fmt.Errorf("failure %d, %s (%s): %w", n+1, f.name, worker, err)
		}
		fmt.Printf("%4d  %s\n", n+1, s.results[len(s.results)-1])
		if err := s.replace(worker); err != nil {
			return err
		}
	}
	return nil
}

// suffer has one failure strike, and waits until all train calmly again.
func (s *stage) suffer(f failure, worker string) error {
	all := s.job.Course.Steps()
	began := time.Now()
	s.seen, s.reached = all[len(all)-1].Under, highest(all)
	if err := f.strike(s, worker); err != nil {
		return err
	}
	if err := s.goesOn(len(s.job.Course.Steps())); err != nil {
		return err
	}
	done := result{name: f.name, worker: worker, seconds: time.Since(began).Seconds()}
	after := s.job.Course.Steps()[len(all):]
	least := slices.MinFunc(after, func(a, b torch.Step) int { return int(a.Number) - int(b.Number) }).Number
	if least < s.reached { // the last step, others tell as well
		done.steps = s.reached - least
	}
	var err error
	done.wrong, err = s.told(f, worker)
	s.results = append(s.results, done)
	return err
}

func highest(steps []torch.Step) (most uint64) {
	for _, step := range steps {
		most = max(most, step.Number)
	}
	return most
}

// goesOn starts the nodes that have ended, and returns when all train, in steps after those that were known.
func (s *stage) goesOn(known int) error {
	return s.until("training goes on with all", func() bool {
		for _, name := range s.ended() {
			_ = s.job.Start(name) // tried again until it goes on
		}
		return settled(s.job.Course.Steps()[known:])
	})
}

// ended returns the nodes that are no more, and not replaced.
func (s *stage) ended() (names []string) {
	running := s.job.Running()
	for name := range s.struck {
		if !slices.Contains(running, name) {
			names = append(names, name)
		}
	}
	return names
}

// settled reports whether the last steps are those of a whole world, calm ones of each.
func settled(steps []torch.Step) bool {
	counts := map[string]int{}
	for _, step := range slices.Backward(steps) {
		if step.World != world {
			break
		}
		counts[step.Worker]++
	}
	whole := 0
	for _, count := range counts {
		if count >= calm {
			whole++
		}
	}
	return whole == world
}

// until waits for something that shows when one looks.
func (s *stage) until(what string, shown func() bool) error {
	for begun := time.Now(); !shown(); {
		if time.Since(begun) > patience {
			return fmt.Errorf("%s: expected within %v", what, patience)
		}
		if err := s.wait(looks); err != nil {
			return err
		}
	}
	return nil
}

// delayed returns once the log says that the others wait for a worker.
func (s *stage) delayed(worker string) error {
	subject := events.EventSubject(torch.Cluster, events.StepDelayed, worker)
	return s.until(fmt.Sprintf("%s names %s", events.StepDelayed, worker), func() bool {
		event, found, err := s.log.LastEvent(s.ctx, events.EventStream, subject)
		if err != nil || !found {
			return false
		}
		told, err := events.Open[events.StepDelay](event)
		return err == nil && told.Generation >= s.seen && told.Step >= s.reached
	})
}

func (s *stage) wait(during time.Duration) error {
	select {
	case <-s.ctx.Done():
		return s.ctx.Err()
	case <-time.After(during):
		return nil
	}
}

// told compares what history says of a failure with what happened; empty where it names it.
func (s *stage) told(f failure, worker string) (string, error) {
	if f.told == nil {
		return "", nil
	}
	all, err := history.Last(s.ctx, s.log, newest)
	if err != nil {
		return "", err
	}
	all = slices.DeleteFunc(all, func(c changes.Change) bool { return c.Generation <= s.seen })
	got := ""
	for _, change := range all {
		for _, part := range change.Changes {
			if part.Node == worker && slices.Contains(f.told, part.Kind) {
				return "", nil
			}
			got += fmt.Sprintf(" %s of %s,", part.Kind, part.Node)
		}
	}
	return fmt.Sprintf("expected one of %v of %s in the history, got%s", f.told, worker, got), nil
}

// replace has a worker that failed often leave, and a new one come.
func (s *stage) replace(worker string) error {
	if s.struck[worker]++; s.struck[worker] < strikes {
		return nil
	}
	delete(s.struck, worker)
	known := len(s.job.Course.Steps())
	if err := torch.Leave.Strike(s.job.Worker(worker)); err != nil {
		return err
	}
	if err := s.job.Await(worker, patience); err != nil {
		return err
	}
	newcomer := s.name()
	s.struck[newcomer] = 0
	if err := s.job.Start(newcomer); err != nil {
		return err
	}
	return s.goesOn(known)
}
