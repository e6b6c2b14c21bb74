package snapshots

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/reknit/reknit/events"
	"github.com/reknit/reknit/services/agent/retention"
)

// Nobody heard that the disk was full before the first snapshot was due, a hundred steps after the start.
func TestAFolderThatTakesNoSnapshotIsToldBeforeTheFirstOneIsDue(t *testing.T) {
	for name, of := range map[string]struct {
		bytes, bound int64
		spoil        bool
		says         string
	}{
		"all is well":      {bytes: 1000, bound: 1 << 20},
		"the disk is full": {bytes: 1 << 58, bound: 1 << 62, says: "full: FOLDER: no space left on device, and the part of this node needs 8"},
		"the bound":        {bytes: 1000, bound: 2999, says: "full: no room for 3000 bytes within REKNIT_SNAPSHOT_BYTES, 2999"},
		"no folder":        {bytes: 1000, bound: 1 << 20, spoil: true, says: "other: FOLDER: not a directory"},
	} {
		t.Run(name, func(t *testing.T) {
			s, told := newScene(t), make(chan string, 1)
			node := s.open("a", func(settings *Settings) { settings.MaxBytes = of.bound })
			for layer := range node.owner.Job.Layers {
				node.owner.Job.Layers[layer].ParameterBytes = of.bytes
			}
			node.owner.Unwritten = func(_ string, id retention.ID, units []events.Range, finding string, err error) {
				told <- fmt.Sprintf("%s: %v", finding, err)
				if id.Step != 7 || id.Plan != s.digest() || len(units) != 1 || units[0].End != 3 {
					t.Errorf("of %+v, units %v", id, units)
				}
			}
			if of.spoil {
				if err := os.WriteFile(filepath.Join(s.own["a"], "c"), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			plan := events.Plan{ResumeStep: 7, Pipelines: []events.Pipeline{{Stages: []events.Stage{
				{Node: "a", Layers: events.Range{End: 3}}}}}}
			node.Foresee(&plan, s.digest())
			node.writing.Wait()
			close(told)
			says := strings.ReplaceAll(of.says, "FOLDER", s.own["a"])
			if got := <-told; !strings.HasPrefix(got, says) || (got == "") != (says == "") {
				t.Errorf("tells %q, expected %q", got, says)
			}
			left, err := filepath.Glob(filepath.Join(s.own["a"], "c", "*", ".probe-*"))
			if err != nil || len(left) > 0 {
				t.Errorf("leaves %v: %v", left, err)
			}
		})
	}
}

// An agent that was killed while it looked left its file for ever.
func TestALookIntoAFolderLeavesNoFileAndRemovesThatOfAProcessThatWasKilled(t *testing.T) {
	folder := t.TempDir()
	for name, mode := range map[string]os.FileMode{".probe-1": 0, "manifest.json": 0, ".probe-folder": os.ModeDir, "kept": os.ModeDir} {
		var err error
		if path := filepath.Join(folder, name); mode.IsDir() {
			err = os.MkdirAll(path, 0o700)
		} else {
			err = os.WriteFile(path, nil, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := probe(folder); err != nil {
		t.Fatal(err)
	}
	lies, err := os.ReadDir(folder)
	if got := fmt.Sprint(lies); err != nil || got != "[d .probe-folder/ d kept/ - manifest.json]" {
		t.Errorf("there is %s: %v", got, err)
	}
}
