package snapshots

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"gocloud.dev/blob"
	"gocloud.dev/gcerrors"
	"golang.org/x/sync/errgroup"

	"github.com/reknit/reknit/events"
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
	busy   chan struct{} // one token: a part of this node is being written
	last   retention.ID  // of the part that this node wrote last to its end; who has the token may look
	writes sync.Mutex    // one part at a time, of whomever
}

// Part is what one node writes of a snapshot.
type Part struct {
	retention.ID
	ConsumedSamples uint64 // the position in the data, after the step
	Units           []Unit
}

// Unit is a unit's canonical bytes.
type Unit struct {
	Unit int
	Data []byte
}

// manifest says what a part is. It is written last.
type manifest struct {
	Step uint64 `json:"step"`
	Plan string `json:"plan"`
	Node string `json:"node"`
	// ConsumedSamples is the position in the data, after the step.
	ConsumedSamples uint64      `json:"consumedSamples"`
	Units           []unitEntry `json:"units"`
}

type unitEntry struct {
	Unit   int    `json:"unit"`
	Digest string `json:"digest"`
	Bytes  int64  `json:"bytes"`
}

// atOnce is how many objects of a part travel at a time: enough to hide a store's round trips.
const atOnce = 4

// errUnreadable says that a unit is not what its manifest says, or is not there: to read it again is no use.
var errUnreadable = errors.New("unreadable")

// errNoRoom says that a part does not fit beside the newest one.
var errNoRoom = errors.New("no room")

// known is what the log tells of snapshots: which history counts, and which of the tier's are complete, the newest first.
type known struct {
	history  retention.History
	complete []retention.ID
}

// removeTime is how long what could not be written may take to be removed. What is left then the next write removes.
const removeTime = 10 * time.Second

// write writes a node's part of a snapshot, within the bound on its bytes. Where the store has no room, what may be given
// up goes, the oldest first, until it has. What could not be written is removed.
func (t *tier) write(ctx context.Context, part Part, node string, known known) error {
	t.writes.Lock()
	defer t.writes.Unlock()
	if err := t.makeRoom(ctx, part, node, known); err != nil {
		return err
	}
	for {
		err := t.put(ctx, part, node)
		if err == nil {
			return nil
		}
		removing, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeTime)
		err = errors.Join(err, t.remove(removing, []retention.Part{{ID: part.ID, Node: node}}))
		cancel()
		if !full(err) {
			return err
		}
		own, complete, listing := t.own(ctx, node, known)
		spare := retention.Spare(own, complete, known.history)
		if listing != nil || len(spare) == 0 {
			return errors.Join(fmt.Errorf("%w: nothing is left to give up beside the newest complete snapshot: %w", errNoRoom, err), listing)
		}
		if err := t.remove(ctx, spare[:1]); err != nil {
			return err
		}
	}
}

// full reports whether a store has no room: its disk is full, or its quota is used up.
func full(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }

// put writes the units, and then the manifest.
func (t *tier) put(ctx context.Context, part Part, node string) error {
	written := manifest{Step: part.Step, Plan: part.Plan, Node: node, ConsumedSamples: part.ConsumedSamples,
		Units: make([]unitEntry, len(part.Units))}
	writes, writing := errgroup.WithContext(ctx)
	writes.SetLimit(atOnce)
	for i, unit := range part.Units {
		writes.Go(func() error {
			written.Units[i] = unitEntry{Unit: unit.Unit, Digest: events.Digest(unit.Data), Bytes: int64(len(unit.Data))}
			return t.bucket.WriteAll(writing, unitKey(part.ID, node, unit.Unit), unit.Data, nil)
		})
	}
	if err := writes.Wait(); err != nil {
		return err
	}
	data, err := json.Marshal(written)
	if err != nil {
		return err
	}
	return t.bucket.WriteAll(ctx, folder(part.ID, node)+manifestName, data, nil)
}

// makeRoom removes what nobody needs any more, and what makes room for the part.
func (t *tier) makeRoom(ctx context.Context, part Part, node string, known known) error {
	own, complete, err := t.own(ctx, node, known)
	if err != nil {
		return err
	}
	next := retention.Part{ID: part.ID, Node: node}
	for _, unit := range part.Units {
		next.Bytes += int64(len(unit.Data))
	}
	own = slices.DeleteFunc(own, func(part retention.Part) bool { return part.ID == next.ID && part.Node == node }) // it is overwritten
	retire, ok := retention.Room(own, next, complete, t.bound, known.history)
	if !ok {
		return fmt.Errorf("%w for %d bytes within %d beside the newest complete snapshot", errNoRoom, next.Bytes, t.bound.Bytes)
	}
	return t.remove(ctx, retire)
}

// own returns the parts that are this node's to retire, of a tier that all read those that it wrote, and which snapshots
// are complete. Of a tier that all read the parts tell that themselves; of another one the cluster has to.
func (t *tier) own(ctx context.Context, node string, known known) (own []retention.Part, complete []retention.ID, err error) {
	all, err := t.list(ctx)
	if t.units == 0 {
		return all, retention.Told(all, known.complete), err
	}
	complete = retention.Complete(all, t.units)
	return slices.DeleteFunc(all, func(part retention.Part) bool { return part.Node != node }), complete, err
}

// list returns all parts, those that are still being written among them.
func (t *tier) list(ctx context.Context) ([]retention.Part, error) {
	type owner struct {
		id   retention.ID
		node string
	}
	found := map[owner]*retention.Part{}
	for objects := t.bucket.List(nil); ; {
		object, err := objects.Next(ctx)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
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
	parts := make([]retention.Part, 0, len(found))
	for _, part := range found {
		parts = append(parts, *part)
	}
	return parts, nil
}

// retire removes the obsolete parts of nodes that match, once a part of a snapshot is written. In a tier that all read,
// the parts tell themselves what is complete.
func (t *tier) retire(ctx context.Context, known known, match func(node string) bool) error {
	parts, err := t.list(ctx)
	if err != nil {
		return err
	}
	complete := retention.Told(parts, known.complete)
	if t.units > 0 {
		complete = retention.Complete(parts, t.units)
	}
	obsolete := retention.Obsolete(parts, complete, t.keep, known.history)
	return t.remove(ctx, slices.DeleteFunc(obsolete, func(part retention.Part) bool { return !match(part.Node) }))
}

// remove removes parts with all that lies in them, the manifest of each first: what is left of one that is removed
// half-way is not whole.
func (t *tier) remove(ctx context.Context, parts []retention.Part) error {
	var failed error
	for _, part := range parts {
		within := folder(part.ID, part.Node)
		err := t.delete(ctx, within+manifestName)
		for objects := t.bucket.List(&blob.ListOptions{Prefix: within}); err == nil; {
			var object *blob.ListObject
			if object, err = objects.Next(ctx); err == nil {
				err = t.delete(ctx, object.Key)
			}
		}
		if !errors.Is(err, io.EOF) {
			failed = errors.Join(failed, err)
		}
		if t.lies != "" { // a folder that others still write to stays
			_ = os.Remove(filepath.Join(t.lies, within))
			_ = os.Remove(filepath.Join(t.lies, filepath.Dir(filepath.Clean(within))))
		}
	}
	return failed
}

// delete deletes an object, which may be gone already.
func (t *tier) delete(ctx context.Context, key string) error {
	if err := t.bucket.Delete(ctx, key); err != nil && gcerrors.Code(err) != gcerrors.NotFound {
		return err
	}
	return nil
}

// read returns the bytes of a unit that a node wrote, if they are what its manifest says.
func (t *tier) read(ctx context.Context, id retention.ID, node string, unit int) ([]byte, error) {
	written, err := t.manifest(ctx, id, node)
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(written.Units, func(entry unitEntry) bool { return entry.Unit == unit })
	if at < 0 {
		return nil, fmt.Errorf("%w: manifest of %s at step %d: expected unit %d in it", errUnreadable, node, id.Step, unit)
	}
	data, err := t.object(ctx, unitKey(id, node, unit))
	if err != nil {
		return nil, err
	}
	if got, want := events.Digest(data), written.Units[at].Digest; got != want {
		return nil, fmt.Errorf("%w: unit %d of %s at step %d: expected %s, got %s",
			errUnreadable, unit, node, id.Step, want, got)
	}
	return data, nil
}

// manifest returns that of the part that a node wrote.
func (t *tier) manifest(ctx context.Context, id retention.ID, node string) (written manifest, err error) {
	text, err := t.object(ctx, folder(id, node)+manifestName)
	if err != nil {
		return written, err
	}
	if err := json.Unmarshal(text, &written); err != nil {
		return written, fmt.Errorf("%w: manifest of %s at step %d: %w", errUnreadable, node, id.Step, err)
	}
	return written, nil
}

func (t *tier) object(ctx context.Context, key string) ([]byte, error) {
	data, err := t.bucket.ReadAll(ctx, key)
	if gcerrors.Code(err) == gcerrors.NotFound {
		return nil, fmt.Errorf("%w: %w", errUnreadable, err)
	}
	return data, err
}
