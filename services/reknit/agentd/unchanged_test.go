package agentd

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/reknit/reknit/events"
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

// A script that saved upon the signal was killed after a second.
func TestASecondSignalGivesAScriptUnchangedTimeToSaveAndAThirdEndsIt(t *testing.T) {
	for name, row := range map[string]struct {
		signals []os.Signal // while it saves
		status  int
	}{"it is let be": {nil, 7}, "a third signal comes": {[]os.Signal{syscall.SIGINT}, 128 + int(syscall.SIGKILL)}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ready := filepath.Join(t.TempDir(), "ready")
			signals := make(chan os.Signal, 4)
			u := &unchanged{signals: signals, deadline: time.After(time.Hour), place: place{crew: make([]events.Member, 2)}}
			runtime.LockOSThread()
			var err error
			script := `trap 'sleep 2; exit 7' TERM; touch "$1"; while :; do sleep 0.05; done`
			if u.child, err = begin([]string{"sh", "-c", script, "sh", ready}, nil, &input{}); err != nil {
				t.Fatal(err)
			}
			for _, err := os.Stat(ready); err != nil; _, err = os.Stat(ready) {
				time.Sleep(time.Millisecond)
			}
			if err := u.ask(syscall.SIGINT); !errors.Is(err, errDone) {
				t.Fatal(err)
			}
			for _, signal := range row.signals {
				signals <- signal
			}
			_ = u.halt()
			if status := u.exit.status(); status != row.status {
				t.Errorf("it ended with status %d, expected %d", status, row.status)
			}
		})
	}
}

// They had no effect, and nobody said so.
func TestSettingsOfSnapshotsThatAScriptUnchangedDoesNotHaveAreNamed(t *testing.T) {
	set := []string{"PATH=/bin", "REKNIT_SNAPSHOT_FOLDER=/snapshots", "REKNIT_SNAPSHOT_BUCKET=", "REKNIT_SNAPSHOT_DISK_EVERY=10"}
	if named := snapshotSettings(set); !slices.Equal(named, []string{"REKNIT_SNAPSHOT_DISK_EVERY", "REKNIT_SNAPSHOT_FOLDER"}) {
		t.Errorf("it names %v", named)
	}
}
