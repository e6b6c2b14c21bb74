package snapshots

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"testing"

	"gocloud.dev/blob/memblob"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/agent/retention"
)

func FuzzKey(f *testing.F) {
	id := retention.ID{Step: 7, Plan: events.Digest([]byte("plan"))}
	f.Add(unitKey(id, "n1", 3))
	f.Add(folder(id, "n1") + manifestName)
	f.Add("7-x/n1/unit-3")
	f.Fuzz(func(t *testing.T, key string) {
		id, node, unit, ok := parseKey(key)
		if !ok {
			return
		}
		if within := folder(id, node); len(key) < len(within) || key[:len(within)] != within {
			t.Errorf("%q is said to lie in %q", key, within)
		}
		if unit == isManifest && key != folder(id, node)+manifestName {
			t.Errorf("%q is said to be a manifest", key)
		}
	})
}

// Whatever a manifest says, a unit is read as it was written or not at all.
func FuzzPart(f *testing.F) {
	data := []byte("unit")
	whole, err := json.Marshal(Manifest{
		Step: 7, Plan: "sha256:p", Node: "n1", Units: []UnitEntry{{Unit: 3, Digest: events.Digest(data), Bytes: int64(len(data))}},
	})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole, data)
	f.Add(bytes.Replace(whole, []byte(`"unit":3`), []byte(`"unit":-1`), 1), data)
	f.Fuzz(func(t *testing.T, text, stored []byte) {
		bucket := memblob.OpenBucket(nil)
		defer bucket.Close()
		ctx, id, tier := context.Background(), retention.ID{Step: 7, Plan: "sha256:p"}, &tier{bucket: bucket}
		for key, data := range map[string][]byte{folder(id, "n1") + manifestName: text, unitKey(id, "n1", 3): stored} {
			if err := bucket.WriteAll(ctx, key, data, nil); err != nil {
				t.Fatal(err)
			}
		}
		read, err := tier.read(ctx, id, "n1", 3)
		if err != nil {
			if !errors.Is(err, errUnreadable) {
				t.Errorf("%v: expected %v, for it is no use to read it again", err, errUnreadable)
			}
			return
		}
		written, err := tier.manifest(ctx, id, "n1")
		if err != nil || !bytes.Equal(read, stored) {
			t.Fatalf("read %x of %x, %v", read, stored, err)
		}
		again, err := json.Marshal(written)
		if err != nil {
			t.Fatal(err)
		}
		if err := bucket.WriteAll(ctx, folder(id, "n1")+manifestName, again, nil); err != nil {
			t.Fatal(err)
		}
		if back, err := tier.read(ctx, id, "n1", 3); err != nil || !bytes.Equal(back, stored) {
			t.Errorf("behind %s: %x, %v", again, back, err)
		}
	})
}
