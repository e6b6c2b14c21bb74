package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/reknit/processes"
	"github.com/reknit/reknit/shared/bus"
)

const (
	firstNodes  = 6                // that train before the others come
	arrivalTime = 10 * time.Minute // within which everybody has an answer
	arrivalBeat = 2 * time.Second  // between two heartbeats of a trainer, by the bench: an agent's come more often
	arrivalPing = time.Minute      // between two pings of a trainer's connection: an agent's come each second

	// So many of the trainers connect at a time. Each has processors of its own elsewhere, here all share this process: of
	// 10,000 that began at once, 1,400 had their certificate ready within the two seconds that a server waits for it.
	connecting = 64
)

// arrival is what became of many trainers that came to a secured installation at once, each with a kit and a connection of its own.
// Messages that all hear are read once, by a connection of the bench.
type arrival struct {
	nodes     int
	connected []time.Duration // since they came, of those that are
	answered  map[string]time.Duration
	refused   map[string]int // by reason
	admitted  int
	plans     int
	mistaken  int
	uses      map[string]use
	load      string        // averages of the machine before
	again     int           // connections that were made again after the server was killed
	back      time.Duration // since then
	ended     error

	mutex sync.Mutex
	done  chan struct{} // closed with the last answer
}

// arrive has so many trainers ask a secured installation for a place at once, and waits until each has one, or was told why not.
func (b bench) arrive(ctx context.Context, nodes int) (a *arrival, err error) {
	directory, err := os.MkdirTemp("", "bench-herd-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(directory)) }()
	ctx, cancel := context.WithTimeout(ctx, 2*arrivalTime)
	s, err := sideOf(ctx, begin(directory, b.programs), directory, firstNodes, firstNodes+nodes, true)
	defer func() { cancel(); s.close() }()
	if err != nil {
		return nil, err
	}
	a = &arrival{nodes: nodes, answered: map[string]time.Duration{}, refused: map[string]int{}, done: make(chan struct{}), load: load()}
	fmt.Printf("%d nodes train; %d come\n", firstNodes, nodes)
	slog.SetDefault(slog.New(slog.DiscardHandler)) // of each connection that a busy or killed server drops a line says so
	a.come(ctx, s.fleet)
	if a.ended == nil {
		a.ended = a.comeBack(ctx, s)
	}
	a.mistaken = s.fleet.mistakes()
	if a.uses, err = s.plane.uses(); err != nil {
		a.ended = errors.Join(a.ended, fmt.Errorf("a process does not run: %w", err))
	}
	return a, nil
}

// come has all come at once.
func (a *arrival) come(ctx context.Context, f *fleet) {
	came := time.Now()
	f.mutex.Lock()
	f.every = arrivalBeat
	f.answered = func(node, reason string) { a.answer(node, reason, time.Since(came)) }
	f.mutex.Unlock()
	free := make(chan struct{}, connecting)
	for range a.nodes {
		go func() {
			free <- struct{}{}
			t, err := f.arrival()
			<-free
			if err != nil {
				a.answer(err.Error(), "no connection: "+err.Error(), time.Since(came))
				return
			}
			a.mutex.Lock()
			a.connected = append(a.connected, time.Since(came))
			a.mutex.Unlock()
			if _, err := t.bus.Publish(ctx, t.join(f.nodes)); err != nil {
				a.answer(t.name, "not said: "+err.Error(), time.Since(came))
			}
		}()
	}
	for limit := time.After(arrivalTime); ; {
		select {
		case <-a.done:
			return
		case <-ctx.Done():
			a.ended = ctx.Err()
			return
		case <-limit:
			a.ended = fmt.Errorf("not all were answered within %v", arrivalTime)
			return
		case <-f.plans: // nobody else takes them
			a.plans++
		case <-time.After(sayHowFar):
		}
		a.mutex.Lock()
		fmt.Printf("%5.1f s: %d connected, %d admitted, %d refused\n", time.Since(came).Seconds(), len(a.connected), a.admitted,
			len(a.answered)-a.admitted)
		a.mutex.Unlock()
	}
}

const (
	backTime    = 2 * time.Minute  // within which all are to be connected again
	verdictTime = 30 * time.Second // after an outage, in which living nodes may still be said lost for it
)

// comeBack kills the server, which is started again, and waits until all are connected again and nobody is taken for dead any
// more.
func (a *arrival) comeBack(ctx context.Context, s *side) error {
	fmt.Println("the server is killed now, and started again; all connect again")
	killed := time.Now()
	if err := s.plane.servers.Kill(broker); err != nil {
		return err
	}
	for ctx.Err() == nil && a.back < backTime && a.again < len(s.fleet.buses) {
		time.Sleep(settleTime)
		a.again, a.back = s.fleet.comeAgain(), time.Since(killed)
	}
	select {
	case <-time.After(verdictTime):
	case <-ctx.Done():
	}
	return ctx.Err()
}

// comeAgain counts the connections that were made again.
func (f *fleet) comeAgain() (again int) {
	for _, b := range f.buses {
		if b.Conn().IsConnected() && b.Conn().Stats().Reconnects > 0 {
			again++
		}
	}
	return again
}

// load returns the machine's load averages.
func load() string {
	average, _ := os.ReadFile("/proc/loadavg")
	return strings.TrimSpace(string(average))
}

const sayHowFar = 5 * time.Second

// answer notes what a node was told: why it has no place, or, without a reason, that it has one. The first answer counts.
func (a *arrival) answer(node, reason string, after time.Duration) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	if _, known := a.answered[node]; known || len(a.answered) == a.nodes {
		return
	}
	a.answered[node] = after
	if reason == "" {
		a.admitted++
	} else {
		a.refused[reason]++
	}
	if len(a.answered) == a.nodes {
		close(a.done)
	}
}

// arrival returns a new trainer with a connection of its own, which others do not wait for.
func (f *fleet) arrival() (*trainer, error) {
	f.mutex.Lock()
	f.born++
	born := f.born
	f.mutex.Unlock()
	b, err := f.own(born)
	if err != nil {
		return nil, err
	}
	b.Conn().Opts.PingInterval = arrivalPing // ten thousand pings a second are a core of this machine
	t := newTrainer(cmp.Or(b.Identity().Key, fmt.Sprintf("n%d", born)), b)
	if _, err := b.Conn().Subscribe(events.ProbeSubject(cluster, t.name), f.probed); err != nil {
		return nil, err
	}
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.buses, f.trainers[t.name] = append(f.buses, b), t
	return t, nil
}

// sideOf starts a control plane and forms a cluster of some nodes, for a job of more.
func sideOf(ctx context.Context, p *plane, folder string, first, most int, secured bool) (*side, error) {
	var err error
	if secured {
		err = p.serveSecured(folder, most)
	} else {
		err = p.serve(folder, 1)
	}
	s := &side{plane: p, costs: map[string]*cost{}}
	if err := p.run(err, first); err != nil {
		return s, err
	}
	shared, err := p.connect(ctx, "bench", filepath.Join(p.kits, "services", "user"))
	if err != nil {
		return s, err
	}
	s.fleet = fleetOf(ctx, most)
	s.fleet.buses = []*bus.Bus{shared}
	s.fleet.own = func(born int) (*bus.Bus, error) {
		return p.connect(ctx, "", filepath.Join(p.kits, "institutions", institution, fmt.Sprint("n", born)))
	}
	for ctx.Err() == nil && s.fleet.buses[0].Provision(ctx) != nil { // who has a kit makes nothing: the services do
		time.Sleep(settleTime)
	}
	if err := s.fleet.listen(); err != nil {
		return s, err
	}
	_, err = s.fleet.form(ctx, first)
	return s, err
}

func (a *arrival) print(w io.Writer) {
	slices.Sort(a.connected)
	answers := slices.Sorted(maps.Values(a.answered))
	fmt.Fprintf(w, "\n%d trainers came at once, load average %s: ", a.nodes, a.load)
	fmt.Fprintf(w, "%d admitted with %d plans, %d refused, %d not answered, %d said lost though alive\n",
		a.admitted, a.plans, len(answers)-a.admitted, a.nodes-len(answers), a.mistaken)
	for _, reason := range slices.Sorted(maps.Keys(a.refused)) {
		fmt.Fprintf(w, "  %d refused: %s\n", a.refused[reason], reason)
	}
	for what, times := range map[string][]time.Duration{"connected": a.connected, "answered": answers} {
		if n := len(times); n > 0 {
			last := times[n-1]
			fmt.Fprintf(w, "%s: the first after %s, half after %s, the last after %s: %.0f a second\n", what,
				milliseconds(times[0]), milliseconds(times[n/2]), milliseconds(last), float64(n)/last.Seconds())
		}
	}
	if a.back > 0 {
		fmt.Fprintf(w, "the server was killed: %d of %d were connected again %s later\n", a.again, len(a.connected)+firstNodes+1,
			milliseconds(a.back))
	}
	printMemory(w, []*result{{nodes: a.nodes, uses: a.uses}})
	for _, name := range append(processes.Services, broker) {
		fmt.Fprintf(w, "%s: %.1f s of processors\n", name, a.uses[name].seconds)
	}
	if a.ended != nil {
		fmt.Fprintln(w, a.ended)
	}
}
