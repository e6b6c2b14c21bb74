package snapshots

import (
	"bytes"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/agent/machine"
	"github.com/reknit/reknit/services/agent/retention"
)

func TestSnapshotsOfAnotherJobAreNotRead(t *testing.T) {
	s := newScene(t)
	a := s.open("a")
	s.captures(a, machine.RemoteTier, 8, 0, 3)
	other := events.Job{Digest: events.Digest([]byte("other")), Layers: make([]events.LayerProfile, 3)}
	stranger, err := Open(t.Context(), Settings{Bucket: "file://" + s.shared, RemoteEvery: 1, Keep: 1},
		Owner{Cluster: "c", Node: "x", Job: other})
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close()
	s.expectReadable(stranger)
}

func TestAJobThatFindsAnothersSnapshotsSaysSo(t *testing.T) {
	s := newScene(t)
	s.captures(s.open("a"), machine.DiskTier, 8, 0, 3)
	var told bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&told, nil)))
	defer slog.SetDefault(before)
	says := func(job string) bool {
		told.Reset()
		opened, err := Open(t.Context(), Settings{Folder: s.own["a"], DiskEvery: 1, Keep: 1},
			Owner{Cluster: "c", Node: "a", Job: events.Job{Digest: events.Digest([]byte(job)), Layers: make([]events.LayerProfile, 3)}})
		if err != nil {
			t.Fatal(err)
		}
		defer opened.Close()
		return strings.Contains(told.String(), "of another job or cluster")
	}
	if says("job") || !says("longer") {
		t.Errorf("expected a word for another job, and none for the same: %s", &told)
	}
}

// The README has several agents of one machine share a folder. Each took what another was just writing for the rest of a write that ended.
func TestNodesThatShareAFolderRemoveNothingOfEachOtherWhileBothHaveAPlace(t *testing.T) {
	s := newScene(t)
	share := func(settings *Settings) { settings.Folder, settings.MaxBytes = s.shared, 5000 }
	a, b := s.open("a", share), s.open("b", share)
	partOf := func(node string, step uint64) string {
		return filepath.Join(s.shared, a.prefix(), folder(retention.ID{Step: step, Plan: s.digest()}, node))
	}
	for step := uint64(8); step <= 24; step += 8 {
		s.captures(b, machine.DiskTier, step, 2, 3)
	}
	if err := os.Remove(filepath.Join(partOf("b", 24), manifestName)); err != nil { // b has not written it to its end
		t.Fatal(err)
	}
	for step := uint64(8); step <= 40; step += 8 {
		s.captures(a, machine.DiskTier, step, 0, 2)
	}
	for step := uint64(8); step <= 24; step += 8 {
		if files, err := os.ReadDir(partOf("b", step)); err != nil || len(files) == 0 {
			t.Errorf("of what b wrote at step %d is left: %v, %v", step, files, err)
		}
	}
	s.plan.Nodes = s.plan.Nodes[:1]
	s.tells(32)
	s.tells(40)
	s.captures(a, machine.DiskTier, 48, 0, 2)
	if files, err := os.ReadDir(partOf("b", 8)); err == nil && len(files) > 0 {
		t.Errorf("of what b wrote, which has no place any more, is left: %v", files)
	}
}
