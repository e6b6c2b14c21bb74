package snapshots

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"gocloud.dev/blob"
	"gocloud.dev/gcerrors"
	"golang.org/x/sync/errgroup"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/agent/machine"
	"github.com/reknit/reknit/services/agent/retention"
)

// tier is one place that holds snapshots. A part is its units and then its manifest, so that a part which was not
// written to its end has none.
type tier struct {
	name   string
	every  uint64 // steps
	bucket *blob.Bucket
	units  int // that a complete snapshot has; zero where this node reads its own parts only
	keep   int // complete snapshots
	bound  retention.Bound
	lies   string        // the folder that it is; empty: it is none
	folder string        // that was set, in which it lies; likewise
	busy   chan struct{} // one token: a part of this node is being written
	last   retention.ID  // of the part that this node wrote last to its end; who has the token may look
	writes sync.Mutex    // one part at a time, of whomever
	marked string        // digest of the plan whose mark is there; who writes may look
	// withdraw asks that a part count no more, and tells what came of it.
	withdraw func(ctx context.Context, part retention.Part) machine.Fate

	node      string // of this process
	prefix    string // of all that is in the bucket: cluster and job
	most      int64  // bytes of a unit; zero: any number
	mostUnits int
	sign      func(text []byte) string // nil: nobody signs
	verify    func(ctx context.Context, written Manifest, text []byte) error
}

// lying is what lies in a tier.
type lying struct {
	parts []retention.Part
	begun []retention.Begun // plans under which they were written
}

// Part is what one node writes of a snapshot.
type Part struct {
	retention.ID
	ConsumedSamples uint64 // the position in the data, after the step
	Units           []Unit
}

func (p Part) bytes() (bytes int64) {
	for _, unit := range p.Units {
		bytes += int64(len(unit.Data))
	}
	return bytes
}

// Unit is a unit's canonical bytes.
type Unit struct {
	Unit int
	Data []byte
}

// Manifest says what a part is. It is written last.
type Manifest struct {
	Step uint64 `json:"step"`
	Plan string `json:"plan"`
	Node string `json:"node"`
	// ConsumedSamples is the position in the data, after the step.
	ConsumedSamples uint64      `json:"consumedSamples"`
	Units           []UnitEntry `json:"units"`
	Signature       string      `json:"signature,omitempty"` // the node's, of all else; empty where nobody signs
}

// UnitEntry is what a manifest says of a unit.
type UnitEntry struct {
	Unit   int    `json:"unit"`
	Digest string `json:"digest"`
	Bytes  int64  `json:"bytes"`
}

// atOnce is how many objects of a part travel at a time: enough to hide a store's round trips.
const atOnce = 4

// errUnreadable says that a unit is not what its manifest says, or is not there: to read it again is no use.
var errUnreadable = errors.New("unreadable")

// errOutdone says that nothing of other plans may be removed: another process, or a node of a newer plan, writes here since.
var errOutdone = errors.New("parts are written here under a plan that the log took later, and this process may remove none of others: it " +
	"was cut off, or the clock of the NATS server was set back")

// known is what the log tells of snapshots: which history counts, and which of the tier's are complete, the newest first.
type known struct {
	history  retention.History
	complete []retention.ID
	plan     *events.Plan // in force; nil: nobody knows
}

// isOthers reports whether what a node wrote is left to it by another: all that is in the bucket, and in a folder, which agents of one
// machine may share, what a node with a place wrote. In memory is what neighbours have kept here.
func (t *tier) isOthers(of, node string, known known) bool {
	hasPlace := false
	if known.plan != nil {
		_, hasPlace = known.plan.Member(of)
	}
	return of != node && t.name != machine.MemoryTier && (t.units > 0 || hasPlace)
}

// mark writes down that parts are written under a plan, once.
func (t *tier) mark(ctx context.Context, history retention.History) error {
	if history.Logged.IsZero() || t.marked == history.Plan {
		return nil
	}
	if err := t.writeFile(ctx, markOf(retention.Begun{Plan: history.Plan, Logged: history.Logged}), nil); err != nil {
		return err
	}
	t.marked = history.Plan
	return nil
}

// put writes the mark of the plan, the units, and then the manifest.
func (t *tier) put(ctx context.Context, part Part, node string, history retention.History) error {
	if err := t.mark(ctx, history); err != nil {
		return err
	}
	written := Manifest{Step: part.Step, Plan: part.Plan, Node: node, ConsumedSamples: part.ConsumedSamples,
		Units: make([]UnitEntry, len(part.Units))}
	writes, writing := errgroup.WithContext(ctx)
	writes.SetLimit(atOnce)
	for i, unit := range part.Units {
		writes.Go(func() error {
			written.Units[i] = UnitEntry{Unit: unit.Unit, Digest: events.Digest(unit.Data), Bytes: int64(len(unit.Data))}
			return t.writeFile(writing, unitKey(part.ID, node, unit.Unit), unit.Data)
		})
	}
	if err := writes.Wait(); err != nil {
		return err
	}
	if t.sign != nil {
		written.Signature = t.sign(t.signed(written))
	}
	data, err := json.Marshal(written)
	if err != nil {
		return err
	}
	return t.writeFile(ctx, folder(part.ID, node)+manifestName, data)
}

// writeFile writes an object. In a folder nobody else reads it, if the file system knows who that is.
func (t *tier) writeFile(ctx context.Context, key string, data []byte) error {
	err := t.bucket.WriteAll(ctx, key, data, nil)
	if err == nil && t.lies != "" {
		_ = os.Chmod(filepath.Join(t.lies, key), 0o600)
	}
	return err
}

// list returns all parts, those that are still being written among them, and then the marks of plans: one that is written meanwhile is of
// parts that are not listed yet.
func (t *tier) list(ctx context.Context) (lies lying, err error) {
	type owner struct {
		id   retention.ID
		node string
	}
	found := map[owner]*retention.Part{}
	objects, err := t.objects(ctx, "")
	if err != nil {
		return lying{}, err
	}
	for _, object := range objects {
		if begun, ok := parseMark(object.Key); ok {
			lies.begun = append(lies.begun, begun)
			continue
		}
		id, node, unit, ok := parseKey(object.Key)
		if !ok {
			continue
		}
		part := found[owner{id, node}]
		if part == nil {
			part = &retention.Part{ID: id, Node: node}
			found[owner{id, node}] = part
		}
		part.Bytes += object.Size
		switch unit {
		case isManifest:
			part.Whole = true
		case isLeftOver:
		default:
			part.Units = append(part.Units, unit)
		}
	}
	for _, part := range found {
		lies.parts = append(lies.parts, *part)
	}
	return lies, nil
}

// mostListings bounds how often a folder is listed anew of which others remove something meanwhile.
const mostListings = 8

// objects lists what lies below a prefix, in order. The listing of a folder fails where another process removes a file in the middle of it:
// then it begins anew.
func (t *tier) objects(ctx context.Context, prefix string) (all []*blob.ListObject, err error) {
	for range mostListings {
		all = nil
		for listed := t.bucket.List(&blob.ListOptions{Prefix: prefix}); ; {
			var object *blob.ListObject
			if object, err = listed.Next(ctx); err != nil {
				break
			}
			all = append(all, object)
		}
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if gcerrors.Code(err) != gcerrors.NotFound {
			break
		}
	}
	return nil, err
}

// retire removes the obsolete parts of nodes that match, once a part of a snapshot is written.
func (t *tier) retire(ctx context.Context, known known, match func(node string) bool) error {
	lies, err := t.list(ctx)
	if err != nil {
		return err
	}
	obsolete := retention.Obsolete(lies.parts, t.complete(lies, known), t.keep, known.history)
	obsolete = slices.DeleteFunc(obsolete, func(part retention.Part) bool { return !match(part.Node) })
	if len(obsolete) > 0 && known.history.IsOutdone(lies.begun) {
		return errors.Join(errOutdone, t.unmark(ctx, lies.begun, known.history))
	}
	return errors.Join(t.remove(ctx, obsolete), t.unmark(ctx, lies.begun, known.history))
}

// unmark removes the marks of the plans before.
func (t *tier) unmark(ctx context.Context, begun []retention.Begun, history retention.History) error {
	var failed error
	for _, b := range begun {
		if b.Plan != history.Plan && (b.Plan == history.Parent || b.Logged.Before(history.Logged)) {
			failed = errors.Join(failed, t.delete(ctx, markOf(b)))
		}
	}
	return failed
}

// remove removes parts with all that lies in them, the manifest of each first: what is left of one that is removed
// half-way is not whole.
func (t *tier) remove(ctx context.Context, parts []retention.Part) error {
	var failed error
	for _, part := range parts {
		within := folder(part.ID, part.Node)
		err := t.delete(ctx, within+manifestName)
		if err == nil {
			err = t.empty(ctx, within)
		}
		failed = errors.Join(failed, err)
		if t.lies != "" { // a folder that others still write to stays
			_ = os.Remove(filepath.Join(t.lies, within))
			_ = os.Remove(filepath.Join(t.lies, filepath.Dir(filepath.Clean(within))))
		}
	}
	return failed
}

// empty deletes all that lies below a prefix.
func (t *tier) empty(ctx context.Context, prefix string) error {
	objects, err := t.objects(ctx, prefix)
	for _, object := range objects {
		if err = t.delete(ctx, object.Key); err != nil {
			break
		}
	}
	return err
}

// delete deletes an object, which may be gone already.
func (t *tier) delete(ctx context.Context, key string) error {
	if err := t.bucket.Delete(ctx, key); err != nil && gcerrors.Code(err) != gcerrors.NotFound {
		return err
	}
	return nil
}
