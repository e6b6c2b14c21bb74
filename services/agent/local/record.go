package local

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/reknit/reknit/events"
)

// takeFiles takes over those of a trainer whose agent has ended, and what they are worth.
func takeFiles(parent, path string, units []int64) (*files, record, error) {
	dir, err := takeFolder(stateParent(parent), path)
	if err != nil {
		return nil, record{}, err
	}
	f := newFiles(dir)
	if err = f.expect(units); err == nil {
		err = f.mapAll(units)
	}
	if err == nil {
		err = f.findRoom()
	}
	if err != nil {
		f.leave()
		return nil, record{}, err
	}
	f.setWord(wordAbort, 0) // the ids of orders begin anew
	f.setWord(wordStill, 0) // who copied is no more
	f.setWord(wordOut, 0)
	kept, _ := f.recorded()
	return f, kept, nil
}

// expect returns an error where the files are not there in these sizes.
func (f *files) expect(units []int64) error {
	sizes := map[string]int64{controlName: controlBytes}
	for i, bytes := range units {
		sizes[unitName(i)] = bytes
	}
	for name, bytes := range sizes {
		about, err := os.Stat(filepath.Join(f.dir.path, name))
		if err == nil && about.Size() == bytes {
			continue
		}
		return failure{http.StatusBadRequest, fmt.Sprintf("dir: expected %s in it, of %d bytes", name, bytes),
			"join with the units of the join before"}
	}
	return nil
}

// findRoom notes which units have their memory, and drops what was on its way.
func (f *files) findRoom() error {
	for i, unit := range f.units {
		path := filepath.Join(f.dir.path, unitName(i))
		if err := os.Remove(path + newSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		var about syscall.Stat_t
		if err := syscall.Stat(path, &about); err != nil {
			return err
		}
		f.room[i] = about.Blocks*statBlock >= int64(len(unit))
	}
	return nil
}

const statBlock = 512 // bytes, whatever a file system's blocks are

// record says what a folder's units are worth, to the agent that takes the folder over when this one was killed: they
// are at the step that the control page says. Without a record they are worth nothing.
type record struct {
	Generation uint64         `json:"generation"`     // of the plan under which they are trained; 0 for a first state
	Plan       *events.Plan   `json:"plan,omitempty"` // that plan; nil: an agent of before did not write it
	Units      []events.Range `json:"units"`
}

const recordName = "record"

// firstRecord is that of a trainer that has made its first state.
func firstRecord(units int) record { return record{Units: []events.Range{{First: 0, End: units}}} }

// note writes the record. A record that was written in part, because the agent was killed, reads as none.
func (f *files) note(r record) {
	content, err := json.Marshal(r)
	if err == nil {
		err = os.WriteFile(filepath.Join(f.dir.path, recordName), content, 0o600)
	}
	if err != nil {
		slog.Warn("should this agent be killed, the state of its trainer is worth nothing to the next", "error", err)
		f.unnote()
	}
}

// unnote removes the record, before the units are anything else.
func (f *files) unnote() {
	if err := os.Remove(filepath.Join(f.dir.path, recordName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		slog.Error("a record of units that are no more is left", "error", err)
	}
}

// recorded reads the record; there is none where it is not whole, or speaks of units that there are not.
func (f *files) recorded() (r record, is bool) {
	content, err := os.ReadFile(filepath.Join(f.dir.path, recordName))
	if err != nil || json.Unmarshal(content, &r) != nil {
		return record{}, false
	}
	beyond := func(units events.Range) bool {
		return units.First < 0 || units.First > units.End || units.End > len(f.units)
	}
	return r, !slices.ContainsFunc(r.Units, beyond)
}
