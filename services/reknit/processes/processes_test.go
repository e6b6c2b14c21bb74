package processes

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/reknit/reknit/shared/service"
)

// script is a program that runs as any role.
func script(t *testing.T, text string) string {
	path := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// The monitor ended at once, and was started again for ever, and the page was said to be live.
func TestARoleWhoseSettingsAreWrongIsNotStarted(t *testing.T) {
	for role, setting := range map[string]string{
		"monitor": "REKNIT_PAGE_TOKEN", "negotiator": "REKNIT_START_NODES", "planner": "REKNIT_POLICY", "restorer": "REKNIT_SHARD_SIZE",
		Trainer: "REKNIT_TRAINER_STEPS",
	} {
		running := New(script(t, "exit 0"), t.TempDir(), func(string, error) {})
		err := running.Start("one", role, map[string]string{setting: "0"}, true)
		if !errors.As(err, &service.Misconfigured{}) || !strings.HasPrefix(err.Error(), "one: "+setting+": ") {
			t.Errorf("%s with %s=0: got %v, want an error that names it", role, setting, err)
		}
		running.Close(t.Context())
	}
}

func TestAServiceThatSaysItIsMisconfiguredIsNotStartedAgain(t *testing.T) {
	died := make(chan error, 2)
	ends := script(t, fmt.Sprintf("echo wrong; exit %d", service.ExitMisconfigured))
	running := New(ends, t.TempDir(), func(_ string, err error) { died <- err })
	if err := running.Start("one", "planner", nil, true); err != nil {
		t.Fatal(err)
	}
	if err := <-died; !errors.As(err, &service.Misconfigured{}) || !strings.Contains(err.Error(), "wrong") {
		t.Errorf("it is said to have ended with %v", err)
	}
	running.ended.Wait()
	if names := running.Running("planner"); len(names) > 0 {
		t.Errorf("%s runs again", names)
	}
}

// Go ends a program that panics with status 2.
func TestAServiceThatPanickedIsStartedAgain(t *testing.T) {
	folder := t.TempDir()
	panics := "test -e " + folder + "/ran && { touch " + folder + "/again; exec sleep 60; }; touch " + folder + "/ran; exit 2"
	running := New(script(t, panics), t.TempDir(), func(_ string, err error) {
		if errors.As(err, &service.Misconfigured{}) {
			t.Errorf("it is said to be misconfigured: %v", err)
		}
	})
	if err := running.Start("one", "negotiator", nil, true); err != nil {
		t.Fatal(err)
	}
	defer running.Close(t.Context())
	for again := os.ErrNotExist; again != nil; _, again = os.Stat(folder + "/again") {
		runtime.Gosched() // the test's own limit ends it
	}
}

func TestTheLineOfThePageSaysThatItAsksForAToken(t *testing.T) {
	t.Setenv("REKNIT_PAGE_TOKEN", "0123456789abcdef")
	if said := PageShows("h:1"); said != "http://h:1/?token=$REKNIT_PAGE_TOKEN shows the cluster live" {
		t.Errorf("with a token it says %q", said)
	}
	t.Setenv("REKNIT_PAGE_TOKEN", "")
	if said := PageShows("h:1"); said != "http://h:1/ shows the cluster live" {
		t.Errorf("without a token it says %q", said)
	}
}
