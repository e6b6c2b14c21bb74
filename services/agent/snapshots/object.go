package snapshots

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"gocloud.dev/gcerrors"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/agent/retention"
)

// Anything may lie in a bucket or folder, put there by all who can write to it. So an object's size is looked at before it is read, and a
// manifest counts if its writer signed it, on a secured installation.

// Bytes of a manifest, beside those of each unit that it may name.
const (
	manifestBytes = 4 << 10
	entryBytes    = 256
)

// ErrUndecided says that nobody could tell now whether a manifest counts.
var ErrUndecided = errors.New("it is not known now whether the manifest counts")

// read returns the bytes of a unit that a node wrote, if they are what its manifest says.
func (t *tier) read(ctx context.Context, id retention.ID, node string, unit int) ([]byte, error) {
	written, err := t.manifest(ctx, id, node)
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(written.Units, func(entry UnitEntry) bool { return entry.Unit == unit })
	if at < 0 {
		return nil, fmt.Errorf("%w: manifest of %s at step %d: expected unit %d in it", errUnreadable, node, id.Step, unit)
	}
	entry := written.Units[at]
	if entry.Bytes < 0 || t.most > 0 && entry.Bytes > t.most {
		return nil, fmt.Errorf("%w: unit %d of %s at step %d: expected at most the node's memory, %d bytes, got %d",
			errUnreadable, unit, node, id.Step, t.most, entry.Bytes)
	}
	data, err := t.object(ctx, unitKey(id, node, unit), entry.Bytes)
	if err != nil {
		return nil, err
	}
	if got := events.Digest(data); got != entry.Digest {
		return nil, fmt.Errorf("%w: unit %d of %s at step %d: expected %s, got %s",
			errUnreadable, unit, node, id.Step, entry.Digest, got)
	}
	return data, nil
}

// manifest returns that of the part that a node wrote.
func (t *tier) manifest(ctx context.Context, id retention.ID, node string) (written Manifest, err error) {
	text, err := t.object(ctx, folder(id, node)+manifestName, int64(manifestBytes+t.mostUnits*entryBytes))
	if err != nil {
		return written, err
	}
	if err = json.Unmarshal(text, &written); err == nil {
		err = t.check(ctx, written, id, node)
	}
	switch {
	case errors.Is(err, ErrUndecided):
		return Manifest{}, err
	case err != nil:
		return Manifest{}, fmt.Errorf("%w: manifest of %s at step %d: %w", errUnreadable, node, id.Step, err)
	}
	return written, nil
}

// check reports why a manifest is not that of a part.
func (t *tier) check(ctx context.Context, written Manifest, id retention.ID, node string) error {
	if written.Step != id.Step || written.Plan != id.Plan || written.Node != node {
		return fmt.Errorf("expected that of %s at step %d under %s, got that of %s at step %d under %s",
			node, id.Step, id.Plan, written.Node, written.Step, written.Plan)
	}
	if t.verify == nil {
		return nil
	}
	return t.verify(ctx, written, t.signed(written))
}

// signed is what is signed of a manifest: all but the signature, and whose snapshots they are.
func (t *tier) signed(written Manifest) []byte {
	written.Signature = ""
	text, err := json.Marshal(written)
	if err != nil {
		panic(err) // it has numbers and texts
	}
	return append([]byte(t.prefix), text...)
}

// object returns an object of so many bytes at most.
func (t *tier) object(ctx context.Context, key string, most int64) ([]byte, error) {
	reader, err := t.bucket.NewReader(ctx, key, nil)
	if gcerrors.Code(err) == gcerrors.NotFound {
		return nil, fmt.Errorf("%w: %w", errUnreadable, err)
	} else if err != nil {
		return nil, err
	}
	defer func() { _ = reader.Close() }()
	if size := reader.Size(); size > most {
		return nil, fmt.Errorf("%w: %s: expected at most %d bytes, got %d", errUnreadable, key, most, size)
	}
	data := make([]byte, reader.Size())
	if _, err := io.ReadFull(reader, data); errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) && len(data) > 0 {
		return nil, fmt.Errorf("%w: %s: expected %d bytes: %w", errUnreadable, key, len(data), err)
	} else if err != nil {
		return nil, err
	}
	return data, nil
}
