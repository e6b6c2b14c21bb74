// Package snapshots keeps what a node trained some steps ago, should all who hold a unit of it die at once.
//
// There are tiers, the nearest first: memory, a folder on the node's own disk, and a bucket that all nodes read. A node
// keeps all that it trains in its memory and in that of a neighbour, and in its folder; to the bucket one holder of
// each unit writes it. Training waits while bytes are copied, never while they are written.
package snapshots

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"gocloud.dev/blob"
	"gocloud.dev/blob/fileblob"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/agent/machine"
	"github.com/reknit/reknit/services/agent/retention"
)

// Settings say where snapshots go and how often. A process that wants to open the bucket of a provider imports its
// driver, as gocloud.dev/blob/s3blob.
type Settings struct {
	MemoryEvery uint64 `env:"REKNIT_SNAPSHOT_MEMORY_EVERY" envDefault:"0" unit:"steps" reason:"off by default: each snapshot that is kept takes room for a node's state twice, in its own memory and in a neighbour's"`
	Folder      string `env:"REKNIT_SNAPSHOT_FOLDER" unit:"path" reason:"off by default; a folder on the node's own disk, for snapshots that outlive its process"`
	DiskEvery   uint64 `env:"REKNIT_SNAPSHOT_DISK_EVERY" envDefault:"100" unit:"steps" reason:"that are lost at most when all holders of a layer die at once; 0: off"`
	Bucket      string `env:"REKNIT_SNAPSHOT_BUCKET" unit:"URL" reason:"off by default; a bucket that all nodes read, as s3://name?region=eu-central-1 or file:///shared/folder"`
	RemoteEvery uint64 `env:"REKNIT_SNAPSHOT_REMOTE_EVERY" envDefault:"1000" unit:"steps" reason:"a store far away takes less often what costs more to write; 0: off"`
	Keep        int    `env:"REKNIT_SNAPSHOT_KEEP" envDefault:"2" unit:"snapshots" is:"min=1" reason:"complete ones in each tier: one more than needed, should one be unreadable"`
	MaxBytes    int64  `env:"REKNIT_SNAPSHOT_BYTES" envDefault:"68719476736" unit:"bytes" is:"min=1" reason:"of this node's parts in each tier; a part beyond is not written"`
}

// Owner is whose snapshots they are. Those of another cluster or job are never read.
type Owner struct {
	Cluster string
	Node    string
	Job     events.Job
	// MemoryBytes bounds what is kept in memory.
	MemoryBytes int64
	// Memory keeps what is kept in memory for the node's next session; nil: nothing.
	Memory *Memory
	// Lend has a neighbour keep a part of a snapshot in its memory.
	Lend func(ctx context.Context, to string, part Part) error
	// Sign returns the signature of a manifest that this node writes, and Verify reports why one is not by the node that it names, or
	// why that node held no such thing. Both are nil where nobody signs.
	Sign   func(text []byte) string
	Verify func(ctx context.Context, written Manifest, text []byte) error
	// Written hears that this node's part of a snapshot is written to its end. nil: nobody wants to know.
	Written func(tier string, id retention.ID, units []events.Range)
	// Unwritten hears that this node's part of a snapshot was not written, what is found to be wrong, and the error. nil: nobody wants to
	// know.
	Unwritten func(tier string, id retention.ID, units []events.Range, finding string, err error)
	// Withdraw asks the cluster to count this node's part of a snapshot no more, and waits for what comes of it. nil: nobody counts.
	Withdraw func(ctx context.Context, tier string, id retention.ID, units []events.Range) machine.Fate
}

// Snapshots is a node's tiers. Its methods may be called by several goroutines.
type Snapshots struct {
	owner   Owner
	tiers   []*tier // the nearest first
	memory  *Memory // nil where nothing is kept there
	context context.Context
	cancel  context.CancelFunc
	writing sync.WaitGroup
	keeping chan struct{} // one token: a neighbour's part is being fetched

	mutex      sync.Mutex
	newest     retention.History         // by the last Capture
	complete   map[string][]retention.ID // by tier, as the cluster said by then, the newest first
	plan       *events.Plan              // likewise
	readable   map[unitOf][]place        // by the last List, the nearest first
	unreadable map[place]bool            // units of places that are not what they should be
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

// On reports whether there is any tier.
func (s Settings) On() bool {
	return s.MemoryEvery > 0 || s.Folder != "" && s.DiskEvery > 0 || s.Bucket != "" && s.RemoteEvery > 0
}

// Validate names the setting that is not as expected.
func (s Settings) Validate() error {
	if s.On() && s.Keep < 1 {
		return fmt.Errorf("REKNIT_SNAPSHOT_KEEP: expected at least 1, got %d", s.Keep)
	}
	if s.Bucket == "" {
		return nil
	}
	address, err := url.Parse(s.Bucket)
	if err != nil || !blob.DefaultURLMux().ValidBucketScheme(address.Scheme) {
		return fmt.Errorf("REKNIT_SNAPSHOT_BUCKET: expected a URL of %s, such as file:///shared/folder, got %.80q",
			strings.Join(blob.DefaultURLMux().BucketSchemes(), " or "), s.Bucket)
	}
	return nil
}

// MemoryCopies is how many copies of what a node trains it keeps in memory: of each snapshot and of the one that is being
// written its own part, and about as much of a neighbour.
func (s Settings) MemoryCopies() int {
	if s.MemoryEvery == 0 {
		return 0
	}
	return 2 * (s.Keep + 1)
}

// Folder returns where this node writes snapshots on its own disk; empty: it writes none there.
func (s *Snapshots) Folder() string {
	for _, t := range s.tiers {
		if t.folder != "" {
			return t.folder
		}
	}
	return ""
}

// Open opens the tiers that are configured, which may be none. The end of ctx ends what is being written.
func Open(ctx context.Context, settings Settings, owner Owner) (*Snapshots, error) {
	s := &Snapshots{
		owner: owner, keeping: make(chan struct{}, 1),
		readable: map[unitOf][]place{}, unreadable: map[place]bool{},
	}
	s.context, s.cancel = context.WithCancel(ctx)
	if err := settings.Validate(); err != nil {
		return nil, err
	}
	if settings.MemoryEvery > 0 {
		bounded := settings
		bounded.MaxBytes = min(settings.MaxBytes, owner.MemoryBytes)
		s.memory = cmp.Or(owner.Memory, new(Memory))
		s.add(bounded, machine.MemoryTier, settings.MemoryEvery, s.memory.open(owner.Node, s.prefix()), 0)
	}
	if settings.Folder != "" && settings.DiskEvery > 0 {
		bucket, err := fileblob.OpenBucket(settings.Folder, &fileblob.Options{
			CreateDir: true, DirFileMode: 0o700, NoTempDir: true, Metadata: fileblob.MetadataDontWrite,
		})
		if err != nil {
			return nil, fmt.Errorf("REKNIT_SNAPSHOT_FOLDER: %w", err)
		}
		s.add(settings, machine.DiskTier, settings.DiskEvery, blob.PrefixedBucket(bucket, s.prefix()), 0)
		disk := s.tiers[len(s.tiers)-1]
		disk.folder, disk.lies = settings.Folder, filepath.Join(settings.Folder, s.prefix())
		if whole, err := filepath.Abs(settings.Folder); err == nil { // people are told of it, who stand elsewhere
			disk.folder = whole
		}
		s.tellOthers(settings.Folder)
	}
	if settings.Bucket != "" && settings.RemoteEvery > 0 {
		bucket, err := blob.OpenBucket(ctx, settings.Bucket)
		if err != nil {
			s.Close()
			return nil, fmt.Errorf("REKNIT_SNAPSHOT_BUCKET: %w", err)
		}
		s.add(settings, machine.RemoteTier, settings.RemoteEvery, blob.PrefixedBucket(bucket, s.prefix()), owner.Job.Units())
	}
	return s, nil
}

func (s *Snapshots) add(settings Settings, name string, every uint64, bucket *blob.Bucket, units int) {
	bound := retention.Bound{Bytes: settings.MaxBytes, Parts: settings.Keep + mostOpen}
	if name == machine.MemoryTier {
		bound.Parts = settings.Keep + 1 // MemoryCopies promises no more
	}
	s.tiers = append(s.tiers, &tier{
		name: name, every: every, bucket: bucket, units: units,
		keep: settings.Keep, bound: bound, busy: make(chan struct{}, 1),
		withdraw: func(ctx context.Context, part retention.Part) machine.Fate { return s.withdraw(ctx, name, part) },
		node:     s.owner.Node, prefix: s.prefix(), most: s.owner.MemoryBytes, mostUnits: s.owner.Job.Units(),
	})
	if name != machine.MemoryTier { // where nobody else writes, and neighbours' parts are looked at as they come
		t := s.tiers[len(s.tiers)-1]
		t.sign, t.verify = s.owner.Sign, s.owner.Verify
	}
}

// withdraw asks that this node's part of a snapshot count no more. A neighbour's counts by what that node keeps itself.
func (s *Snapshots) withdraw(ctx context.Context, tier string, part retention.Part) machine.Fate {
	if s.owner.Withdraw == nil || part.Node != s.owner.Node {
		return machine.Withdrawn
	}
	return s.owner.Withdraw(ctx, tier, part.ID, rangesOf(part.Units))
}

// mostOpen is how many parts beside those that are kept may wait for others to write theirs.
const mostOpen = 8

// tellOthers says that the folder has snapshots of other jobs or clusters, where it has none of this one: somebody who trains on
// with other settings may expect to go on from them. They stay, and are not read.
func (s *Snapshots) tellOthers(root string) {
	const most = 8 // that are named
	folders, err := filepath.Glob(filepath.Join(root, "*", "*"))
	own := filepath.Join(root, s.prefix())
	if err != nil || len(folders) == 0 || slices.Contains(folders, own) {
		return
	}
	slog.Warn("the snapshots in this folder are of another job or cluster: they are kept, and this job begins without them; a job is another "+
		"where its model, settings or number of steps are", "node", s.owner.Node, "expected", own, "there", folders[:min(most, len(folders))])
}

// prefix is that of all objects of the cluster and job.
func (s *Snapshots) prefix() string {
	return s.owner.Cluster + "/" + strings.TrimPrefix(s.owner.Job.Digest, digestPrefix) + "/"
}

// Tiers tells which tiers there are, and how often each takes a snapshot.
func (s *Snapshots) Tiers() []machine.Tier {
	var tiers []machine.Tier
	for _, t := range s.tiers {
		tiers = append(tiers, machine.Tier{Name: t.name, Every: t.every})
	}
	return tiers
}

// Forget drops what the node keeps in memory: it has left, and does not come back for it.
func (s *Snapshots) Forget() {
	if s.memory != nil {
		s.memory.forget(s.owner.Node)
	}
}

// Finish waits until what is being written is, or for so long.
func (s *Snapshots) Finish(most time.Duration) {
	written := make(chan struct{})
	go func() {
		s.writing.Wait()
		close(written)
	}()
	select {
	case <-written:
	case <-time.After(most):
		slog.Warn("a snapshot is not written to its end: another tier has it", "node", s.owner.Node, "waited", most.String())
	}
}

// Close ends what is being written: such a part stays without a manifest. Snapshots in memory stay for the next session
// if this one has taken a snapshot.
func (s *Snapshots) Close() {
	s.cancel()
	s.writing.Wait()
	for _, t := range s.tiers {
		if t.name == machine.MemoryTier {
			s.memory.rest(t.bucket)
			continue
		}
		if err := t.bucket.Close(); err != nil {
			slog.Warn("snapshot tier not closed", "node", s.owner.Node, "tier", t.name, "error", err)
		}
	}
}
