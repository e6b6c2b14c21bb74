package view

import (
	"maps"
	"slices"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/monitor/machine/changes"
)

// Change is a change for readers of a list. Nothing in it grows with time: what is under way says when it began.
type Change struct {
	Generation   uint64          `json:"generation"`
	State        string          `json:"state"`
	What         string          `json:"what"`
	Kind         string          `json:"kind"`  // of its first change; empty: something was refused
	Began        int64           `json:"began"` // milliseconds since 1970, as all times here
	Phases       []changes.Phase `json:"phases"`
	Seconds      float64         `json:"seconds"`
	StallSeconds float64         `json:"stallSeconds"`
	StallSteps   float64         `json:"stallSteps"`
	BytesMoved   int64           `json:"bytesMoved"`
	NaiveBytes   int64           `json:"naiveBytes"`
	Policy       string          `json:"policy,omitempty"`
	Shape        string          `json:"shape,omitempty"`
	Attempts     int             `json:"attempts"`
	Held         *events.Hold    `json:"held,omitempty"`
	Waiting      string          `json:"waiting,omitempty"` // why it is better to wait than to plan
	Now          *Negotiation    `json:"now,omitempty"`     // while one is under way, or nobody stepped under its plan yet
}

// Negotiation is how far a change under way has come.
type Negotiation struct {
	Opened  int64             `json:"opened"`
	Phase   string            `json:"phase"`
	Members int               `json:"members"`
	Awaits  []string          `json:"awaits"` // some of those who are waited for
	Waits   int               `json:"waits"`  // how many they are
	Delays  map[string]string `json:"delays,omitempty"`
	Overdue int               `json:"overdue,omitempty"`
	Bytes   int64             `json:"bytes"`   // received and verified, of those to move
	Fetches []Fetch           `json:"fetches"` // some, those under way first
	Fetched int               `json:"fetched"` // receivers that have all
	Fetch   int               `json:"fetch"`   // receivers
}

// Fetch is what a node receives.
type Fetch struct {
	changes.Fetch
	Seconds float64 `json:"seconds,omitempty"` // that it took; left out while it is under way
}

// changes returns the changes to show. Older ones than the last two commits stay as they are.
func (v *View) changes(now time.Time) map[uint64]Change {
	if v.news {
		v.news = false
		from := uint64(0)
		if committed := v.record.Committed(); committed > 1 && len(v.told) > 0 {
			from = committed - 1
		}
		for _, change := range v.record.Since(from, now) {
			v.told[change.Generation] = changeOf(change)
		}
		maps.DeleteFunc(v.told, func(generation uint64, _ Change) bool { return generation+MostChanges < v.record.Committed() })
	}
	return v.told
}

func changeOf(c changes.Change) Change {
	told := Change{
		Generation: c.Generation, State: c.State, What: c.What(), Began: c.Began.UnixMilli(), Phases: c.Phases,
		Seconds: c.TotalSeconds, StallSeconds: c.StallSeconds, StallSteps: c.StallSteps, BytesMoved: c.BytesMoved,
		NaiveBytes: c.NaiveBytes, Policy: c.Policy, Shape: c.Shape, Attempts: len(c.Attempts), Held: c.Held,
	}
	if c.State == changes.Pending || c.State == changes.Negotiating {
		told.Seconds = 0 // they would be others each second, and the page has since when
	}
	if len(c.Changes) > 0 {
		told.Kind = c.Changes[0].Kind
	}
	if c.Waiting != nil {
		told.Waiting = c.Waiting.Reason
	}
	if c.State == changes.Negotiating || c.State == changes.Committed {
		told.Now = negotiationOf(c)
	}
	return told
}

func negotiationOf(c changes.Change) *Negotiation {
	last := c.Attempts[len(c.Attempts)-1]
	now := &Negotiation{
		Opened: last.Opened.UnixMilli(), Phase: last.Phase, Members: last.Members, Delays: last.Delays, Overdue: last.Overdue,
		Awaits: last.Awaits[:min(len(last.Awaits), mostNames)], Waits: len(last.Awaits), Fetch: len(c.Fetches),
	}
	took := map[string]float64{}
	for _, receipt := range c.Receipts {
		took[receipt.Node] = max(receipt.Seconds, 1e-3)
		for _, unit := range receipt.Units {
			now.Bytes += unit.Bytes
		}
	}
	now.Fetched = len(took)
	for _, fetch := range c.Fetches {
		now.Fetches = append(now.Fetches, Fetch{fetch, took[fetch.Node]})
	}
	slices.SortStableFunc(now.Fetches, func(a, b Fetch) int { return int(min(b.Bytes-a.Bytes, 1)) })
	now.Fetches = now.Fetches[:min(len(now.Fetches), mostNames)]
	return now
}

// Detail is all that is known of a change: what the command line tells of it, with why the plan is this one.
type Detail struct {
	changes.Change
	What       string             `json:"what"`
	Predicted  *Predicted         `json:"predicted,omitempty"`
	Considered []events.Candidate `json:"considered"`
}

// mostRows bounds each list of a detail.
const mostRows = 200

// Detail returns all that is known of the change to a generation; found is false where it is not shown.
func (v *View) Detail(generation uint64, now time.Time) (detail Detail, found bool) {
	all := v.record.Since(generation, now)
	if len(all) == 0 || all[0].Generation != generation {
		return Detail{}, false
	}
	change := all[0]
	detail = Detail{Change: change, What: change.What(), Considered: []events.Candidate{}}
	detail.Receipts = detail.Receipts[:min(len(detail.Receipts), mostRows)]
	detail.Fetches = detail.Fetches[:min(len(detail.Fetches), mostRows)]
	detail.Refusals = detail.Refusals[:min(len(detail.Refusals), mostRows)]
	if change.Waiting != nil {
		detail.Considered = change.Waiting.Considered
	}
	if plan := v.record.Plan(generation); plan != nil {
		predicted := predictedOf(plan.Predicted)
		detail.Predicted, detail.Considered = &predicted, plan.Considered
	}
	return detail, true
}
