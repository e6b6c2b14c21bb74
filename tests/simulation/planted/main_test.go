package main

import (
	"os"
	"path/filepath"
	"testing"
)

// CI has time for a few patches a day: one that the code has left behind would fail it weeks later.
func TestEachPatchCanBeApplied(t *testing.T) {
	t.Chdir("../../..")
	patches, err := filepath.Glob("tests/simulation/planted/*.patch")
	if err != nil || len(patches) == 0 {
		t.Fatal("no patch", err)
	}
	for _, patch := range patches {
		text, err := os.ReadFile(patch)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := apply(patch, string(text), t.TempDir()); err != nil {
			t.Errorf("%s: %v", name(patch), err)
		}
	}
}
