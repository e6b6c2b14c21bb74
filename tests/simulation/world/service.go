package world

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/shared/bus"
	shared "github.com/reknit/reknit/shared/service"
	"github.com/reknit/reknit/tests/simulation/loop"
)

// service is one of the four, and the instances of it that run.
type service struct {
	*World
	name      string
	tickEvery time.Duration
	settings  any             // of its machines
	earlier   bool            // its next instance is of the earlier build
	afterward func(*instance) // what the shell does once the machine has spoken
	started   int             // instances, ever
	running   []*instance     // the last one is the one that was started last
	dies      death
}

// death is where an instance of a service dies next: the so many-th time that it stands at a point.
type death struct {
	at    loop.Point
	count int
}

// instance is a process of a service: the real machine in the modelled loop.
type instance struct {
	*service
	machine shared.Machine
	life    *loop.Service
	busy    bool // a request is on its way
	renews  bool // its lease is to be taken again
	dead    bool
	paused  bool
	leaves  bool // it is to end
	inputs  []func(now time.Time) []events.Event
}

// mostInputs are kept while the loop is at something else, as in services/monitor.
const mostInputs = 4096

// start starts an instance, which deposes the one before.
func (s *service) start() {
	s.started++
	i := &instance{service: s, machine: s.fresh()}
	client := loop.Connect(s.hub.Server, cluster, s.hub.apart)
	i.life = loop.Start(client, s.name, fmt.Sprintf("%s-%d", s.name, s.started), i.machine, i.otherWorks)
	s.running = append(s.running, i)
	s.tell(s.name, "instance %d starts", s.started)
	i.go_()
	i.tick()
	i.renew()
}

// otherWorks reports whether another instance answers this one.
func (i *instance) otherWorks() bool {
	return slices.ContainsFunc(i.running, func(other *instance) bool {
		return other != i && !other.paused && other.life.Works(i.hubTime())
	})
}

// last returns the instance that was started last; nil where none runs.
func (s *service) last() *instance {
	if len(s.running) == 0 {
		return nil
	}
	return s.running[len(s.running)-1]
}

// go_ does what is next, unless a request is under way: it makes a request, or takes what came.
func (i *instance) go_() {
	if i.dead || i.paused || i.busy {
		return
	}
	switch i.life.Point() {
	case loop.Ended:
		i.ended()
	case loop.Idle:
		if i.leaves {
			i.leave()
		} else if i.take() {
			i.go_()
		}
	default:
		switch {
		case i.diesHere():
		case i.life.Point() == loop.Acknowledge:
			i.acknowledge()
		default:
			i.request()
		}
	}
}

// take gives the idle machine something, if there is anything.
func (i *instance) take() bool {
	if len(i.inputs) > 0 && i.life.CaughtUp() && !i.hub.away() {
		input := i.inputs[0]
		i.inputs = append(i.inputs[:0], i.inputs[1:]...)
		i.life.Input(i.host(), input)
		i.spoken()
		return true
	}
	if i.renews && i.life.Renew(i.hubTime()) {
		i.renews = false
		return true
	}
	took := i.life.Save(i.hubTime()) || i.life.Take(i.hubTime(), i.hub.fate(i.random))
	i.spoken()
	if took && i.life.Point() == loop.Idle { // the message is acknowledged with those behind it
		i.acknowledge()
	}
	return took
}

// request makes the next request to the hub, whose answer takes a while.
func (i *instance) request() {
	i.busy = true
	i.after(i.latency(), func() {
		if i.dead {
			return
		}
		now := i.hubTime()
		if i.life.Point() == loop.ReadLease {
			now = i.host() // which it compares with the hub's
		}
		wait := i.life.Step(now, i.hub.fate(i.random))
		i.look()
		i.after(i.latency()+wait, func() {
			i.busy = false
			i.go_()
		})
	})
}

// handling is what a service takes for a message, beside its requests: about what it is among 1,000 nodes
// (tests/bench/negotiator).
const handling = 200 * time.Microsecond

// acknowledge sends what the hub does not answer, if there is anything to send: a service is free for the next message at
// once. Among few nodes a message takes as long as a request; a thousand consents would take six seconds, and they take 0.2 s.
func (i *instance) acknowledge() {
	if !i.isLarge() {
		i.request()
		return
	}
	i.busy = true
	i.after(handling, func() {
		if i.dead {
			return
		}
		i.life.Step(i.hubTime(), i.hub.fate(i.random))
		i.busy = false
		i.go_()
	})
}

// ended hears that the instance's process has ended. One that another took the lease from stays away while that one
// runs.
func (i *instance) ended() {
	err := i.life.Err()
	i.tell(i.name, "ends: %v", err)
	if errors.Is(err, shared.ErrLogWentBackwards) {
		i.violation("%s ends: %v", i.name, err)
	}
	i.crash()
}

// crash ends the process, which a supervisor starts again where no other instance runs.
func (i *instance) crash() {
	i.remove()
	i.after(time.Second, func() {
		if i.last() == nil {
			i.start()
		}
	})
}

func (i *instance) remove() {
	i.dead = true
	for _, complaint := range i.life.Complaints() {
		i.complain(complaint)
	}
	i.running = slices.DeleteFunc(i.running, func(other *instance) bool { return other == i })
}

func (i *instance) complain(complaint error) {
	if errors.Is(complaint, loop.ErrUnfit) || errors.Is(complaint, loop.ErrPanicked) {
		i.violation("%s: %v", i.name, complaint)
	}
	i.tell(i.name, "complains: %v", complaint)
}

func (i *instance) diesHere() bool {
	if i.dies.at != i.life.Point() || i.last() != i {
		return false
	}
	if i.dies.count--; i.dies.count > 0 {
		return false
	}
	i.dies = death{}
	i.tell(i.name, "dies before %s", i.life.Point())
	i.crash()
	return true
}

// tick lets time pass for the machine, and has it look for what comes again because nobody acknowledged it.
func (i *instance) tick() {
	i.after(i.tickEvery, func() {
		if i.dead {
			return
		}
		if !i.busy && !i.paused && !i.hub.away() {
			i.input(i.machine.Tick)
		}
		i.go_()
		i.tick()
	})
}

// renewEvery is how often an instance takes its lease again before the log drops it for its age, as in shared/service.
const renewEvery = events.EventAge / 4

func (i *instance) renew() {
	i.after(renewEvery, func() {
		if !i.dead {
			i.renews = true
			i.go_()
			i.renew()
		}
	})
}

// input brings what came from elsewhere than the log.
func (i *instance) input(do func(now time.Time) []events.Event) {
	if len(i.inputs) < mostInputs {
		i.inputs = append(i.inputs, do)
		i.go_()
	}
}

func (i *instance) spoken() {
	if i.afterward != nil {
		i.afterward(i)
	}
}

// host is the time by the clock of the host, which is another for each instance.
func (i *instance) host() time.Time {
	return i.time().Add(time.Duration(math.Sin(float64(i.started)) * float64(time.Hour)))
}

func (w *World) hubTime() time.Time { return w.time().Add(w.hub.skew) }

func (i *instance) resume() {
	i.paused = false
	i.go_()
}

// publish has an event said by whoever is always connected: a user.
func (w *World) publish(event events.Event) {
	client := loop.Connect(w.hub.Server, cluster, w.hub.apart)
	w.push(client, event, "", func() bool { return true }, func() bool { return false })
}

// push makes the requests that say an event for a node, or for a user, until it is said or given up.
func (w *World) push(client *loop.Bus, event events.Event, node string, connected, over func() bool) {
	w.pushOn(client.Publish(event), node, connected, over, func() { w.push(client, event, node, connected, over) })
}

// pushOn makes a publication's requests; again begins anew where the log has no room.
func (w *World) pushOn(p *loop.Publication, node string, connected, over func() bool, again func()) {
	w.after(w.latency(), func() {
		switch {
		case over():
			return
		case p.Done() && errors.Is(p.Err, bus.ErrFull):
			w.after(insistAgain, again)
			return
		case p.Done():
			if p.Err != nil {
				w.violation("an event cannot be said: %v", p.Err)
			}
			return
		case !connected():
			w.after(connectAgain, func() { w.pushOn(p, node, connected, over, again) })
			return
		}
		wait := p.Step(w.hubTime(), w.fate(node))
		w.look()
		w.after(w.latency()+wait, func() { w.pushOn(p, node, connected, over, again) })
	})
}

const (
	connectAgain = 500 * time.Millisecond
	insistAgain  = 2 * time.Second // as in services/agent
)
