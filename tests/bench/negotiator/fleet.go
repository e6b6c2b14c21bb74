package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/shared/bus"
)

const (
	connections = 8 // of all trainers together
	pulseEvery  = 500 * time.Millisecond
)

// fleet is all trainers of a cluster in one process. Messages that all of them hear are read once.
type fleet struct {
	ctx   context.Context
	nodes int                              // for which the job is made
	own   func(born int) (*bus.Bus, error) // a connection for each trainer; nil: they share some
	every time.Duration                    // between two heartbeats of a trainer
	buses []*bus.Bus
	plans chan committed

	mutex    sync.Mutex
	trainers map[string]*trainer
	born     int
	plan     *events.Plan
	step     uint64 // completed by all
	mistaken int    // verdicts on living trainers
	silent   []silence
	offers   *exchange
	answered func(node, reason string) // hears that a node has a place, or why not; nil: nobody wants to know
}

// committed is a plan, and when it was heard.
type committed struct {
	plan *events.Plan
	at   time.Time
}

// silence is a node that fell silent, and who watches it.
type silence struct {
	node     string
	since    time.Time
	watchers []string
}

// watchers is how many nodes watch each, and silentAfter when their kernels tell that its host is gone, as in an agent.
const (
	watchers    = 3
	silentAfter = 5 * time.Second
)

// exchange is what is still to be offered before receivers have all they take.
type exchange struct {
	cause    events.Event
	schedule events.Schedule
	missing  map[string]map[string]bool // by receiver: unit and giver
}

// fleetOf returns a fleet without a connection, whose job is one of so many nodes.
func fleetOf(ctx context.Context, nodes int) *fleet {
	return &fleet{
		ctx: ctx, nodes: nodes, every: pulseEvery, answered: func(string, string) {},
		trainers: map[string]*trainer{}, plans: make(chan committed, 64),
	}
}

func newFleet(ctx context.Context, url string, nodes int) (*fleet, error) {
	f := fleetOf(ctx, nodes)
	for i := range connections {
		b, err := bus.Connect(ctx, bus.Config{URL: url, Name: fmt.Sprintf("trainers-%d", i), Cluster: cluster})
		if err != nil {
			return nil, err
		}
		f.buses = append(f.buses, b)
	}
	if _, err := f.buses[0].Conn().Subscribe(events.ProbeSubject(cluster, "*"), f.probed); err != nil {
		return nil, err
	}
	return f, f.listen()
}

func (f *fleet) listen() error {
	first := f.buses[0]
	if err := first.Provision(f.ctx); err != nil {
		return err
	}
	var subjects []string
	for kind := range f.handlers() {
		subjects = append(subjects, events.AllOf(cluster, kind, first.Secured())...)
	}
	if _, err := first.Follow(f.ctx, events.EventStream, subjects, bus.New, f.hear); err != nil {
		return err
	}
	plans := []string{events.PlanSubject(cluster, "*")}
	if _, err := f.buses[len(f.buses)-1].Follow(f.ctx, events.PlanStream, plans, bus.New, f.hear); err != nil {
		return err
	}
	go f.beat()
	return nil
}

// close ends what the fleet says and hears.
func (f *fleet) close() {
	for _, b := range f.buses {
		b.Close()
	}
}

// create returns a new trainer, which lives but has not asked for a place.
func (f *fleet) create() *trainer {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.born++
	name, b := fmt.Sprintf("n%d", f.born), f.buses[f.born%len(f.buses)]
	if f.own != nil {
		var err error
		if b, err = f.connect(); err != nil {
			panic(err) // there is nothing to be measured without it
		}
		name = cmp.Or(b.Identity().Key, name)
	}
	t := newTrainer(name, b)
	f.trainers[name] = t
	return t
}

func newTrainer(name string, b *bus.Bus) *trainer {
	return &trainer{
		name: name, incarnation: strings.ToLower(rand.Text()[:12]), bus: b,
		speaker: events.Speaker{Source: events.NodeSource(name), Cluster: cluster},
	}
}

// connect gives the trainer that is born a connection of its own.
func (f *fleet) connect() (*bus.Bus, error) {
	b, err := f.own(f.born)
	if err != nil {
		return nil, err
	}
	f.buses = append(f.buses, b)
	name := cmp.Or(b.Identity().Key, fmt.Sprintf("n%d", f.born))
	_, err = b.Conn().Subscribe(events.ProbeSubject(cluster, name), f.probed)
	return b, err
}

// remove has a trainer fall silent.
func (f *fleet) remove(t *trainer) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	delete(f.trainers, t.name)
}

// placed returns the trainers that have a place in the plan in force, in the order of their names.
func (f *fleet) placed() []*trainer {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	var placed []*trainer
	for _, name := range slices.Sorted(maps.Keys(f.trainers)) {
		if _, has := f.plan.Holds(name); has {
			placed = append(placed, f.trainers[name])
		}
	}
	return placed
}

func (f *fleet) handlers() map[events.Kind]func(events.Event) []saying {
	return map[events.Kind]func(events.Event) []saying{
		events.NegotiationOpened: f.opened, events.Prepared: f.prepared, events.Scheduled: f.scheduled,
		events.ShardOffered: f.offered, events.PlanCommitted: f.committed, events.NodeLost: f.lost,
		events.MembershipRefused: f.refused,
	}
}

// saying is what a trainer says.
type saying struct {
	by    *trainer
	event events.Event
}

func (f *fleet) hear(event events.Event) {
	f.mutex.Lock()
	said := f.handlers()[event.Kind](event)
	f.mutex.Unlock()
	f.say(said)
}

// say publishes without waiting for one answer before the next, as trainers on machines of their own do. Each event is
// written once and its acknowledgement only looked for, if nobody signs. A trainer's own bus does more than that, but a
// hundred of them do it on as many machines.
func (f *fleet) say(said []saying) {
	for _, s := range said {
		if !s.by.bus.Secured() {
			f.write(s)
			continue
		}
		go func() {
			_, err := s.by.bus.Publish(f.ctx, s.event)
			f.check(s, err)
		}()
	}
}

func (f *fleet) write(s saying) {
	data, err := bus.Encode(s.event)
	if err == nil {
		message := &nats.Msg{Subject: s.event.SubjectName(), Data: data}
		_, err = s.by.bus.JetStream().PublishMsgAsync(message, jetstream.WithMsgID(s.event.ID))
	}
	f.check(s, err)
}

func (f *fleet) check(s saying, err error) {
	if err != nil && f.ctx.Err() == nil {
		slog.Error("not said", "event", s.event.Kind, "by", s.by.name, "error", err)
	}
}

func (f *fleet) opened(event events.Event) []saying {
	opening, err := events.Open[events.Opening](event)
	if err != nil {
		return nil
	}
	var said []saying
	for _, member := range opening.Members {
		if t := f.trainers[member.Node]; t != nil && t.incarnation == member.Incarnation {
			said = append(said, saying{t, t.consent(event, opening, f.plan, f.step)})
		}
	}
	return said
}

func (f *fleet) prepared(event events.Event) []saying {
	preparation, err := events.Open[events.Preparation](event)
	if err != nil {
		return nil
	}
	var said []saying
	for _, t := range f.trainers {
		if t.named(f.plan.Nodes) {
			said = append(said, saying{t, t.promise(event, preparation.Negotiation, f.step)})
		}
	}
	return said
}

func (f *fleet) scheduled(event events.Event) []saying {
	schedule, err := events.Open[events.Schedule](event)
	if err != nil {
		return nil
	}
	f.offers = &exchange{cause: event, schedule: schedule, missing: map[string]map[string]bool{}}
	givers := map[string]bool{}
	for _, transfer := range schedule.Plan.Migration.Transfers {
		missing := f.offers.missing[transfer.To]
		if missing == nil {
			missing = map[string]bool{}
			f.offers.missing[transfer.To] = missing
		}
		for _, source := range transfer.Sources {
			missing[fmt.Sprint(transfer.Unit, source.Node)], givers[source.Node] = true, true
		}
	}
	var said []saying
	for giver := range givers {
		if t := f.trainers[giver]; t != nil {
			for _, offer := range t.offers(event, schedule) {
				said = append(said, saying{t, offer})
			}
		}
	}
	return said
}

func (f *fleet) offered(event events.Event) []saying {
	offer, err := events.Open[events.Offer](event)
	if err != nil || f.offers == nil || f.offers.schedule.Negotiation != offer.Negotiation {
		return nil
	}
	var said []saying
	for receiver, missing := range f.offers.missing {
		delete(missing, fmt.Sprint(offer.Unit, offer.Node))
		t := f.trainers[receiver]
		if len(missing) > 0 || t == nil {
			continue
		}
		delete(f.offers.missing, receiver)
		if receipt, takes := t.receipt(f.offers.cause, f.offers.schedule); takes {
			said = append(said, saying{t, receipt})
		}
	}
	return said
}

// committed has all go over to a plan and complete a step under it.
func (f *fleet) committed(event events.Event) []saying {
	plan, err := events.Open[events.Plan](event)
	if err != nil {
		return nil
	}
	f.plans <- committed{&plan, time.Now()}
	f.plan, f.step, f.offers = &plan, plan.ResumeStep+1, nil
	var said []saying
	for _, member := range plan.Nodes {
		f.answered(member.Node, "")
		if t := f.trainers[member.Node]; t != nil {
			said = append(said, saying{t, t.activated(event, &plan)})
		}
	}
	return said
}

// refused has a node that gets no place say nothing more: an agent asks again after some time.
func (f *fleet) refused(event events.Event) []saying {
	refusal, err := events.Open[events.Refusal](event)
	if err == nil && refusal.Refused == events.ChangeJoin {
		delete(f.trainers, refusal.Node)
		f.answered(refusal.Node, refusal.Reason)
	}
	return nil
}

// lost counts a verdict on a trainer that lives.
func (f *fleet) lost(event events.Event) []saying {
	state, err := events.Open[events.NodeState](event)
	if err != nil {
		return nil
	}
	if t := f.trainers[state.Node]; t != nil && t.incarnation == state.Incarnation {
		f.mistaken++
	}
	return nil
}

// mistakes returns how many living trainers were said lost so far.
func (f *fleet) mistakes() int {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	return f.mistaken
}
