package snapshots

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/agent/retention"
)

// List returns what can be read of whole parts, the newest first and at most as much as a consent may hold: rather what the cluster said is
// complete, by tier, than what may not be. A tier that does not answer counts for nothing.
func (s *Snapshots) List(ctx context.Context, complete map[string][]retention.ID) []events.Snapshot {
	readable := map[unitOf][]place{}
	for _, t := range s.tiers {
		lies, err := t.list(ctx)
		if err != nil {
			slog.Warn("snapshot tier not listed", "node", s.owner.Node, "tier", t.name, "error", err)
		}
		for _, part := range lies.parts {
			for _, unit := range part.Units {
				at := unitOf{part.ID, unit}
				if part.Whole && unit < s.owner.Job.Units() {
					readable[at] = append(readable[at], place{at, t, part.Node})
				}
			}
		}
	}
	for {
		units := s.remember(readable)
		named := retention.Named(slices.Collect(maps.Keys(units)), complete, events.MostSnapshots)
		if s.proven(ctx, named) || ctx.Err() != nil {
			return s.told(ctx, named, units)
		}
	}
}

// remember keeps what can be read where, and returns the units of each snapshot.
func (s *Snapshots) remember(found map[unitOf][]place) map[retention.ID][]int {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.readable = map[unitOf][]place{}
	maps.DeleteFunc(s.unreadable, func(p place, _ bool) bool { return !slices.Contains(found[p.unitOf], p) })
	units := map[retention.ID][]int{}
	for at, places := range found {
		for _, place := range places {
			if !s.unreadable[place] {
				s.readable[at] = append(s.readable[at], place)
			}
		}
		if len(s.readable[at]) > 0 {
			units[at.ID] = append(units[at.ID], at.unit)
		}
	}
	return units
}

// proofsAtOnce is how many manifests are read at a time.
const proofsAtOnce = 16

// proven looks at the manifests of snapshots that are to be named, where somebody signs them, and reports whether all count. Parts of which
// the manifest does not count are unreadable from then on: if the cluster went back to such a snapshot, nobody could.
func (s *Snapshots) proven(ctx context.Context, named []retention.ID) bool {
	looks, looking := errgroup.WithContext(ctx)
	looks.SetLimit(proofsAtOnce)
	all := true
	for part, places := range s.partsOf(named) {
		looks.Go(func() error {
			_, err := part.tier.manifest(looking, part.ID, part.node)
			if !errors.Is(err, errUnreadable) {
				return nil // a tier that does not answer is asked again by whoever reads
			}
			slog.Warn("a part of a snapshot does not count", "node", s.owner.Node, "tier", part.tier.name, "error", err)
			s.mutex.Lock()
			defer s.mutex.Unlock()
			all = false
			for _, place := range places {
				s.unreadable[place] = true
			}
			return nil
		})
	}
	_ = looks.Wait()
	return all
}

// partsOf returns the places of units by the part that they are of, of snapshots in tiers where somebody signs.
func (s *Snapshots) partsOf(named []retention.ID) map[place][]place {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	parts := map[place][]place{}
	for at, places := range s.readable {
		for _, place := range places {
			if place.tier.verify != nil && slices.Contains(named, at.ID) {
				part := place
				part.unit = isManifest
				parts[part] = append(parts[part], place)
			}
		}
	}
	return parts
}

// told writes snapshots down. One manifest of each tells where training stood in its data.
func (s *Snapshots) told(ctx context.Context, named []retention.ID, units map[retention.ID][]int) []events.Snapshot {
	var list []events.Snapshot
	for _, id := range named {
		position, err := s.position(ctx, unitOf{id, units[id][0]})
		if err != nil {
			slog.Warn("snapshot not listed", "node", s.owner.Node, "step", id.Step, "error", err)
			continue
		}
		list = append(list, events.Snapshot{
			Step: id.Step, Plan: id.Plan, ConsumedSamples: position, Units: rangesOf(units[id]),
		})
	}
	return list
}

// position returns where training stood in its data, by a manifest that names a unit.
func (s *Snapshots) position(ctx context.Context, at unitOf) (uint64, error) {
	var failed error
	for _, from := range s.placesOf(at) {
		written, err := from.tier.manifest(ctx, at.ID, from.node)
		if err == nil {
			return written.ConsumedSamples, nil
		}
		failed = errors.Join(failed, err)
	}
	return 0, failed
}

func (s *Snapshots) placesOf(at unitOf) []place {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	return slices.Clone(s.readable[at])
}

func rangesOf(units []int) []events.Range {
	var ranges []events.Range
	for _, unit := range slices.Sorted(slices.Values(units)) {
		if last := len(ranges) - 1; last >= 0 && ranges[last].End == unit {
			ranges[last].End++
			continue
		}
		ranges = append(ranges, events.Range{First: unit, End: unit + 1})
	}
	return ranges
}

// readTries is how often a tier that does not answer is asked for a unit.
const readTries = 3

// Read returns a unit that List named, verified, from the nearest tier that has it. List no longer names a unit that is
// not what it should be.
func (s *Snapshots) Read(ctx context.Context, step uint64, plan string, unit int) ([]byte, error) {
	at := unitOf{retention.ID{Step: step, Plan: plan}, unit}
	failed := fmt.Errorf("no snapshot of unit %d at step %d can be read", unit, step)
	for _, from := range s.placesOf(at) {
		for range readTries {
			data, err := from.tier.read(ctx, at.ID, from.node, unit)
			if err == nil {
				return data, nil
			}
			failed = fmt.Errorf("tier %s: %w", from.tier.name, err)
			if errors.Is(err, errUnreadable) {
				s.mutex.Lock()
				s.unreadable[from] = true
				s.mutex.Unlock()
				break
			}
		}
	}
	return nil, failed
}
