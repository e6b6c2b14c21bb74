// Package snapshots keeps what a node trained some steps ago, should all who hold a unit of it die at once.
//
// There are tiers, the nearest first: memory, a folder on the node's own disk, and a bucket that all nodes read. A node
// keeps all that it trains in its memory and in that of a neighbour, and in its folder; to the bucket one holder of each
// unit writes it. Training waits while bytes are copied, never while they are written.
package snapshots

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"gocloud.dev/blob"
	"gocloud.dev/blob/fileblob"
	"gocloud.dev/blob/memblob"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/agent/machine"
	"github.com/reknit/reknit/services/agent/retention"
)

// Settings say where snapshots go and how often. A process that wants to open the bucket of a provider imports its
// driver, as gocloud.dev/blob/s3blob.
type Settings struct {
	MemoryEvery uint64 `env:"REKNIT_SNAPSHOT_MEMORY_EVERY" envDefault:"0" unit:"steps" reason:"off by default: in its own memory and in a neighbour's a node's state takes room three times more"`
	Folder      string `env:"REKNIT_SNAPSHOT_FOLDER" unit:"path" reason:"off by default; a folder on the node's own disk, for snapshots that outlive its process"`
	DiskEvery   uint64 `env:"REKNIT_SNAPSHOT_DISK_EVERY" envDefault:"100" unit:"steps" reason:"that are lost at most when all holders of a layer die at once; 0: off"`
	Bucket      string `env:"REKNIT_SNAPSHOT_BUCKET" unit:"URL" reason:"off by default; a bucket that all nodes read, as s3://name?region=eu-central-1 or file:///shared/folder"`
	RemoteEvery uint64 `env:"REKNIT_SNAPSHOT_REMOTE_EVERY" envDefault:"1000" unit:"steps" reason:"a store far away takes less often what costs more to write; 0: off"`
	Keep        int    `env:"REKNIT_SNAPSHOT_KEEP" envDefault:"2" unit:"snapshots" reason:"complete ones in each tier: one more than needed, should one be unreadable"`
	MaxBytes    int64  `env:"REKNIT_SNAPSHOT_BYTES" envDefault:"68719476736" unit:"bytes" reason:"of this node's parts in each tier; a part beyond is not written"`
}

// Owner is whose snapshots they are. Those of another cluster or job are never read.
type Owner struct {
	Cluster string
	Node    string
	Job     events.Job
	// MemoryBytes bounds what is kept in memory.
	MemoryBytes int64
	// Lend has a neighbour keep a part of a snapshot in its memory.
	Lend func(ctx context.Context, to string, id retention.ID, units []Unit) error
}

// Snapshots is a node's tiers. Its methods may be called by several goroutines.
type Snapshots struct {
	owner   Owner
	tiers   []*tier // the nearest first
	context context.Context
	cancel  context.CancelFunc
	writing sync.WaitGroup
	keeping sync.Mutex // one neighbour's part at a time

	mutex      sync.Mutex
	readable   map[unitOf][]place // by the last List, the nearest first
	unreadable map[place]bool     // units of places that are not what they should be
}

// unitOf is a unit of a snapshot.
type unitOf struct {
	retention.ID
	unit int
}

// place is where a unit can be read.
type place struct {
	unitOf
	tier *tier
	node string // that wrote it
}

// Open opens the tiers that are configured, which may be none. The end of ctx ends what is being written.
func Open(ctx context.Context, settings Settings, owner Owner) (*Snapshots, error) {
	s := &Snapshots{owner: owner, readable: map[unitOf][]place{}, unreadable: map[place]bool{}}
	s.context, s.cancel = context.WithCancel(ctx)
	on := settings.MemoryEvery > 0 || settings.Folder != "" && settings.DiskEvery > 0 || settings.Bucket != "" && settings.RemoteEvery > 0
	if on && settings.Keep < 1 {
		return nil, fmt.Errorf("REKNIT_SNAPSHOT_KEEP: expected at least 1, got %d", settings.Keep)
	}
	if settings.MemoryEvery > 0 {
		bounded := settings
		bounded.MaxBytes = min(settings.MaxBytes, owner.MemoryBytes)
		s.add(bounded, machine.MemoryTier, settings.MemoryEvery, memblob.OpenBucket(nil), 0)
	}
	if settings.Folder != "" && settings.DiskEvery > 0 {
		bucket, err := fileblob.OpenBucket(settings.Folder, &fileblob.Options{
			CreateDir: true, NoTempDir: true, Metadata: fileblob.MetadataDontWrite,
		})
		if err != nil {
			return nil, fmt.Errorf("REKNIT_SNAPSHOT_FOLDER: %w", err)
		}
		s.add(settings, machine.DiskTier, settings.DiskEvery, bucket, 0)
	}
	if settings.Bucket != "" && settings.RemoteEvery > 0 {
		bucket, err := blob.OpenBucket(ctx, settings.Bucket)
		if err != nil {
			s.Close()
			return nil, fmt.Errorf("REKNIT_SNAPSHOT_BUCKET: %w", err)
		}
		s.add(settings, machine.RemoteTier, settings.RemoteEvery, bucket, owner.Job.Units())
	}
	return s, nil
}

func (s *Snapshots) add(settings Settings, name string, every uint64, bucket *blob.Bucket, units int) {
	job := strings.TrimPrefix(s.owner.Job.Digest, digestPrefix)
	s.tiers = append(s.tiers, &tier{
		name: name, every: every, bucket: blob.PrefixedBucket(bucket, s.owner.Cluster+"/"+job+"/"), units: units,
		keep: settings.Keep, bytes: settings.MaxBytes, busy: make(chan struct{}, 1),
	})
}

// Tiers tells which tiers there are, and how often each takes a snapshot.
func (s *Snapshots) Tiers() []machine.Tier {
	var tiers []machine.Tier
	for _, t := range s.tiers {
		tiers = append(tiers, machine.Tier{Name: t.name, Every: t.every})
	}
	return tiers
}

// Close ends what is being written: such a part stays without a manifest.
func (s *Snapshots) Close() {
	s.cancel()
	s.writing.Wait()
	for _, t := range s.tiers {
		if err := t.bucket.Close(); err != nil {
			slog.Warn("snapshot tier not closed", "node", s.owner.Node, "tier", t.name, "error", err)
		}
	}
}

// Capture copies the units of each share and writes them behind the caller's back. A tier that is still writing the
// snapshot before is left out: nothing queues.
func (s *Snapshots) Capture(task machine.Capture, export func(unit int, step uint64) ([]byte, error)) {
	copies := map[int][]byte{}
	for _, share := range task.Shares {
		t := s.idle(share.Tier)
		if t == nil {
			slog.Warn("snapshot skipped: the one before is still being written",
				"node", s.owner.Node, "tier", share.Tier, "step", task.Step)
			continue
		}
		units, err := s.copied(copies, share.Units, task.Step, export)
		if err != nil {
			<-t.busy
			slog.Warn("snapshot not captured", "node", s.owner.Node, "step", task.Step, "error", err)
			continue
		}
		s.writing.Go(func() {
			defer func() { <-t.busy }()
			s.write(t, task, share.To, units)
		})
	}
}

// idle takes the token of a tier; nil where it is taken.
func (s *Snapshots) idle(name string) *tier {
	for _, t := range s.tiers {
		if t.name != name {
			continue
		}
		select {
		case t.busy <- struct{}{}:
			return t
		default:
		}
	}
	return nil
}

// copied returns copies of units: what a trainer exports may be the memory that it trains on. Tiers share them.
func (s *Snapshots) copied(
	copies map[int][]byte, ranges []events.Range, step uint64, export func(int, uint64) ([]byte, error),
) ([]Unit, error) {
	var units []Unit
	for unit := range events.Each(ranges) {
		if copies[unit] == nil {
			data, err := export(unit, step)
			if err != nil {
				return nil, err
			}
			copies[unit] = slices.Clone(data)
		}
		units = append(units, Unit{unit, copies[unit]})
	}
	return units, nil
}

// write writes a part, here and to a neighbour, and removes what it makes obsolete: where all nodes write, parts of this
// node and, if it is the plan's first, parts of those whom the plan does not name.
func (s *Snapshots) write(t *tier, task machine.Capture, to string, units []Unit) {
	began := time.Now()
	id := retention.ID{Step: task.Step, Plan: task.Digest}
	err := t.write(s.context, id, s.owner.Node, units)
	if err == nil && to != "" {
		err = s.owner.Lend(s.context, to, id, units)
	}
	if err != nil {
		s.warn("snapshot not written", t, task.Step, err)
		return
	}
	slog.Info("snapshot written", "node", s.owner.Node, "tier", t.name, "step", task.Step, "units", len(units),
		"seconds", time.Since(began).Seconds())
	sweeps := task.Plan.Nodes[0].Node == s.owner.Node
	err = t.retire(s.context, func(part retention.Part) bool {
		_, lives := task.Plan.Member(part.Node)
		return t.units == 0 || part.Node == s.owner.Node || sweeps && !lives
	})
	if err != nil {
		s.warn("obsolete snapshots not removed", t, task.Step, err)
	}
}

// Keep keeps a neighbour's part of a snapshot in memory, once it is this one's turn to be fetched.
func (s *Snapshots) Keep(ctx context.Context, id retention.ID, node string, fetch func() ([]Unit, error)) error {
	for _, t := range s.tiers {
		if t.name != machine.MemoryTier {
			continue
		}
		s.keeping.Lock()
		defer s.keeping.Unlock()
		units, err := fetch()
		if err == nil {
			err = t.write(ctx, id, node, units)
		}
		if err == nil {
			err = t.retire(ctx, func(retention.Part) bool { return true })
		}
		return err
	}
	return errors.New("snapshots in memory are off")
}

func (s *Snapshots) warn(what string, t *tier, step uint64, err error) {
	if s.context.Err() == nil {
		slog.Warn(what, "node", s.owner.Node, "tier", t.name, "step", step, "error", err)
	}
}

// List returns what can be read of whole parts, the newest first and at most as much as a consent may hold. A tier
// that does not answer counts for nothing.
func (s *Snapshots) List(ctx context.Context) []events.Snapshot {
	readable := map[unitOf][]place{}
	for _, t := range s.tiers {
		parts, err := t.list(ctx)
		if err != nil {
			slog.Warn("snapshot tier not listed", "node", s.owner.Node, "tier", t.name, "error", err)
		}
		for _, part := range parts {
			for _, unit := range part.Units {
				at := unitOf{part.ID, unit}
				if part.Whole && unit < s.owner.Job.Units() {
					readable[at] = append(readable[at], place{at, t, part.Node})
				}
			}
		}
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.readable = readable
	units := map[retention.ID][]int{}
	for at, places := range readable {
		readable[at] = slices.DeleteFunc(places, func(p place) bool { return s.unreadable[p] })
		if len(readable[at]) > 0 {
			units[at.ID] = append(units[at.ID], at.unit)
		}
	}
	return told(units)
}

// told writes snapshots down, the newest first.
func told(units map[retention.ID][]int) []events.Snapshot {
	var list []events.Snapshot
	for id, held := range units {
		list = append(list, events.Snapshot{Step: id.Step, Plan: id.Plan, Units: rangesOf(held)})
	}
	slices.SortFunc(list, func(a, b events.Snapshot) int {
		return retention.Newer(retention.ID{Step: a.Step, Plan: a.Plan}, retention.ID{Step: b.Step, Plan: b.Plan})
	})
	return list[:min(len(list), events.MostSnapshots)]
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

// Read returns a unit that List named, verified, from the nearest tier that has it. What is not what it should be List
// does not name any more.
func (s *Snapshots) Read(ctx context.Context, step uint64, plan string, unit int) ([]byte, error) {
	at := unitOf{retention.ID{Step: step, Plan: plan}, unit}
	s.mutex.Lock()
	places := slices.Clone(s.readable[at])
	s.mutex.Unlock()
	failed := fmt.Errorf("no snapshot of unit %d at step %d can be read", unit, step)
	for _, from := range places {
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
