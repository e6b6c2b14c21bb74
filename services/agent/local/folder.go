package local

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

const (
	folderPrefix = "reknit-state-"
	socketPrefix = "reknit-agent-"
	newPrefix    = "reknit-new-" // not locked yet: left alone
)

// folder is a directory of this process, which holds a lock on it for as long as it lives. The lock tells agents in
// other containers, too, that share the memory but not the numbers of processes.
type folder struct {
	path string
	lock *os.File
}

// makeFolder makes a folder whose name begins so, and removes those alike that killed agents left beside it.
func makeFolder(parent, prefix string) (*folder, error) {
	sweep(parent, prefix, 0)
	path, err := os.MkdirTemp(parent, newPrefix)
	if err != nil {
		return nil, err
	}
	lock := locked(path)
	name := prefix + strings.TrimPrefix(filepath.Base(path), newPrefix)
	f := &folder{filepath.Join(parent, name), lock}
	if err := os.Rename(path, f.path); err != nil {
		f.path = path
		f.remove()
		return nil, err
	}
	return f, nil
}

// locked returns the lock of a folder of this user; nil where somebody else has it, and where it is no folder or another user's:
// these names lie where anybody may put things.
func locked(path string) *os.File {
	file := ours(path, syscall.O_DIRECTORY, fs.ModeDir)
	if file == nil {
		return nil
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		file.Close()
		return nil
	}
	return file
}

// ours opens what is at a path, if it is of a type and of this user; nil where it is not. It follows no link, and waits for nobody: to
// open a FIFO would, until somebody writes.
func ours(path string, flags int, kind fs.FileMode) *os.File {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK|flags, 0)
	if err != nil {
		return nil
	}
	about, err := file.Stat()
	if err != nil || about.Mode().Type() != kind || int(about.Sys().(*syscall.Stat_t).Uid) != os.Geteuid() {
		file.Close()
		return nil
	}
	return file
}

// sweep removes the folders of agents that are no more. Those that a living trainer has mapped are left, but for those of a
// process that joins anew.
func sweep(parent, prefix string, joins int) {
	left, _ := filepath.Glob(filepath.Join(parent, prefix+"*")) // the pattern is sound
	for _, path := range left {
		if lock := locked(path); lock != nil {
			left := &folder{path, lock}
			if owner, lives := left.owner(); left.inUse() || lives && owner != joins {
				left.leave()
			} else {
				left.remove()
			}
		}
	}
}

const (
	ownerName = "owner"
	mostOwner = 64 // bytes: two numbers
)

// own notes whose files these are, for agents that start: a trainer may hold no lock on the control page, and another container's
// has no number here. Zero: it is not known.
func (f *folder) own(pid int) {
	if _, began := processStat(pid); pid > 0 && began != "" {
		if err := os.WriteFile(filepath.Join(f.path, ownerName), fmt.Appendf(nil, "%d %s", pid, began), 0o600); err != nil {
			slog.Warn("only by its lock the next agent knows whether the trainer lives", "error", err)
		}
	}
}

// owner returns the process whose files these are, and whether it lives.
func (f *folder) owner() (pid int, lives bool) {
	file := ours(filepath.Join(f.path, ownerName), 0, 0)
	if file == nil {
		return 0, false
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, mostOwner))
	var began string
	if _, malformed := fmt.Sscan(string(text), &pid, &began); err != nil || malformed != nil {
		return 0, false
	}
	state, is := processStat(pid)
	return pid, is == began && state != 'Z' && state != 'X'
}

// inUse reports whether a trainer lives that has these files mapped: it holds a lock on the control page.
func (f *folder) inUse() bool {
	path := filepath.Join(f.path, controlName)
	control := ours(path, 0, 0)
	if control == nil {
		_, err := os.Lstat(path)
		return !errors.Is(err, os.ErrNotExist) // who cannot look removes nothing
	}
	defer control.Close()
	return errors.Is(syscall.Flock(int(control.Fd()), syscall.LOCK_EX|syscall.LOCK_NB), syscall.EWOULDBLOCK)
}

// takeFolder takes over a folder of an agent that is no more.
func takeFolder(parent, path string) (*folder, error) {
	if filepath.Dir(path) != filepath.Clean(parent) || !strings.HasPrefix(filepath.Base(path), folderPrefix) {
		return nil, failure{http.StatusBadRequest, fmt.Sprintf("dir: expected a folder below %s, got %.200q", parent, path),
			"name the dir that the join before was answered with; REKNIT_AGENT_STATE_DIR must be the same"}
	}
	about, err := os.Lstat(path)
	if err != nil {
		return nil, failure{http.StatusNotFound, "dir: " + err.Error(), "save what you hold, and join without it"}
	}
	if !about.IsDir() {
		return nil, failure{http.StatusBadRequest, fmt.Sprintf("dir: expected a folder, got %v", about.Mode().Type()), "join without it"}
	}
	lock := locked(path)
	if lock == nil {
		return nil, errOrder{"dir: its agent has not ended", "try again when it has"}
	}
	return &folder{path, lock}, nil
}

// leave leaves a folder as it is, for another agent.
func (f *folder) leave() {
	if f.lock != nil {
		f.lock.Close()
	}
}

// remove removes a folder with all that is in it.
func (f *folder) remove() {
	if err := os.RemoveAll(f.path); err != nil {
		slog.Warn("a folder is left; the next agent removes it", "error", err)
	}
	f.leave()
}
