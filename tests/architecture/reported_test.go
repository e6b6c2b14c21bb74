package architecture

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"
	"testing/fstest"
)

const reported = "tests/reported.md"

func TestWhatShowsAReportedFaultExists(t *testing.T) {
	files := os.DirFS("../..")
	page, err := fs.ReadFile(files, reported)
	if err != nil {
		t.Fatal(err)
	}
	rows, faults := showings(files, string(page))
	for _, fault := range faults {
		t.Error(fault)
	}
	if rows == 0 {
		t.Errorf("%s: no row", reported)
	}
}

func TestARowThatNamesNothingOrWhatIsNotThereIsFound(t *testing.T) {
	files := fstest.MapFS{
		"a/a_test.go":      {Data: []byte("func TestThere(t *testing.T) {}\n// TestGone is no more, and so is func TestLonger(\nvar kinds = []string{\"a kind\"}\n")},
		"a/test_b.py":      {Data: []byte("    def test_there(self):\n")},
		"a/inner/a.txt":    {},
		"a/inner/deep.txt": {},
	}
	for row, says := range map[string]string{
		"`a`: `TestThere`, `a kind`; `a/test_b.py`: `test_there`; `a/inner`: `a.txt`": "",
		"`a`: `TestGone`":           "a has no TestGone",
		"`a`: `TestLong`":           "a has no TestLong",
		"`a`: `another kind`":       "a has no another kind",
		"`a/test_b.py`: `test_b`":   "a/test_b.py has no test_b",
		"`a`: `deep.txt`":           "a has no deep.txt",
		"`gone/folder`: `TestGone`": "gone/folder is not there",
		"`TestThere`":               "TestThere is in no folder",
		"by a look":                 "names nothing",
		"`a`":                       "names nothing",
	} {
		rows, faults := showings(files, "text\n\n| fault | shown by |\n| --- | --- |\n| `x` is wrong | "+row+" |\n")
		if got := strings.Join(faults, "; "); rows != 1 || !strings.HasSuffix(got, says) || says == "" && got != "" {
			t.Errorf("%s: %d rows, %q; expected %q", row, rows, got, says)
		}
	}
}

var quoted = regexp.MustCompile("`([^`]+)`")

// showings returns how many rows the tables of a page have, and what is wrong with their last columns. These name folders or files, and
// what each has: a file, or a function or text of its Go and Python files.
func showings(files fs.FS, page string) (rows int, faults []string) {
	head := true
	for number, line := range strings.Split(page, "\n") {
		cells := strings.Split(strings.Trim(line, "| "), "|")
		if !strings.HasPrefix(line, "|") || strings.HasPrefix(line, "| ---") {
			head = !strings.HasPrefix(line, "|")
			continue
		}
		if head {
			continue // the names of columns
		}
		rows++
		for _, fault := range unshown(files, cells[len(cells)-1]) {
			faults = append(faults, fmt.Sprintf("%s:%d: %s", reported, number+1, fault))
		}
	}
	return rows, faults
}

func unshown(files fs.FS, cell string) (faults []string) {
	place, text, names := "", "", 0
	for _, match := range quoted.FindAllStringSubmatch(cell, -1) {
		name := match[1]
		switch _, err := fs.Stat(files, name); {
		case err == nil:
			place, text = name, textOf(files, name)
		case strings.Contains(name, "/"):
			return append(faults, name+" is not there")
		case place == "":
			return append(faults, name+" is in no folder")
		default:
			if names++; !has(files, place, text, name) {
				faults = append(faults, place+" has no "+name)
			}
		}
	}
	if names == 0 {
		faults = append(faults, "the row names nothing")
	}
	return faults
}

func has(files fs.FS, place, text, name string) bool {
	if _, err := fs.Stat(files, path.Join(place, name)); err == nil {
		return true
	}
	function := regexp.MustCompile(`(?m)^\s*(func|def) ` + regexp.QuoteMeta(name) + `\(`)
	return function.MatchString(text) || strings.Contains(text, `"`+name+`"`)
}

// textOf returns what the Go and Python files of a folder have, or a file.
func textOf(files fs.FS, place string) string {
	var text strings.Builder
	paths := []string{place}
	for _, pattern := range []string{"*.go", "*.py"} {
		found, _ := fs.Glob(files, path.Join(place, pattern)) // the patterns are sound
		paths = append(paths, found...)
	}
	for _, name := range paths {
		data, _ := fs.ReadFile(files, name) // none of a folder
		text.Write(data)
		text.WriteByte('\n')
	}
	return text.String()
}
