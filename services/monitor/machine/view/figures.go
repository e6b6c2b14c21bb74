package view

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/monitor/machine/changes"
)

// Figures are what monitoring keeps of a cluster.
type Figures struct {
	Status
	Holds     bool // no plan is possible now
	HoldsStep bool // that is because trainers ended in one step, one after the other
	Older     bool // the log is older than what nodes trained, and a person is to decide
	Alone     int  // layers of which one living node holds some part, and nobody else
	Bare      int  // layers of which no living node holds some part
	LinksLost int
	Differ    int                // units whose copies differ, and nobody can tell which is right
	Late      map[string]bool    // by tier of snapshots: none is complete for too long
	Age       map[string]float64 // seconds since one was complete, by tier
	Done      []Change           // under whose plans everybody works, since the last figures
}

// differs is for how long after the end of a job copies are told to differ: monitoring is to see those that are found at the end.
const differs = 15 * time.Minute

// Figures returns those of now. Changes that were done before the first call are not in Done. O(n log n) of the nodes and links.
func (v *View) Figures(now time.Time) Figures {
	nodes := v.nodes(now)
	plan, _ := v.plan()
	v.progress.look(plan, now)
	figures := Figures{Status: v.status(nodes, plan, now), Done: v.done(now)}
	end := v.overlay.End()
	if end == nil || now.Sub(end.At) < differs {
		figures.Differ = len(v.differ)
	}
	if plan != nil && end == nil { // nobody needs what was trained any more
		for _, holders := range CoverageOf(plan, alive(nodes)).Holders {
			switch holders {
			case 0:
				figures.Bare++
			case 1:
				figures.Alone++
			}
		}
	}
	links, _ := v.overlay.Links()
	for _, link := range links {
		if link.Lost && link.From < link.To { // lost ways back are told, too
			figures.LinksLost++
		}
	}
	change, under := v.underWay()
	figures.Holds = under && change.Held != nil
	figures.HoldsStep = figures.Holds && change.Held.Step != nil
	figures.Older = figures.Holds && strings.HasPrefix(change.Held.Reason, events.OlderLog)
	figures.keep(now, end != nil)
	return figures
}

// keep tells how old the newest complete snapshot of each tier is. Nobody needs a snapshot of a job that is complete.
func (f *Figures) keep(now time.Time, ended bool) {
	f.Late, f.Age = map[string]bool{}, map[string]float64{}
	for _, tier := range f.Snapshots {
		if tier.Step > 0 && !ended {
			f.Age[tier.Tier] = now.Sub(tier.At).Seconds()
		}
		f.Late[tier.Tier] = !ended && tier.Late(f.Step)
	}
}

// done returns the changes that everybody has come to work under, each once.
func (v *View) done(now time.Time) (done []Change) {
	told, first := v.changes(now), v.counted == nil
	if first {
		v.counted = map[uint64]bool{}
	}
	for _, generation := range slices.Sorted(maps.Keys(told)) {
		if told[generation].State == changes.Working && !v.counted[generation] {
			v.counted[generation] = true
			done = append(done, told[generation])
		}
	}
	maps.DeleteFunc(v.counted, func(generation uint64, _ bool) bool { _, shown := told[generation]; return !shown })
	if first {
		return nil
	}
	return done
}
