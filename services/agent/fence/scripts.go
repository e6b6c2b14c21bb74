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
	if !abandoned && slices.Equal(crew, s.crew) {
		return false
	}
	for _, script := range s.crew {
		s.absent = append(s.absent, Absent{script, now.Add(Ended)})
	}
	s.absent = slices.DeleteFunc(s.absent, func(one Absent) bool {
		return named(one.Node) || !one.Until.After(now) // a member hears of the plan, and ends its script
	})
	s.crew = crew
	return true
}

// Wait returns the wait for the scripts of those who are absent.
func (s *Scripts) Wait() *Wait {
	w := &Wait{}
	for _, one := range s.absent {
		w.absent = append(w.absent, asked{Absent: one})
	}
	return w
}
