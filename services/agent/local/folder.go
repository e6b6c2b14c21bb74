package local

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

const (
	folderPrefix = "reknit-state-"
	newPrefix    = "reknit-new-" // not locked yet: left alone
)

// folder is a directory of this process, which holds a lock on it for as long as it lives. The lock tells agents in
// other containers, too, that share the memory but not the numbers of processes.
type folder struct {
	path string
	lock *os.File
}

// makeFolder makes a folder, and removes those that killed agents left beside it.
func makeFolder(parent string) (*folder, error) {
	sweep(parent)
	path, err := os.MkdirTemp(parent, newPrefix)
	if err != nil {
		return nil, err
	}
	lock := locked(path)
	name := folderPrefix + strings.TrimPrefix(filepath.Base(path), newPrefix)
	f := &folder{filepath.Join(parent, name), lock}
	if err := os.Rename(path, f.path); err != nil {
		f.path = path
		f.remove()
		return nil, err
	}
	return f, nil
}

// locked returns the lock of a folder; nil where somebody else has it.
func locked(path string) *os.File {
	file, err := os.Open(path)
	if err != nil {
		return nil
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		file.Close()
		return nil
	}
	return file
}

// sweep removes the folders of agents that are no more. A trainer that outlived its agent keeps what it has mapped.
func sweep(parent string) {
	left, _ := filepath.Glob(filepath.Join(parent, folderPrefix+"*")) // the pattern is sound
	for _, path := range left {
		if lock := locked(path); lock != nil {
			(&folder{path, lock}).remove()
		}
	}
}

// remove removes a folder with all that is in it.
func (f *folder) remove() {
	if err := os.RemoveAll(f.path); err != nil {
		slog.Warn("a folder is left; the next agent removes it", "error", err)
	}
	if f.lock != nil {
		f.lock.Close()
	}
}
