package fence

import (
	"slices"
	"time"
)

// Script is whose script runs, or is to.
type Script struct {
	Node, Incarnation string
	Address           string // where its agent answers
}

// Absent is a node whose script may still run although the others do without it.
type Absent struct {
	Script
	Until time.Time // its script has ended then, if the node runs at all
	named bool      // by the last plan: it hears of that, and ends its script
}

// Scripts is whose scripts may run, as a node knows that has one. The zero value knows nobody's.
type Scripts struct {
	crew   []Script // of the last plan that changed it, whether this node's script started under that or not
	absent []Absent
}

// Adopt takes up a plan, by its crew and whether it names a node, and reports whether scripts start anew: the one that runs ends at
// once, and the next starts once its Wait is over. Each script runs on, or goes on waiting, where the crew is the same and no steps were
// given up.
func (s *Scripts) Adopt(crew []Script, named func(node string) bool, abandoned bool, now time.Time) (anew bool) {
	anew = abandoned || !slices.Equal(crew, s.crew)
	if anew {
		for _, script := range s.crew {
			s.absent = append(s.absent, Absent{Script: script, Until: now.Add(Ended)})
		}
		s.absent = slices.DeleteFunc(s.absent, func(one Absent) bool {
			return !one.Until.After(now) || slices.ContainsFunc(crew, func(next Script) bool { return next.Node == one.Node })
		})
		s.crew = crew
	}
	for i := range s.absent {
		s.absent[i].named = named(s.absent[i].Node)
	}
	return anew
}

// Wait returns the wait for the scripts of those who are absent, and whom the last plan does not name. One that it names may be given up
// before it has heard of it: it is waited for under the next.
func (s *Scripts) Wait() *Wait {
	w := &Wait{}
	for _, one := range s.absent {
		if !one.named {
			w.absent = append(w.absent, asked{Absent: one})
		}
	}
	return w
}
