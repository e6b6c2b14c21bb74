package local

import (
	"context"
	"slices"

	"github.com/reknit/reknit/events"
)

const (
	compareEvery = 100      // steps, as the reference trainer: the log takes a line a node each time
	mostCompared = 64 << 20 // bytes at a time, one unit at least: training waits while they are hashed, a tenth of a second or less
)

// compare tells digests of some units now and then, while the trainer waits, so that somebody notices should replicas
// differ. All units have their turn. Copied state is compared where it moves only: a copy for this would cost more.
func (t *trainer) compare(step context.Context, done uint64) error {
	if t.state.copied || done%compareEvery > 0 || t.plan.Replicas == events.AlikeReplicas {
		return nil
	}
	units := t.state.digests(step, done, turnOf(t.state.files.units, done/compareEvery))
	if len(units) == 0 {
		return nil
	}
	return t.session.Digested(t.ended, done, false, units)
}

// lastDigests returns those of all units that are trained, once the last step is made. Those of copied state, and of replicas
// that are only alike, say nothing. A core hashes 1.5 GB in a second: it is left off where the step is to be given up, for
// then somebody waits for this node.
func (t *trainer) lastDigests(step context.Context, done uint64) []events.UnitDigest {
	if t.state.copied || t.plan.Replicas == events.AlikeReplicas {
		return nil
	}
	return t.state.digests(step, done, events.Range{First: 0, End: len(t.state.files.units)})
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

// digests returns the digests of those units that are trained and stand at a step; none where ctx ends before they are known.
func (s *state) digests(ctx context.Context, step uint64, units events.Range) []events.UnitDigest {
	var digests []events.UnitDigest
	for unit := units.First; unit < units.End; unit++ {
		s.mutex.Lock()
		stands := s.trained[unit] && s.held[unit] == step && !s.closed
		s.mutex.Unlock()
		if stands {
			digests = append(digests, events.UnitDigest{Unit: unit, Digest: digestOf(ctx, s.files.units[unit])})
		}
	}
	if ctx.Err() != nil {
		return nil
	}
	return digests
}

// digestOf is that of a unit, or of what was hashed before ctx ended.
func digestOf(ctx context.Context, unit []byte) string {
	var blocks []string
	for block := range slices.Chunk(unit, events.BlockBytes) {
		if ctx.Err() != nil {
			break
		}
		blocks = append(blocks, events.Digest(block))
	}
	return events.DigestOfBlocks(blocks)
}
