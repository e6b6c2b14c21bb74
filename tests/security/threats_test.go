package security

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	ofTest     = regexp.MustCompile("`(Test[A-Za-z0-9]+)`")
	testsNamed = regexp.MustCompile(`(?m)^func (Test[A-Za-z0-9]+)\(`)
)

// testsOf returns the names of all tests of the tree.
func testsOf(t *testing.T, root string) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	if err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, match := range testsNamed.FindAllSubmatch(text, -1) {
			names[string(match[1])] = true
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return names
}

// TestEachThreatNamesItsTestOrIsOpen reads the page of threats: a promise without a test is none.
func TestEachThreatNamesItsTestOrIsOpen(t *testing.T) {
	page, err := os.ReadFile("../../.github/THREATS.md")
	if err != nil {
		t.Fatal(err)
	}
	known, threats := testsOf(t, "../.."), 0
	for line := range strings.Lines(string(page)) {
		if !strings.HasPrefix(line, "* ") {
			continue
		}
		threats++
		tests := ofTest.FindAllStringSubmatch(line, -1)
		if open := strings.HasSuffix(strings.TrimSpace(line), "**open**."); open == (len(tests) > 0) {
			t.Errorf("%sexpected a test, or **open** at its end, and not both", line)
		}
		for _, test := range tests {
			if !known[test[1]] {
				t.Errorf("%sthere is no %s", line, test[1])
			}
		}
	}
	if threats < 20 {
		t.Errorf("the page tells of %d threats: expected all", threats)
	}
}
