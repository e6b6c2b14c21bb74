package snapshots

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/agent/machine"
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
