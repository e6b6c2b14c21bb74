package contract

import (
	"os"
	"regexp"
	"testing"

	"github.com/reknit/reknit/shared/service"
)

// The notes of a version are its section of the changelog, so that the newest section is of the version that programs tell.
func TestTheChangelogDescribesTheVersionThatProgramsTell(t *testing.T) {
	text, err := os.ReadFile("../../CHANGELOG.md")
	if err != nil {
		t.Fatal(err)
	}
	newest := regexp.MustCompile(`(?m)^## (\d+\.\d+\.\d+)$`).FindSubmatch(text)
	if newest == nil || string(newest[1]) != service.Release {
		t.Errorf("the newest version of CHANGELOG.md is %q, expected %s (shared/service/version.go)", newest, service.Release)
	}
}
