package files

import (
	"os"
	"path/filepath"
	"testing"
)

// A reknit up that was killed while it wrote the page's token left a part of it, with which the page was served from then on.
func TestAFileIsTheOneBeforeOrTheNextAndNoPartOfIt(t *testing.T) {
	file := filepath.Join(t.TempDir(), "folder", "file")
	if err := Replace(file, []byte("before"), 0o600); err != nil {
		t.Fatal(err)
	}
	open, err := os.Open(file) // as one reads it who began before the next is written
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	if err := Replace(file, []byte("next"), 0o600); err != nil {
		t.Fatal(err)
	}
	read := make([]byte, 16)
	if n, _ := open.Read(read); string(read[:n]) != "before" {
		t.Errorf("a reader of the file before reads %q", read[:n])
	}
	if text, err := os.ReadFile(file); string(text) != "next" || err != nil {
		t.Errorf("the file is %q: %v", text, err)
	}
	if left, err := os.ReadDir(filepath.Dir(file)); len(left) != 1 || err != nil {
		t.Errorf("there are %v: %v", left, err)
	}
}
