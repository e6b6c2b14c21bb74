package contract

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const settingsPage = "../../deploy/settings.md"

func TestThePageOfSettingsIsUpToDate(t *testing.T) {
	page, err := os.ReadFile(settingsPage)
	if err != nil {
		t.Fatal(err)
	}
	text, err := withTable(string(page), settingsTable())
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(settingsPage, text, 0o644); err != nil {
			t.Fatal(err)
		}
	} else if !bytes.Equal(page, text) {
		t.Error("deploy/settings.md is not what the structs' tags say: run make generate")
	}
}

func TestEachSettingHasItsUnitAndReason(t *testing.T) {
	for _, s := range settings() {
		if s.Unit == "" || s.Reason == "" {
			t.Errorf("%s of the %s: expected a unit and a reason, got %q and %q", s.Name, s.readBy[0], s.Unit, s.Reason)
		}
	}
}

// A variable that a new program reads must not be missing in the page because nobody thought of it.
func TestEachVariableOfTheCodeIsInThePage(t *testing.T) {
	page, err := os.ReadFile(settingsPage)
	if err != nil {
		t.Fatal(err)
	}
	tag, found := regexp.MustCompile(`env:"(REKNIT_\w+)"|[gG]etenv\("(REKNIT_\w+)"\)`), 0
	eachSource(t, func(path, text string) {
		for _, match := range tag.FindAllStringSubmatch(text, -1) {
			found++
			if name := match[1] + match[2]; !bytes.Contains(page, []byte("`"+name+"`")) {
				t.Errorf("%s reads %s: expected it in deploy/settings.md", path, name)
			}
		}
	})
	if found < 50 {
		t.Errorf("%d variables found, expected all", found)
	}
}

// eachSource calls visit with every source file of the services and of what they share, tests not counted.
func eachSource(t *testing.T, visit func(path, text string)) {
	t.Helper()
	for _, root := range []string{"../../services", "../../shared"} {
		err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
			isSource := strings.HasSuffix(path, ".go") || strings.HasSuffix(path, ".py")
			isTest := strings.HasSuffix(path, "_test.go") || strings.HasPrefix(filepath.Base(path), "test_")
			if err != nil || !isSource || isTest {
				return err
			}
			text, err := os.ReadFile(path)
			visit(path, string(text))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}
