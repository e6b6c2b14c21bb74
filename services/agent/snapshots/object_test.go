package snapshots

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"gocloud.dev/blob/fileblob"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/agent/retention"
)

// shelf is a folder with one part, of one unit, as a node wrote it.
type shelf struct {
	*testing.T
	tier    *tier
	id      retention.ID
	folder  string
	history retention.History
}

func newShelf(t *testing.T) *shelf {
	t.Helper()
	folder := t.TempDir()
	bucket, err := fileblob.OpenBucket(folder, &fileblob.Options{NoTempDir: true, Metadata: fileblob.MetadataDontWrite})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { bucket.Close() })
	id := retention.ID{Step: 7, Plan: events.Digest([]byte("plan"))}
	s := &shelf{t, &tier{bucket: bucket, most: 1 << 20, mostUnits: 1, lies: folder}, id, folder,
		retention.History{Plan: id.Plan, Logged: time.Unix(7, 0)}}
	s.tier.sign = func(text []byte) string { return "signed " + events.Digest(text) }
	s.tier.verify = func(_ context.Context, written Manifest, text []byte) error {
		if written.Signature != s.tier.sign(text) {
			return errors.New("signature: expected another")
		}
		return nil
	}
	part := Part{ID: s.id, ConsumedSamples: 70, Units: []Unit{{Unit: 0, Data: content(0, 7)}}}
	if err := s.tier.put(t.Context(), part, "n1", s.history); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *shelf) at(name string) string { return filepath.Join(s.folder, folder(s.id, "n1"), name) }

func TestNothingIsReadThatIsLargerThanItMayBe(t *testing.T) {
	for _, name := range []string{manifestName, "unit-0"} {
		s := newShelf(t)
		if err := os.Truncate(s.at(name), 64<<20); err != nil {
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := s.tier.read(t.Context(), s.id, "n1", 0)
		runtime.ReadMemStats(&after)
		if !errors.Is(err, errUnreadable) || !strings.Contains(err.Error(), "got 67108864") {
			t.Errorf("%s of 64 MiB: %v", name, err)
		}
		if took := after.TotalAlloc - before.TotalAlloc; took > 8<<20 {
			t.Errorf("%s of 64 MiB takes %d bytes of memory", name, took)
		}
	}
}

func TestAManifestCountsAsItsWriterSignedIt(t *testing.T) {
	for name, change := range map[string]func(*Manifest){
		"as it is": func(*Manifest) {}, "step": func(m *Manifest) { m.Step++ }, "plan": func(m *Manifest) { m.Plan = events.Digest(nil) },
		"node": func(m *Manifest) { m.Node = "n2" }, "samples": func(m *Manifest) { m.ConsumedSamples = 0 },
		"digest": func(m *Manifest) { m.Units[0].Digest = events.Digest(nil) }, "no signature": func(m *Manifest) { m.Signature = "" },
	} {
		s := newShelf(t)
		var written Manifest
		text, err := os.ReadFile(s.at(manifestName))
		if err == nil {
			err = json.Unmarshal(text, &written)
		}
		if err != nil {
			t.Fatal(err)
		}
		change(&written)
		if text, err = json.Marshal(written); err == nil {
			err = os.WriteFile(s.at(manifestName), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		_, err = s.tier.read(t.Context(), s.id, "n1", 0)
		if counts := err == nil; counts != (name == "as it is") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestNobodyElseReadsWhatLiesInTheFolder(t *testing.T) {
	s := newShelf(t)
	mark := filepath.Join("..", "..", markOf(retention.Begun{Plan: s.history.Plan, Logged: s.history.Logged}))
	for _, name := range []string{manifestName, "unit-0", mark} {
		about, err := os.Stat(s.at(name))
		if err != nil || about.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, about.Mode(), err)
		}
	}
}
