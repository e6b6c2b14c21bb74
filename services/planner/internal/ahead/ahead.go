// Package ahead answers plan requests before they are made: while nothing is negotiated, it computes what the policy
// would answer to each loss that package losses foresees, once for each failure class.
package ahead

import (
	"context"
	"log/slog"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/planner/machine"
	"github.com/reknit/reknit/services/planner/machine/losses"
	"github.com/reknit/reknit/services/planner/policy"
	"github.com/reknit/reknit/shared/bus"
)

// Facts come in bursts, and a burst needs one round.
const (
	quiet      = time.Second
	startPause = 250 * time.Millisecond
)

// It rests restsPerWork times as long as it worked, and works so long at a time. The rest of the core is for whoever
// trains on this machine, and for the services: with 1,000 nodes it takes ten seconds to ask all questions, which are
// other ones after each change.
const (
	restsPerWork = 9
	workTime     = 20 * time.Millisecond
)

// Planner computes answers ahead.
type Planner struct {
	settings machine.Settings
	cache    *Cache
	world    losses.World
	heard    chan events.Event
	asked    chan events.Event                    // the last request that was not heard yet
	isStale  bool                                 // facts were heard since the last round began
	rest     func(context.Context, time.Duration) // from work
}

// New returns a planner that adds its answers to a cache.
func New(settings machine.Settings, cache *Cache) *Planner {
	p := &Planner{settings: settings, cache: cache, heard: make(chan events.Event), asked: make(chan events.Event, 1)}
	p.rest = p.listen
	return p
}

// Asked tells of a request that is being answered, and does not wait. Among 1,000 nodes, reading it once more from the log
// took 16 ms, and the search for its answer 9.
func (p *Planner) Asked(request events.Event) {
	select {
	case <-p.asked: // an older one
	default:
	}
	p.asked <- request
}

// Run follows the facts and computes ahead until ctx ends. It takes a tenth of a core, and stops when something is
// negotiated.
func (p *Planner) Run(ctx context.Context, b *bus.Bus) {
	for err := p.follow(ctx, b); err != nil && ctx.Err() == nil; err = p.follow(ctx, b) {
		slog.DebugContext(ctx, "nothing is planned ahead yet", "error", err)
		p.listen(ctx, startPause)
	}
	for ctx.Err() == nil {
		if !p.isStale {
			select {
			case event := <-p.heard:
				p.world.Hear(event)
			case request := <-p.asked:
				p.world.Hear(request)
			case <-ctx.Done():
			}
		}
		p.listen(ctx, quiet)
		p.isStale = false
		if plan := p.world.Standing(); plan != nil {
			p.round(ctx, plan)
		}
	}
}

// listen hears facts for a while.
func (p *Planner) listen(ctx context.Context, while time.Duration) {
	timer := time.NewTimer(while)
	defer timer.Stop()
	for {
		select {
		case event := <-p.heard:
			p.world.Hear(event)
			p.isStale = true
		case request := <-p.asked:
			p.world.Hear(request)
			p.isStale = true
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// round drops the answers that no loss asks for any more, and computes those that are missing while the plan stands.
func (p *Planner) round(ctx context.Context, plan *events.Plan) {
	start, computed := time.Now(), 0
	questions, asked := p.questions(ctx, plan)
	if !asked {
		return
	}
	p.cache.retain(questions)
	for _, question := range questions {
		if _, known := p.cache.Answer(question); known {
			continue
		}
		begun := time.Now()
		candidates, _ := p.settings.Policy.Answer(question.Situation)
		if len(candidates) > 0 { // a refusal is said with names, and is computed when it is asked for
			p.cache.add(question, candidates)
			computed++
		}
		if !p.pause(ctx, begun, plan) {
			return
		}
	}
	slog.DebugContext(ctx, "planned ahead", "generation", plan.Generation,
		"questions", len(questions), "computed", computed, "seconds", time.Since(start).Seconds())
}

// questions asks what may be lost next; false where the plan stands no more.
func (p *Planner) questions(ctx context.Context, plan *events.Plan) (questions []policy.Canonical, stands bool) {
	begun := time.Now()
	for questions = range p.world.Questions(p.settings) {
		if time.Since(begun) < workTime {
			continue
		}
		if !p.pause(ctx, begun, plan) {
			return nil, false
		}
		begun = time.Now()
	}
	return questions, ctx.Err() == nil
}

// pause rests from what began then, and reports whether the plan still stands.
func (p *Planner) pause(ctx context.Context, begun time.Time, plan *events.Plan) bool {
	p.rest(ctx, restsPerWork*time.Since(begun))
	return ctx.Err() == nil && p.world.Standing() == plan
}

// follow hears the last request and the last plan, and follows what comes behind them. Later requests come to Asked.
func (p *Planner) follow(ctx context.Context, b *bus.Bus) error {
	plans := events.PlanSubject(b.Cluster(), "*")
	request, asked, err := b.LastEvent(ctx, events.EventStream, events.EventSubject(b.Cluster(), events.PlanRequested, "*"))
	if err != nil {
		return err
	}
	plan, committed, err := b.LastEvent(ctx, events.PlanStream, plans)
	if err != nil {
		return err
	}
	if asked {
		p.world.Hear(request)
	}
	if committed {
		p.world.Hear(plan)
	}
	var facts []string
	for _, kind := range losses.Hears {
		facts = append(facts, events.EventSubject(b.Cluster(), kind, "*"))
	}
	if err := p.followAfter(ctx, b, events.EventStream, facts, request.Sequence); err != nil {
		return err
	}
	return p.followAfter(ctx, b, events.PlanStream, []string{plans}, plan.Sequence)
}

// followAfter follows a stream behind a sequence.
func (p *Planner) followAfter(ctx context.Context, b *bus.Bus, stream events.Stream, subjects []string, sequence uint64) error {
	_, err := b.Follow(ctx, stream, subjects, bus.AfterSequence(sequence), func(event events.Event) {
		select {
		case p.heard <- event:
		case <-ctx.Done():
		}
	})
	return err
}
