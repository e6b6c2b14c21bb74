package local

import "github.com/reknit/reknit/events"

const (
	compareEvery = 100      // steps, as the reference trainer: the log takes a line a node each time
	mostCompared = 64 << 20 // bytes at a time, one unit at least: training waits while they are hashed, a tenth of a second or less
)

// compare tells digests of some units now and then, while the trainer waits, so that somebody notices should replicas
// differ. All units have their turn. Copied state is compared where it moves only: a copy for this would cost more.
func (t *trainer) compare(done uint64) error {
	if t.state.copied || done%compareEvery > 0 || t.plan.Replicas == events.AlikeReplicas {
		return nil
	}
	units := t.state.digests(done, turnOf(t.state.files.units, done/compareEvery))
	if len(units) == 0 {
		return nil
	}
	return t.session.Digested(t.ended, done, false, units)
}

// lastDigests returns those of all units that are trained, once the last step is made. Those of copied state, and of replicas
// that are only alike, say nothing.
func (t *trainer) lastDigests(done uint64) []events.UnitDigest {
	if t.state.copied || t.plan.Replicas == events.AlikeReplicas {
		return nil
	}
	return t.state.digests(done, events.Range{First: 0, End: len(t.state.files.units)})
}

// turnOf returns the units that are compared as the number-th, at all nodes the same ones.
func turnOf(units [][]byte, number uint64) events.Range {
	var turns []events.Range
	bytes := 0
	for unit := range units {
		if bytes += len(units[unit]); unit == 0 || bytes > mostCompared {
			turns = append(turns, events.Range{First: unit})
			bytes = len(units[unit])
		}
		turns[len(turns)-1].End = unit + 1
	}
	return turns[number%uint64(len(turns))]
}

// digests returns the digests of those units that are trained and stand at a step.
func (s *state) digests(step uint64, units events.Range) []events.UnitDigest {
	var digests []events.UnitDigest
	for unit := units.First; unit < units.End; unit++ {
		s.mutex.Lock()
		stands := s.trained[unit] && s.held[unit] == step && !s.closed
		s.mutex.Unlock()
		if stands {
			digests = append(digests, events.UnitDigest{Unit: unit, Digest: events.DigestOfUnit(s.files.units[unit])})
		}
	}
	return digests
}
