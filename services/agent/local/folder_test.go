package local

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// Any user may put things with these names into /dev/shm and the temporary directory.
func TestNothingThatAnotherUserPutsBesideTheFoldersStopsAnAgentOrIsRemoved(t *testing.T) {
	parent, elsewhere := t.TempDir(), filepath.Join(t.TempDir(), "kept")
	folder := func(name string) string {
		path := filepath.Join(parent, folderPrefix+name)
		if err := os.Mkdir(path, 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	stay := []string{elsewhere, filepath.Join(parent, folderPrefix+"fifo"), filepath.Join(parent, folderPrefix+"link")}
	must(os.Mkdir(elsewhere, 0o755))
	must(syscall.Mkfifo(stay[1], 0o666))
	must(os.Symlink(elsewhere, stay[2]))
	waits := folder("waits") // who may have this one is not known
	must(syscall.Mkfifo(filepath.Join(waits, controlName), 0o666))
	must(syscall.Mkfifo(filepath.Join(folder("owned"), ownerName), 0o666))
	must(os.WriteFile(filepath.Join(folder("long"), ownerName), make([]byte, 1<<20), 0o600))
	stay = append(stay, waits)
	if os.Geteuid() == 0 {
		others := folder("others")
		must(os.Chown(others, 12345, 12345))
		stay = append(stay, others)
	}
	swept := make(chan struct{})
	go func() {
		sweep(parent, folderPrefix, 0)
		close(swept)
	}()
	select {
	case <-swept:
	case <-time.After(patience):
		t.Fatal("an agent waits for who put it there")
	}
	for _, path := range stay {
		if _, err := os.Lstat(path); err != nil {
			t.Errorf("removed: %v", err)
		}
	}
	for _, name := range []string{"owned", "long"} {
		if _, err := os.Lstat(filepath.Join(parent, folderPrefix+name)); err == nil {
			t.Errorf("%s is left, though nobody that lives owns it", name)
		}
	}
	var told failure
	if _, err := takeFolder(parent, stay[2]); !errors.As(err, &told) || told.status != 400 {
		t.Errorf("a link is taken over: %v", err)
	}
}
