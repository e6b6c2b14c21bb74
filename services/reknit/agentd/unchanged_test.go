package agentd

import (
	"slices"
	"testing"
	"time"
)

func TestAnUnchangedScriptThatRanForMinutesBeforeItFailedHasAllItsRestartsAgain(t *testing.T) {
	for _, row := range []struct {
		ran      time.Duration
		restarts int
	}{{soundAfter / 2, 0}, {soundAfter + time.Second, 3}} {
		u := &unchanged{standIn: &standIn{broken: make(chan failure, 1)}, most: 3}
		var err error
		if u.child, err = begin([]string{"false"}, nil, &input{}); err != nil {
			t.Fatal(err)
		}
		u.began = time.Now().Add(-row.ran)
		if err := u.turn(); err != nil || u.child != nil {
			t.Fatalf("%v, it runs: %v", err, u.child != nil)
		}
		if u.restarts != row.restarts || !u.failed {
			t.Errorf("behind a failure after %v %d restarts are left, expected %d", row.ran, u.restarts, row.restarts)
		}
	}
}

// They had no effect, and nobody said so.
func TestSettingsOfSnapshotsThatAScriptUnchangedDoesNotHaveAreNamed(t *testing.T) {
	set := []string{"PATH=/bin", "REKNIT_SNAPSHOT_FOLDER=/snapshots", "REKNIT_SNAPSHOT_BUCKET=", "REKNIT_SNAPSHOT_DISK_EVERY=10"}
	if named := snapshotSettings(set); !slices.Equal(named, []string{"REKNIT_SNAPSHOT_DISK_EVERY", "REKNIT_SNAPSHOT_FOLDER"}) {
		t.Errorf("it names %v", named)
	}
}
